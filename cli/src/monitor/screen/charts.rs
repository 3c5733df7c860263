//! Graphs of figures, with the tops of their scales.

use std::collections::VecDeque;

use gpu_tuned_observe::recording::GpuSample;
use ratatui::style::Style;

use super::Screen;
use super::graphs::Graph;
use crate::monitor::amounts::{gib, rate, short};
use crate::monitor::seen::{Seen, Track};

impl Screen {
    pub(super) fn graphs(&self, seen: &Seen, track: Option<&Track>, end: f64) -> Vec<Graph> {
        let span = Span { from: end - MOST_CELLS * self.seconds_per_cell, to: end };
        let palette = self.palette;
        let mut graphs: Vec<Graph> = track.map(|track| self.of_gpu(track, span)).unwrap_or_default();
        let rates = span.points(&seen.steps, |step| step.at, |step| Some(step.samples as f64 / step.seconds));
        let losses = span.points(&seen.steps, |step| step.at, |step| step.loss);
        let own = [
            graph("Samples/s", rates, None, short, palette.clock()),
            graph("Loss", losses, None, short, palette.heat()),
        ];
        let place = graphs.len().min(2);
        graphs.splice(place..place, own.into_iter().flatten());
        let busy = span.points(&seen.host, |host| host.at, |host| host.cpu_percent);
        let memory = span.points(&seen.host, |host| host.at, |host| host.memory_used_bytes.map(|bytes| bytes as f64));
        graphs.extend(graph("Processors", busy, Some(100.0), percent, palette.work()));
        graphs.extend(graph("Host memory", memory, Some(seen.start.memory_bytes as f64), gibs, palette.memory()));
        for graph in &mut graphs {
            graph.close(end);
        }
        graphs
    }

    fn of_gpu(&self, track: &Track, span: Span) -> Vec<Graph> {
        let of = |figure: fn(&GpuSample) -> Option<f64>| span.points(&track.samples, |sample| sample.at, figure);
        let watts = |milliwatts: u32| f64::from(milliwatts) / 1e3;
        let limit = track.samples.iter().rev().find_map(|sample| sample.power_limit_mw).map(watts);
        let total = track.gpu.memory_total_bytes.map(|bytes| bytes as f64);
        let top_clock = track.gpu.max_sm_clock_mhz.map(f64::from);
        let (palette, whole) = (self.palette, Some(100.0));
        let memory = of(|gpu| gpu.memory_used_bytes.map(|bytes| bytes as f64));
        let power = of(|gpu| gpu.power_mw.map(|milliwatts| f64::from(milliwatts) / 1e3));
        let clock = of(|gpu| gpu.sm_clock_mhz.map(f64::from));
        let celsius = of(|gpu| gpu.temperature_c.map(f64::from));
        let traffic = of(|gpu| gpu.pcie_to_gpu_bytes_per_s.map(|bytes| bytes as f64));
        let graphs = [
            graph("Utilisation", of(|gpu| gpu.utilisation_percent), whole, percent, palette.work()),
            graph("SM activity", of(|gpu| gpu.sm_activity_percent), whole, percent, palette.work()),
            graph("Memory", memory, total, gibs, palette.memory()),
            graph("Power", power, limit, |watts| format!("{watts:.0} W"), palette.power()),
            graph("SM clock", clock, top_clock, |clock| format!("{clock:.0} MHz"), palette.clock()),
            graph("Temperature", celsius, whole, |celsius| format!("{celsius:.0} °C"), palette.heat()),
            graph("PCIe to the GPU", traffic, None, rate, palette.clock()),
        ];
        graphs.into_iter().flatten().collect()
    }
}

const MOST_CELLS: f64 = 400.0;

#[derive(Clone, Copy)]
struct Span {
    from: f64,
    to: f64,
}

impl Span {
    /// Times and values, the last first.
    fn points<T>(self, kept: &VecDeque<T>, at: fn(&T) -> f64, of: fn(&T) -> Option<f64>) -> Vec<(f64, f64)> {
        let shown = kept.iter().rev().skip_while(|item| at(item) > self.to).take_while(|item| at(item) >= self.from);
        shown.filter_map(|item| Some((at(item), of(item).filter(|value| value.is_finite())?))).collect()
    }
}

fn percent(figure: f64) -> String {
    format!("{figure:.0} %")
}

fn gibs(bytes: f64) -> String {
    format!("{:.1} GiB", gib(bytes))
}

/// A graph with at least one point; without a top, as high as its highest value.
fn graph(
    title: &'static str,
    points: Vec<(f64, f64)>,
    top: Option<f64>,
    said: fn(f64) -> String,
    style: Style,
) -> Option<Graph> {
    let highest = points.iter().map(|(_, value)| *value).fold(f64::MIN, f64::max);
    let top = top.unwrap_or(highest).max(f64::MIN_POSITIVE);
    (!points.is_empty()).then(|| Graph { title, points, top, said, last: String::new(), style })
}
