//! Figures of the GPUs and the host.

use gpu_tuned_core::printable::for_file;
use gpu_tuned_observe::monitor::amounts::{gib, part_of, rate, reasons, short, size, watts};
use gpu_tuned_observe::monitor::{GpuTimeline, Timeline};
use gpu_tuned_observe::recording::{Gpu, GpuSample, HostSample, Run, StepRecord};
use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::{BAD, CHOSEN, CLOCK, FAINT, HEAT, MEMORY, POWER, STRONG, WORK};

const FIGURES: usize = 15;

/// Last known traffic of the PCIe link, which is not sampled every time.
#[derive(Clone, Copy, Default)]
pub(super) struct Traffic {
    to: Option<u64>,
    from: Option<u64>,
}

/// Maximum age of traffic, in seconds.
const TRAFFIC_AGE: f64 = 20.0;

impl Traffic {
    pub(super) fn of(track: &GpuTimeline, end: f64) -> Self {
        let recent = track.samples.iter().rev().filter(|sample| sample.at <= end);
        let mut recent = recent.take_while(|sample| end - sample.at <= TRAFFIC_AGE);
        let told = recent.find(|sample| sample.pcie_to_gpu_bytes_per_s.is_some());
        told.map_or_else(Self::default, |sample| Self {
            to: sample.pcie_to_gpu_bytes_per_s,
            from: sample.pcie_from_gpu_bytes_per_s,
        })
    }
}

/// Lines of figures, in two columns where there is room.
pub(super) fn gpu_lines(gpu: &Gpu, sample: &GpuSample, traffic: Traffic, cells: usize) -> Vec<Line<'static>> {
    let (left, right) = (left(gpu, sample), right(gpu, sample, traffic));
    if cells < 70 {
        return left.iter().chain(&right).map(|bar| bar.line(cells, FIGURES)).collect();
    }
    let half = (cells - 2) / 2;
    let rows = left.len().max(right.len());
    let row = |row: usize| {
        let blank = || Line::from(" ".repeat(half));
        let mut line = left.get(row).map_or_else(blank, |bar| bar.line(half, FIGURES));
        line.push_span(Span::raw("  "));
        line.extend(right.get(row).map(|bar| bar.line(cells - 2 - half, FIGURES)).unwrap_or_default());
        line
    };
    let mut lines: Vec<_> = (0..rows).map(row).collect();
    if !sample.throttle.is_empty() {
        lines.push(Line::from(vec![Span::raw(format!("{:<13}", "Throttled by")), Span::styled(reasons(sample), BAD)]));
    }
    lines
}

fn left(gpu: &Gpu, sample: &GpuSample) -> Vec<Bar> {
    let used = sample.memory_used_bytes.map(|bytes| bytes as f64);
    let total = gpu.memory_total_bytes.map(|bytes| bytes as f64);
    let memory = used.map_or_else(none, |used| part_of(gib(used), total.map(gib), "GiB", 1));
    let (power, limit) = (sample.power_mw.map(watts), sample.power_limit_mw.map(watts));
    let clock = sample.sm_clock_mhz.map(f64::from);
    let top = gpu.max_sm_clock_mhz.map(f64::from);
    let is_held = !sample.throttle.is_empty();
    let bar = |name, share: Option<f64>, figures, style| Bar { name, share, figures, style };
    vec![
        percent("Utilisation", sample.utilisation_percent, WORK),
        bar(if gpu.unified_memory { "Host memory" } else { "Memory" }, share(used, total), memory, MEMORY),
        bar("Power", share(power, limit), power.map_or_else(none, |power| part_of(power, limit, "W", 0)), POWER),
        bar(
            "SM clock",
            share(clock, top),
            clock.map_or_else(none, |clock| part_of(clock, top, "MHz", 0)),
            if is_held { BAD } else { CLOCK },
        ),
        bar(
            "Temperature",
            share(sample.temperature_c.map(f64::from), Some(100.0)),
            sample.temperature_c.map_or_else(none, |celsius| format!("{celsius} °C")),
            if sample.temperature_c >= Some(83) { BAD } else { HEAT },
        ),
    ]
}

fn right(gpu: &Gpu, sample: &GpuSample, traffic: Traffic) -> Vec<Bar> {
    let has_counters = sample.sm_activity_percent.is_some() || sample.dram_activity_percent.is_some();
    let mut bars = if has_counters {
        vec![
            percent("SM activity", sample.sm_activity_percent, WORK),
            percent("SM occupancy", sample.sm_occupancy_percent, WORK),
            percent("Tensor cores", sample.tensor_activity_percent, WORK),
            percent("Bandwidth", sample.dram_activity_percent, MEMORY),
        ]
    } else {
        vec![percent("Mem activity", sample.memory_activity_percent, MEMORY)]
    };
    let plain = |name, figures| Bar { name, share: None, figures, style: STRONG };
    let told = |bytes: Option<u64>| bytes.map_or_else(none, |bytes| rate(bytes as f64));
    if has_counters {
        let to = traffic.to.map(|bytes| format!("{} in, ", rate(bytes as f64))).unwrap_or_default();
        bars.push(plain("PCIe", format!("{to}{}", link(gpu, sample))));
    } else {
        bars.push(plain("PCIe", link(gpu, sample)));
        bars.push(plain("  to the GPU", told(traffic.to)));
        bars.push(plain("  from it", told(traffic.from)));
        bars.push(plain("Memory clock", sample.memory_clock_mhz.map_or_else(none, |clock| format!("{clock} MHz"))));
    }
    bars
}

