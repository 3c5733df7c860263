//! What is said around the tables.

use anstyle::Style;
use gpu_tuned_core::{grouped, three_digits};

use super::super::changes::State;
use super::super::keys::Role;
use super::super::model::Origin;
use super::expectation::Expectation;
use super::{Fate, OnTarget, Report};
use crate::table::{Align, BOLD, FAINT, GOOD, MARKED, PLAIN, Table, styled};
use crate::wrap::wrapped;

impl Report<'_> {
    /// What is to be expected of the config as it is, and as it is planned.
    pub(super) fn expected(&self, one: &OnTarget) -> (Expectation, Expectation) {
        let workload = &self.training.workload;
        let planned = one.planned.after.plan().map(|plan| plan.settings.num_workers);
        let has_workers = one.changes.as_ref().is_some_and(|changes| {
            changes.all.iter().any(|change| change.setting == "num_workers" && change.state != State::ByHand)
        });
        let workers = if has_workers { planned } else { self.config.workers };
        (
            Expectation::before(&one.planned.before, workload, self.config.workers),
            Expectation::of(&one.planned.after, workload, workers),
        )
    }
}

pub(super) const fn style(state: State) -> Style {
    match state {
        State::Same | State::Implied => FAINT,
        State::Changed | State::Added => GOOD,
        State::ByHand => MARKED,
    }
}

pub(super) fn times(ratio: f64) -> String {
    if (ratio - 1.0).abs() < 0.005 { "the same".to_owned() } else { format!("{ratio:.2}x") }
}

pub(super) fn speed(expected: &Expectation) -> String {
    expected.samples_per_s.map_or_else(|| "-".to_owned(), three_digits)
}

/// The config, the model and the step.
pub(super) fn heading(report: &Report<'_>) -> String {
    let Report { file, training, step, .. } = report;
    let workload = &training.workload;
    let optimizer = if training.optimizer_known { "" } else { " (assumed)" };
    let parameters = grouped(workload.parameters.trained());
    let ranks = if step.ranks == 1 { "1 device".to_owned() } else { format!("{} devices", step.ranks) };
    let now = step.batch * step.accumulation * step.ranks;
    let kept =
        if now == step.global { "which stays".to_owned() } else { format!("{} asked for", grouped(step.global)) };
    let model = wrapped(&format!("{}: {}", styled(BOLD, &file.name), training.because), 2);
    format!(
        "{model}\n  {parameters} parameters, {}{optimizer}\n  batch {} x {} x {ranks} = {} samples a step, {kept}\n",
        workload.optimizer,
        grouped(step.batch),
        grouped(step.accumulation),
        grouped(now)
    )
}

/// The model's dimensions, each with where it comes from.
pub(super) fn dimensions(report: &Report<'_>) -> String {
    let mut table = Table::new(4, [("", Align::Left), ("", Align::Left)]);
    for dim in &report.training.dims {
        let (style, from) = match &dim.origin {
            Origin::Key(key) => (PLAIN, key.clone()),
            Origin::Option => (PLAIN, "--dim".to_owned()),
            Origin::Assumed(why) => (MARKED, format!("assumed: {why}")),
        };
        table.row(style, [dim.name.clone(), dim.value.clone()], styled(FAINT, from));
    }
    if report.training.dims.is_empty() { String::new() } else { table.print() }
}

/// What is to be known beside the tables, and what became of the files.
pub(super) fn remarks(report: &Report<'_>) -> String {
    let mut lines = Vec::new();
    for one in report.targets {
        lines.extend(of_target(report, one));
    }
    lines.extend(loading(report));
    lines.extend(by_hand(report));
    lines.extend(no_counterpart(report));
    let several = report.targets.len() > 1;
    let mut said: Vec<(String, Vec<&str>)> = Vec::new();
    for (target, line) in lines {
        match said.iter_mut().find(|(known, _)| *known == line) {
            Some((_, targets)) => targets.extend(target),
            None => said.push((line, target.into_iter().collect())),
        }
    }
    let all: Vec<_> = said
        .iter()
        .map(|(line, targets)| {
            let of = if several && !targets.is_empty() { format!("{}: ", targets.join(", ")) } else { String::new() };
            format!("note: {}\n", wrapped(&format!("{of}{line}"), 6))
        })
        .collect();
    let gap = if all.is_empty() { "" } else { "\n" };
    format!("{gap}{}\n{}", all.concat(), written(report))
}

