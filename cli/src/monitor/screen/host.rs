//! Lines of the host, the program and its steps.

use gpu_tuned_observe::monitor::Timeline;
use gpu_tuned_observe::monitor::amounts::{gib, short, size};
use gpu_tuned_observe::recording::{HostSample, Run, StepRecord};
use ratatui::text::{Line, Span};

use super::styles::STRONG;

/// Cells of the headings of lines.
const HEADING: usize = 13;

pub(super) fn host(timeline: &Timeline, end: f64, cells: usize) -> Vec<Line<'static>> {
    let mut parts = Vec::new();
    let Some(host) = at(timeline, end) else { return lines("Host", &parts, cells) };
    let cores = Some(timeline.start.cores).filter(|cores| *cores > 0).map(|cores| format!(" of {cores} cores"));
    parts.extend(host.cpu_percent.map(|percent| format!("{percent:.0} %{}", cores.unwrap_or_default())));
    let total = Some(timeline.start.memory_bytes).filter(|bytes| *bytes > 0);
    let total = total.map(|bytes| format!("/{:.1}", gib(bytes as f64))).unwrap_or_default();
    parts.extend(host.memory_used_bytes.map(|used| format!("{:.1}{total} GiB", gib(used as f64))));
    lines("Host", &parts, cells)
}

/// A heading with parts, on as many lines of this width as they take.
fn lines(heading: &'static str, parts: &[String], cells: usize) -> Vec<Line<'static>> {
    const DOT: &str = " · ";
    let mut texts = vec![String::new()];
    for part in parts {
        let last = texts.last_mut().expect("BUG: there is a first line");
        let is_full = HEADING + last.chars().count() + DOT.chars().count() + part.chars().count() > cells;
        match last.is_empty() {
            true => last.push_str(part),
            false if is_full => texts.push(part.clone()),
            false => *last = [last.as_str(), DOT, part].concat(),
        }
    }
    let heading = |index| if index == 0 { heading } else { "" };
    let line = |(index, text)| {
        Line::from(vec![Span::styled(format!("{:<HEADING$}", heading(index)), STRONG), Span::raw(text)])
    };
    texts.into_iter().enumerate().map(line).collect()
}

pub(super) fn program(timeline: &Timeline, end: f64, cells: usize) -> Vec<Line<'static>> {
    let mut parts: Vec<_> = timeline.run.iter().map(run).collect();
    if let Some(process) = at(timeline, end).and_then(|host| host.process.as_ref()) {
        parts.push(format!("pid {}", process.pid));
        parts.extend(process.cpu_percent.map(|percent| format!("{percent:.0} % of a core")));
        parts.extend(process.memory_bytes.map(size));
        parts.extend(process.busiest_thread_percent.map(|percent| format!("busiest thread {percent:.0} %")));
    }
    if parts.is_empty() { Vec::new() } else { lines("Program", &parts, cells) }
}

/// `digits 16×4 mixed_bf16`: the workload, its micro-batch and how many make a step, and its precision.
fn run(run: &Run) -> String {
    let settings = run
        .settings
        .as_ref()
        .map(|settings| format!(" {}×{} {}", settings.batch_size, settings.gradient_accumulation, settings.precision));
    format!("{}{}", run.workload, settings.unwrap_or_default())
}

/// Lines of the program's steps or values.
pub(super) fn steps(timeline: &Timeline, end: f64, cells: usize) -> Vec<Line<'static>> {
    let mut parts = Vec::new();
    if let Some(step) = timeline.steps.iter().rev().find(|step| step.at <= end) {
        parts.push(format!("{}", step.step));
        parts.extend(rate(timeline, end).map(|rate| format!("{} samples/s", short(rate))));
        parts.extend(step.loss.map(|loss| format!("loss {}", short(loss))));
        parts.extend(waiting(step).map(|percent| format!("{percent:.0} % waiting for data")));
    }
    parts.extend(timeline.values.values().map(|value| format!("{} {}", value.name, short(value.value))));
    let heading = if timeline.steps.is_empty() { "Values" } else { "Step" };
    if parts.is_empty() { Vec::new() } else { lines(heading, &parts, cells) }
}

/// Last sample of the host up to this time.
pub(super) fn at(timeline: &Timeline, end: f64) -> Option<&HostSample> {
    timeline.host.iter().rev().find(|host| host.at <= end)
}

/// Samples per second over the last steps.
fn rate(timeline: &Timeline, end: f64) -> Option<f64> {
    let last = timeline.steps.iter().rev().filter(|step| step.at <= end).take(20);
    let (samples, seconds) =
        last.fold((0, 0.0), |(samples, seconds), step| (samples + step.samples, seconds + step.seconds));
    (seconds > 0.0).then(|| samples as f64 / seconds)
}

fn waiting(step: &StepRecord) -> Option<f64> {
    let waited = step.waited_s? + step.upload_s.unwrap_or(0.0);
    (step.seconds > 0.0).then(|| (waited / step.seconds * 100.0).clamp(0.0, 100.0))
}