/// `gen 4 x16`, with the maximum where that is more.
fn link(gpu: &Gpu, sample: &GpuSample) -> String {
    let told = |generation: Option<u32>, lanes: Option<u32>| {
        let generation = generation.map(|generation| format!("gen {generation}"));
        let lanes = lanes.map(|lanes| format!("x{lanes}"));
        generation.into_iter().chain(lanes).collect::<Vec<_>>().join(" ")
    };
    let now = told(sample.pcie_generation, sample.pcie_lanes);
    let most = told(gpu.max_pcie_generation, gpu.max_pcie_lanes);
    match (now.is_empty(), now == most || most.is_empty()) {
        (true, _) => none(),
        (_, true) => now,
        _ => format!("{now} of {most}"),
    }
}

/// Processes by memory, largest first, within `rows` lines.
pub(super) fn processes(sample: &GpuSample, rows: usize, cells: usize) -> Vec<Line<'static>> {
    let Some(processes) = &sample.processes else {
        return vec![Line::styled("the driver does not report processes", FAINT)];
    };
    if processes.is_empty() {
        return vec![Line::styled("no compute process", FAINT)];
    }
    let mut processes: Vec<_> = processes.iter().collect();
    processes.sort_by_key(|process| (std::cmp::Reverse(process.memory_bytes), process.pid));
    let line = |pid: &str, user: &str, memory: &str, cpu: &str, command: &str| {
        let user: String = user.chars().take(10).collect();
        let line = format!("{pid:>8} {user:<10} {memory:>10} {cpu:>6}  {command}");
        line.chars().take(cells).collect::<String>()
    };
    let mut lines = vec![Line::styled(line("pid", "user", "memory", "CPU", "command"), STRONG)];
    let shown = if processes.len() < rows { processes.len() } else { rows.saturating_sub(2) };
    for process in &processes[..shown.min(processes.len())] {
        let memory = process.memory_bytes.map_or_else(none, size);
        let command = process.command.as_ref().or(process.name.as_ref()).map_or("?", String::as_str);
        let cpu = process.cpu_percent.map_or_else(none, |percent| format!("{percent:.0} %"));
        let user = process.user.clone().unwrap_or_else(none);
        // A program chooses its command line.
        let command = command.replace(['\n', '\t'], " ");
        lines.push(Line::from(line(&process.pid.to_string(), &user, &memory, &cpu, &for_file(&command))));
    }
    if shown < processes.len() {
        lines.push(Line::styled(format!("{:>8} more", processes.len() - shown), FAINT));
    }
    lines
}

fn percent(name: &'static str, percent: Option<f64>, style: ratatui::style::Style) -> Bar {
    let figures = percent.map_or_else(none, |percent| format!("{percent:.0} %"));
    Bar { name, share: Some(percent.unwrap_or_default() / 100.0), figures, style }
}

fn share(part: Option<f64>, all: Option<f64>) -> Option<f64> {
    Some(part? / all.filter(|all| *all > 0.0)?)
}

fn none() -> String {
    "-".to_owned()
}

/// Rows of the list, always with the selected GPU.
pub(super) fn gpu_list(
    tracks: &[GpuTimeline],
    chosen: usize,
    end: f64,
    rows: usize,
    cells: usize,
) -> Vec<Line<'static>> {
    let first = chosen.saturating_sub(rows.saturating_sub(1)).min(tracks.len().saturating_sub(rows));
    let shown = tracks.iter().enumerate().skip(first).take(rows);
    shown.map(|(place, track)| row(track, place == chosen, end, cells)).collect()
}