type Line<'a> = (Option<&'a str>, String);

fn of_target<'a>(report: &Report<'_>, one: &'a OnTarget) -> Vec<Line<'a>> {
    let target = Some(one.target.as_str());
    let mut lines: Vec<String> = one.planned.warnings.clone();
    lines.extend(host(report, one));
    if report.config.tf32 == Some(false) {
        let key = report.config.key(Role::Tf32).map_or("tf32", |found| found.leaf.shown.as_str());
        lines.push(format!("`{key}` is off and stays off: TF32 would round the factors of f32 products to ten bits"));
    }
    if let (Some(free), Some(plan)) = (&one.planned.with_accumulation, one.planned.after.plan()) {
        let ratio = free.samples_per_s / plan.samples_per_s;
        let (batch, steps) = (free.settings.batch_size, free.schedule.micro_steps());
        if ratio >= 1.02 {
            lines.push(format!(
                "in {steps} micro-batches of {batch} a step would run {ratio:.2}x as fast: have the program read \
                 gradient_accumulation, and let --add write it"
            ));
        }
    } else if let Some(free) = &one.planned.with_accumulation {
        lines.push(format!(
            "it would fit in {} micro-batches of {}: have the program read gradient_accumulation, and let --add write it",
            free.schedule.micro_steps(),
            free.settings.batch_size
        ));
    }
    // Of several targets that is a table.
    if report.targets.len() == 1 {
        lines.extend(one.planned.more.advice.clone());
        lines.extend(bounded_step(one));
        lines.extend(mixed(one));
        lines.extend(too_small(report, one));
    }
    lines.into_iter().map(|line| (target, line)).collect()
}

/// Whose cores the workers are planned for, where that is not the machine that was asked for.
fn host(report: &Report<'_>, one: &OnTarget) -> Option<String> {
    let workers = one.changes.as_ref()?.all.iter().find(|change| change.setting == "num_workers")?;
    let (key, cores) = (&workers.key, one.host.cores);
    if one.host.assumed {
        let why = "which is assumed: no such GPU was found in this machine";
        Some(format!("`{key}` is planned for a host of {cores} cores, {why}"))
    } else {
        let why = "as such a GPU is in it; memory and speed are the profile's";
        let of = if report.step.ranks > 1 { "core(s) that each rank has of" } else { "core(s) of" };
        (!report.args.here).then(|| format!("`{key}` is planned for the {cores} {of} this machine, {why}"))
    }
}

/// What a larger step would bring, where the data set has too few samples for one that fills the device.
fn bounded_step(one: &OnTarget) -> Option<String> {
    let more = &one.planned.more;
    let set = more.data_set.as_ref()?;
    let (samples, key, target) = (grouped(set.samples), &set.key, &one.target);
    let now = one.planned.after.plan().map_or_else(String::new, |plan| plan.schedule.global_batch.to_string());
    Some(match more.larger_batch {
        Some(gain) => format!(
            "a global batch of {now} does not fill {target}: {} would run about {:.1}x as many samples per second ({}), and \
             the data set bounds it: it has {samples} samples (`{key}`). It is left as it is, because it is part of what the \
             run means",
            gain.global_batch, gain.samples_per_s_ratio, gain.provenance
        ),
        None => format!(
            "a global batch of {now} does not fill {target}, and no larger one that the data set allows would run noticeably \
             faster: it has {samples} samples (`{key}`)"
        ),
    })
}

/// What 16 bits would bring.
fn mixed(one: &OnTarget) -> Option<String> {
    let gain = one.planned.more.mixed_bf16?;
    Some(format!(
        "mixed_bf16 would run about {:.2}x as many samples per second ({}); it changes how the run rounds: ask for it with \
         --precision mixed_bf16",
        gain.samples_per_s_ratio, gain.provenance
    ))
}

