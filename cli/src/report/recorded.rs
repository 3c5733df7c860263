//! A recorded training run.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, UNIX_EPOCH};

use gpu_tuned_core::{grouped, three_digits};
use gpu_tuned_observe::diagnose::{Diagnosis, Finding, Severity, diagnose};
use gpu_tuned_observe::monitor::{Figure, GPU_FIGURES, HOST_FIGURES, Stats, Summary};
use gpu_tuned_observe::plot::{TimeSeries, TimeSeriesPlot};
use gpu_tuned_observe::recording::{GpuSample, Record, Run, StepRecord};
use maud::{Markup, PreEscaped, html};

use super::{Section, date, marked_up, table};
use crate::files::is_standard;
use crate::view::{expectation, readable};

const SOUND: &str = "Nothing slows training down.";

const COLUMNS: [&str; 7] = ["source", "figure", ">mean", ">min", ">max", ">std. dev.", ">samples"];

/// Figures of GPUs with a plot; the top of the scale, unless it is the highest value.
const PLOTTED: [(&str, Option<f64>); 5] = [
    ("utilisation_percent", Some(100.0)),
    ("sm_activity_percent", Some(100.0)),
    ("memory_used_bytes", None),
    ("power_w", None),
    ("temperature_c", None),
];

pub(super) fn section(path: &Path, records: &[Record]) -> Section {
    let (summary, diagnosis) = (Summary::from_records(records), diagnose(records));
    let runs = || records.iter().filter_map(Record::run);
    let file = match path.file_name() {
        Some(name) if !is_standard(path) => name.to_string_lossy().into_owned(),
        _ => "standard input".to_owned(),
    };
    let heading = match runs().next_back() {
        Some(run) => format!("Run: {} on {} ({file})", run.workload, run.device.name),
        None => format!("Run ({file})"),
    };
    let taken = steps(records, &summary);
    let body = html! {
        p { (taken) }
        @for run in runs() { (describe_run(run)) }
        (findings(&diagnosis))
        h3 { "Figures over time" }
        div class="plots" { @for svg in plots(records) { (PreEscaped(svg)) } }
        h3 { "Figures in numbers" }
        (table(&COLUMNS, &figures(&summary)))
    };
    Section { summary: format!("{heading}: {taken} {}", verdict(&diagnosis)), heading, body }
}

/// Number and speed of the steps, and the begin of the recording.
fn steps(records: &[Record], summary: &Summary) -> String {
    let begin = records.iter().filter_map(Record::at).reduce(f64::min);
    let begin = begin.and_then(|at| Duration::try_from_secs_f64(at).ok()).and_then(|at| UNIX_EPOCH.checked_add(at));
    let since = begin.map(|at| format!(" since {}", date(at))).unwrap_or_default();
    let Some(steps) = &summary.steps else { return format!("no steps{since}.") };
    let speed = three_digits(steps.samples_per_s.mean);
    let loss = steps.last_loss.map(|loss| format!(", last loss {loss:.4}")).unwrap_or_default();
    let (taken, samples) = (grouped(steps.steps), grouped(steps.samples));
    format!("{taken} steps of {samples} samples in all{since}, {speed} samples/s{loss}.")
}

fn verdict(diagnosis: &Diagnosis) -> String {
    match diagnosis.findings.as_slice() {
        [] if diagnosis.judged.steps > 0 => SOUND.to_owned(),
        [] => String::new(),
        [only] => format!("Finding: {}.", only.headline),
        [first, rest @ ..] => format!("First of {} findings: {}.", rest.len() + 1, first.headline),
    }
}

fn describe_run(run: &Run) -> Markup {
    let built = run.target.as_deref().map_or_else(|| "no specific GPU".to_owned(), |target| format!("`{target}`"));
    html! {
        p { (run.workload) " on " (run.device.name) ", built for " (marked_up(&built)) ", process " (run.pid) }
        @if !run.fallbacks.is_empty() {
            ul { @for fallback in &run.fallbacks { li class="bad" { (marked_up(fallback)) } } }
        }
        @if !run.reasons.is_empty() {
            details {
                summary { "The settings and their reasons" }
                ul { @for reason in &run.reasons { li { (marked_up(reason)) } } }
            }
        }
    }
}

fn figures(summary: &Summary) -> Vec<Vec<String>> {
    let gpus = summary.gpus.iter().flat_map(|gpu| rows(format!("GPU {}", gpu.gpu.gpu), &gpu.figures));
    let values = summary.values.iter().map(|(name, stats)| cells("program".to_owned(), name, stats));
    gpus.chain(rows("host".to_owned(), &summary.host)).chain(values).collect()
}

