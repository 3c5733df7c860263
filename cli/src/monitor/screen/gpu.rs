//! The selected GPU: figures and processes.

use gpu_tuned_observe::recording::{Gpu, GpuSample};
use ratatui::text::{Line, Span};

use super::bars::Bar;
use super::palette::{Palette, STRONG};
use crate::monitor::amounts::{gib, rate, reasons, size};
use crate::monitor::seen::Track;

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
    pub(super) fn of(track: &Track, end: f64) -> Self {
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
pub(super) fn lines(
    gpu: &Gpu,
    sample: &GpuSample,
    traffic: Traffic,
    cells: usize,
    palette: Palette,
) -> Vec<Line<'static>> {
    let (left, right) = (left(gpu, sample, palette), right(gpu, sample, traffic, palette));
    if cells < 70 {
        return left.iter().chain(&right).map(|bar| bar.line(cells, FIGURES, palette)).collect();
    }
    let half = (cells - 2) / 2;
    let rows = left.len().max(right.len());
    let row = |row: usize| {
        let blank = || Line::from(" ".repeat(half));
        let mut line = left.get(row).map_or_else(blank, |bar| bar.line(half, FIGURES, palette));
        line.push_span(Span::raw("  "));
        line.extend(right.get(row).map(|bar| bar.line(cells - 2 - half, FIGURES, palette)).unwrap_or_default());
        line
    };
    let mut lines: Vec<_> = (0..rows).map(row).collect();
    if !sample.throttle.is_empty() {
        lines.push(Line::from(vec![
            Span::raw(format!("{:<13}", "Throttled by")),
            Span::styled(reasons(sample), palette.bad()),
        ]));
    }
    lines
}

fn left(gpu: &Gpu, sample: &GpuSample, palette: Palette) -> Vec<Bar> {
    let used = sample.memory_used_bytes.map(|bytes| bytes as f64);
    let total = gpu.memory_total_bytes.map(|bytes| bytes as f64);
    let memory = used.map_or_else(none, |used| of(gib(used), total.map(gib), "GiB", 1));
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1e3;
    let (power, limit) = (sample.power_mw.map(watts), sample.power_limit_mw.map(watts));
    let clock = sample.sm_clock_mhz.map(f64::from);
    let top = gpu.max_sm_clock_mhz.map(f64::from);
    let is_held = !sample.throttle.is_empty();
    let bar = |name, share: Option<f64>, figures, style| Bar { name, share, figures, style };
    vec![
        percent("Utilisation", sample.utilisation_percent, palette.work()),
        bar("Memory", share(used, total), memory, palette.memory()),
        bar("Power", share(power, limit), power.map_or_else(none, |power| of(power, limit, "W", 0)), palette.power()),
        bar(
            "SM clock",
            share(clock, top),
            clock.map_or_else(none, |clock| of(clock, top, "MHz", 0)),
            if is_held { palette.bad() } else { palette.clock() },
        ),
        bar(
            "Temperature",
            share(sample.temperature_c.map(f64::from), Some(100.0)),
            sample.temperature_c.map_or_else(none, |celsius| format!("{celsius} °C")),
            if sample.temperature_c >= Some(83) { palette.bad() } else { palette.heat() },
        ),
    ]
}

fn right(gpu: &Gpu, sample: &GpuSample, traffic: Traffic, palette: Palette) -> Vec<Bar> {
    let has_counters = sample.sm_activity_percent.is_some() || sample.dram_activity_percent.is_some();
    let mut bars = if has_counters {
        vec![
            percent("SM activity", sample.sm_activity_percent, palette.work()),
            percent("SM occupancy", sample.sm_occupancy_percent, palette.work()),
            percent("Tensor cores", sample.tensor_activity_percent, palette.work()),
            percent("Bandwidth", sample.dram_activity_percent, palette.memory()),
        ]
    } else {
        vec![percent("Mem activity", sample.memory_activity_percent, palette.memory())]
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
pub(super) fn processes(sample: &GpuSample, rows: usize, cells: usize, palette: Palette) -> Vec<Line<'static>> {
    let Some(processes) = &sample.processes else {
        return vec![Line::styled("the driver does not report processes", palette.faint())];
    };
    if processes.is_empty() {
        return vec![Line::styled("no compute process", palette.faint())];
    }
    let mut processes: Vec<_> = processes.iter().collect();
    processes.sort_by_key(|process| (std::cmp::Reverse(process.memory_bytes), process.pid));
    let mut lines = vec![Line::styled(format!("{:>8} {:>10}  process", "pid", "memory"), STRONG)];
    let shown = if processes.len() < rows { processes.len() } else { rows.saturating_sub(2) };
    for process in &processes[..shown.min(processes.len())] {
        let memory = process.memory_bytes.map_or_else(none, size);
        let name = process.name.as_deref().unwrap_or("?");
        let name: String = name.chars().take(cells.saturating_sub(21)).collect();
        lines.push(Line::from(format!("{:>8} {memory:>10}  {name}", process.pid)));
    }
    if shown < processes.len() {
        lines.push(Line::styled(format!("{:>8} more", processes.len() - shown), palette.faint()));
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

fn of(part: f64, all: Option<f64>, unit: &str, digits: usize) -> String {
    let all = all.map(|all| format!("/{all:.digits$}")).unwrap_or_default();
    format!("{part:.digits$}{all} {unit}")
}

fn none() -> String {
    "-".to_owned()
}