/// A share of something, with digits enough to tell small ones apart.
pub(super) fn share(share: f64) -> String {
    if share < 0.0005 {
        "under 0.1%".to_owned()
    } else if share < 0.1 {
        format!("{:.1}%", share * 100.0)
    } else {
        format!("{:.0}%", share * 100.0)
    }
}

/// What would fill the device.
fn too_small(report: &Report<'_>, one: &OnTarget) -> Option<String> {
    let (small, filling) = (one.too_small.as_ref()?, one.planned.filling?);
    let peak =
        filling.of_peak.map_or_else(String::new, |of| format!(", and its arithmetic is {} of the f32 peak", share(of)));
    let larger: Vec<_> = small
        .larger
        .iter()
        .map(|larger| {
            format!(
                "{} {}, {:.1}x the arithmetic of a sample at {:.2}x the samples/s",
                larger.change,
                share(larger.utilization),
                larger.flops_ratio,
                larger.samples_per_s_ratio
            )
        })
        .collect();
    let would = if larger.is_empty() {
        "No model twice as wide, deep or long would change that much at this batch".to_owned()
    } else {
        format!("What would fill it: {}", larger.join("; "))
    };
    let batch = report.step.share();
    Some(format!(
        "the model is too small to fill the device at {batch} samples a step: it computes {} of the time{peak} ({}). \
         {would}. The model is left as it is",
        share(small.utilization),
        filling.provenance
    ))
}

/// What is not in the figures.
fn loading<'a>(report: &Report<'_>) -> Option<Line<'a>> {
    let is_unknown = report.config.workers == Some(0) && report.training.workload.sample.host_ms.is_none();
    is_unknown.then(|| {
        let key = report.config.key(Role::Workers).map_or("num_workers", |found| found.leaf.shown.as_str());
        let line = format!(
            "with `{key}` = 0 training waits for each batch to be prepared; how long that takes is not known and not in the \
             figures: --dim host_ms_per_sample=MS, or measure it"
        );
        (None, line)
    })
}

/// Settings that the file has no key for.
fn by_hand<'a>(report: &Report<'_>) -> Option<Line<'a>> {
    let changes = report.targets.iter().filter_map(|one| one.changes.as_ref()).flat_map(|changes| &changes.all);
    let mut keys: Vec<_> = changes.filter(|change| change.state == State::ByHand).map(|change| &change.key).collect();
    keys.dedup();
    let key = keys.first()?;
    let line = format!(
        "`{key}`: its program may know no such key; one that reads a Burn `Config` passes over keys without a field: give \
         the config the field, `pub {key}: usize`, and let --add write the key"
    );
    Some((None, line))
}

/// Switches that Burn does not have.
fn no_counterpart<'a>(report: &Report<'_>) -> Option<Line<'a>> {
    let keys: Vec<_> =
        report.config.found.of(Role::NoCounterpart).map(|found| format!("`{}`", found.leaf.shown)).collect();
    (!keys.is_empty())
        .then(|| (None, format!("{}: Burn has no counterpart, so that nothing is changed there", keys.join(", "))))
}

fn written(report: &Report<'_>) -> String {
    let mut by_what: Vec<(&str, Vec<&str>)> = Vec::new();
    for one in report.targets {
        let (what, name) = match &one.file {
            None => ("not written, because it does not fit", &one.target),
            Some(file) => {
                let what = match (report.fate(file), report.args.write.dry_run) {
                    (Fate::Unchanged, _) => "unchanged",
                    (Fate::Copied, true) => "nothing to change, and --dry-run writes no copy",
                    (Fate::Copied, false) => "copied unchanged",
                    (Fate::Changed, true) => "not written, as --dry-run asks",
                    (Fate::Changed, false) => "written",
                };
                (what, &file.name)
            }
        };
        match by_what.iter_mut().find(|(known, _)| *known == what) {
            Some((_, names)) => names.push(name),
            None => by_what.push((what, vec![name])),
        }
    }
    let line =
        |(what, names): &(&str, Vec<&str>)| format!("{}\n", wrapped(&format!("{what}: {}", names.join(", ")), 0));
    by_what.iter().map(line).collect::<Vec<_>>().concat()
}