fn rows<'s>(source: String, figures: &'s BTreeMap<&'static str, Stats>) -> impl Iterator<Item = Vec<String>> + use<'s> {
    figures.iter().map(move |(key, stats)| cells(source.clone(), key, stats))
}

fn cells(source: String, key: &str, stats: &Stats) -> Vec<String> {
    let (name, scale) = readable(key);
    let cell = |figure: f64| format!("{:.2}", figure / scale);
    let deviation = stats.standard_deviation.map(cell).unwrap_or_default();
    vec![source, name, cell(stats.mean), cell(stats.min), cell(stats.max), deviation, stats.count.to_string()]
}

/// Plots of figures over time, on one time axis.
fn plots(records: &[Record]) -> Vec<String> {
    let times = || records.iter().filter_map(Record::at);
    let Some(begin) = times().reduce(f64::min) else { return Vec::new() };
    let between = Some((0.0, times().fold(begin, f64::max) - begin));
    let gpu = |key: &str| GPU_FIGURES.iter().find(|figure| figure.key == key).expect("BUG: every plot has a figure");
    let gpus = PLOTTED.iter().map(|(key, max)| (readable(key).0, gpu_lines(records, gpu(key), begin), *max));
    let host = HOST_FIGURES.iter().filter(|figure| figure.key.ends_with("cpu_percent")).map(|figure| {
        let points = records.iter().filter_map(|record| match record {
            Record::Host(sample) => Some((sample.at - begin, (figure.of)(sample)?)),
            _ => None,
        });
        let line = TimeSeries { name: String::new(), points: points.collect() };
        (format!("host: {}", readable(figure.key).0), vec![line], None)
    });
    let steps = [
        ("samples/s", step_line(records, begin, |step| Some(step.samples as f64 / step.seconds))),
        ("loss", step_line(records, begin, |step| step.loss)),
    ];
    let steps = steps.into_iter().map(|(title, line)| (title.to_owned(), vec![line], None));
    let all = steps.chain(gpus).chain(host);
    all.filter_map(|(title, lines, max)| TimeSeriesPlot { title, lines, max, limit: None, between }.svg()).collect()
}

/// A line for each GPU, in the displayed unit.
fn gpu_lines(records: &[Record], figure: &Figure<GpuSample>, begin: f64) -> Vec<TimeSeries> {
    let scale = readable(figure.key).1;
    let mut lines: BTreeMap<(u32, Option<u32>), TimeSeries> = BTreeMap::new();
    for record in records {
        let Record::Gpu(sample) = record else { continue };
        let Some(value) = (figure.of)(sample) else { continue };
        let line = lines.entry((sample.gpu, sample.mig_slot)).or_insert_with(|| TimeSeries {
            name: match sample.mig_slot {
                Some(slot) => format!("GPU {}, slice {slot}", sample.gpu),
                None => format!("GPU {}", sample.gpu),
            },
            points: Vec::new(),
        });
        line.points.push((sample.at - begin, value / scale));
    }
    lines.into_values().collect()
}

fn step_line(records: &[Record], begin: f64, figure: impl Fn(&StepRecord) -> Option<f64>) -> TimeSeries {
    let steps = || records.iter().filter_map(Record::step);
    let rank = steps().next().map(|step| step.rank);
    let points = steps().filter(|it| Some(it.rank) == rank).filter_map(|it| Some((it.at - begin, figure(it)?)));
    TimeSeries { name: String::new(), points: points.collect() }
}

/// The findings in their order, and what could not be judged.
fn findings(diagnosis: &Diagnosis) -> Markup {
    html! {
        h3 { "Findings" }
        @if diagnosis.findings.is_empty() && diagnosis.judged.steps > 0 {
            p class="good" { (SOUND) }
        }
        @for found in &diagnosis.findings { (finding(found)) }
        @for unjudged in &diagnosis.unjudged {
            p class="pale" { (marked_up(&unjudged.what)) "; " (marked_up(&unjudged.how)) }
        }
    }
}

fn finding(found: &Finding) -> Markup {
    let class = if found.severity == Severity::Critical { "bad" } else { "text" };
    html! {
        p {
            span class=(class) { (found.severity.name()) } " "
            strong { (marked_up(&found.headline)) } " "
            span class="pale" { "[" (found.kind) "]" }
        }
        ul {
            @for evidence in &found.evidence { li class="pale" { (marked_up(evidence)) } }
            li { (marked_up(&found.change.what)) }
            @if let Some(command) = &found.change.command { li { "run " code { (command) } } }
            li { (marked_up(&expectation(found))) }
        }
    }
}