fn row(track: &GpuTimeline, is_chosen: bool, end: f64, cells: usize) -> Line<'static> {
    let name = track.gpu.name.as_deref().unwrap_or("?").trim_start_matches("NVIDIA ");
    let number = track.number();
    let head = format!("{}{:<8}{:<16.16}", if is_chosen { "▸" } else { " " }, number.trim_start_matches("GPU "), name);
    let head = Span::styled(head, if is_chosen { CHOSEN } else { STRONG });
    let Some(sample) = track.at(end) else {
        return Line::from(vec![head, Span::styled(" no sample yet", FAINT)]);
    };
    if let Some(trouble) = &sample.trouble {
        let trouble: String = trouble.chars().take(cells.saturating_sub(26)).collect();
        return Line::from(vec![head, Span::raw(" "), Span::styled(trouble, BAD)]);
    }
    let length = (cells.saturating_sub(68) / 2).clamp(4, 24);
    let mut spans = vec![head, Span::raw(" ")];
    let busy = sample.sm_activity_percent.filter(|_| track.gpu.mig_slot.is_some()).or(sample.utilisation_percent);
    let (filled, left) = bar(length, busy.unwrap_or_default() / 100.0);
    spans.extend([Span::styled(filled, WORK), Span::styled(left, FAINT)]);
    spans.push(Span::raw(busy.map_or_else(|| "    -  ".to_owned(), |percent| format!("{percent:>4.0} % "))));
    let memory = sample.memory_used_bytes.zip(track.gpu.memory_total_bytes);
    let (filled, left) = bar(length, memory.map_or(0.0, |(used, total)| used as f64 / total.max(1) as f64));
    spans.extend([Span::styled(filled, MEMORY), Span::styled(left, FAINT)]);
    let figures = memory.map_or_else(|| "-".to_owned(), |(used, _)| format!("{:.1} GiB", gib(used as f64)));
    spans.push(Span::raw(format!("{figures:>10}")));
    let power = sample.power_mw.map(|milliwatts| format!("{:.0} W", f64::from(milliwatts) / 1e3));
    let celsius = sample.temperature_c.map(|celsius| format!("{celsius} °C"));
    spans.push(Span::raw(format!("{:>7}{:>7} ", power.unwrap_or_default(), celsius.unwrap_or_default())));
    spans.push(Span::styled(reasons(sample), BAD));
    Line::from(spans)
}

/// Cells of the headings of lines.
const HEADING: usize = 13;

pub(super) fn host(timeline: &Timeline, end: f64, cells: usize) -> Vec<Line<'static>> {
    let mut parts = Vec::new();
    let Some(host) = host_at(timeline, end) else { return lines("Host", &parts, cells) };
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
    if let Some(process) = host_at(timeline, end).and_then(|host| host.process.as_ref()) {
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
        parts.extend(steps_rate(timeline, end).map(|rate| format!("{} samples/s", short(rate))));
        parts.extend(step.loss.map(|loss| format!("loss {}", short(loss))));
        parts.extend(waiting(step).map(|percent| format!("{percent:.0} % waiting for data")));
    }
    parts.extend(timeline.values.values().map(|value| format!("{} {}", value.name, short(value.value))));
    let heading = if timeline.steps.is_empty() { "Values" } else { "Step" };
    if parts.is_empty() { Vec::new() } else { lines(heading, &parts, cells) }
}

/// Last sample of the host up to this time.
pub(super) fn host_at(timeline: &Timeline, end: f64) -> Option<&HostSample> {
    timeline.host.iter().rev().find(|host| host.at <= end)
}

/// Samples per second over the last steps.
fn steps_rate(timeline: &Timeline, end: f64) -> Option<f64> {
    let last = timeline.steps.iter().rev().filter(|step| step.at <= end).take(20);
    let (samples, seconds) =
        last.fold((0, 0.0), |(samples, seconds), step| (samples + step.samples, seconds + step.seconds));
    (seconds > 0.0).then(|| samples as f64 / seconds)
}

fn waiting(step: &StepRecord) -> Option<f64> {
    let waited = step.waited_s? + step.upload_s.unwrap_or(0.0);
    (step.seconds > 0.0).then(|| (waited / step.seconds * 100.0).clamp(0.0, 100.0))
}

const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A bar of a number of cells.
pub(super) fn bar(cells: usize, share: f64) -> (String, String) {
    let eighths = (share.clamp(0.0, 1.0) * (cells * 8) as f64).round() as usize;
    let (whole, part) = (eighths / 8, eighths % 8);
    let mut filled = "█".repeat(whole);
    filled.extend(part.checked_sub(1).map(|part| EIGHTHS[part]));
    let left = cells - filled.chars().count();
    (filled, "·".repeat(left))
}

/// A line: name, bar of a share, and figures.
pub(super) struct Bar {
    pub name: &'static str,
    pub share: Option<f64>,
    pub figures: String,
    pub style: Style,
}

impl Bar {
    /// The line in a number of cells, with `figures` of them behind the bar.
    pub(super) fn line(&self, cells: usize, figures: usize) -> Line<'static> {
        let name = format!("{:<13}", self.name);
        let length = cells.saturating_sub(name.len() + figures + 2);
        let mut spans = vec![Span::raw(name)];
        if let Some(share) = self.share.filter(|_| length >= 4) {
            let (filled, left) = bar(length, share);
            spans.extend([Span::styled(filled, self.style), Span::styled(left, FAINT), Span::raw(" ")]);
            spans.push(Span::raw(format!("{:>figures$}", self.figures)));
        } else {
            let room = if length >= 4 { length + 1 + figures } else { figures };
            spans.push(Span::raw(format!("{:>room$}", self.figures)));
        }
        Line::from(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn bars_are_as_long_as_their_share() {
        for (share, filled) in
            [(0.0, ""), (1.0, "████"), (0.5, "██"), (0.28, "█▏"), (0.01, ""), (7.0, "████"), (-1.0, "")]
        {
            let (bar, left) = bar(4, share);
            assert_eq!((bar.as_str(), bar.chars().count() + left.chars().count()), (filled, 4), "{share}");
        }
    }
}
