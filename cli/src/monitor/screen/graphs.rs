//! Figures over time: graphs with the tops of their scales.

use std::collections::VecDeque;

use gpu_tuned_observe::monitor::amounts::{gib, rate, short, watts};
use gpu_tuned_observe::monitor::{GpuTimeline, Timeline};
use gpu_tuned_observe::recording::GpuSample;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Sparkline;

use super::{CLOCK, FAINT, HEAT, MEMORY, POWER, STRONG, Screen, WORK};

/// A figure over time, with the top of its scale.
pub(super) struct Graph {
    pub title: &'static str,
    /// Times and values, the last first.
    pub points: Vec<(f64, f64)>,
    pub top: f64,
    /// Format of a value.
    pub said: fn(f64) -> String,
    pub style: Style,
}

const SCALE: f64 = 1000.0;

impl Graph {
    /// Draws the title with the scale above columns, each the mean of its time.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect, end: f64, seconds_per_cell: f64) {
        if area.height < 2 || area.width < 8 {
            return;
        }
        let last = self.points.first().map(|(_, value)| (self.said)(*value)).unwrap_or_default();
        let title = Line::from(vec![Span::styled(self.title, STRONG), Span::raw(" "), Span::styled(last, self.style)]);
        let scale = Line::styled(format!("0 to {}", (self.said)(self.top)), FAINT).right_aligned();
        let head = Rect { height: 1, ..area };
        if title.width() + 2 + scale.width() <= usize::from(area.width) {
            frame.render_widget(scale, head);
        }
        frame.render_widget(title, head);
        let columns = self.columns(area.width.into(), end, seconds_per_cell);
        let plot = Rect { y: area.y + 1, height: area.height - 1, ..area };
        let line = Sparkline::default().data(columns).max(SCALE as u64).style(self.style).absent_value_symbol(" ");
        frame.render_widget(line, plot);
    }

    /// Values of columns, the newest to the right; `None` without samples.
    fn columns(&self, count: usize, end: f64, seconds_per_cell: f64) -> Vec<Option<u64>> {
        let mut sums = vec![(0.0, 0u32); count];
        for (at, value) in &self.points {
            let age = ((end - at) / seconds_per_cell).floor();
            if age >= 0.0 && age < count as f64 {
                let (sum, seen) = &mut sums[count - 1 - age as usize];
                *sum += value;
                *seen += 1;
            }
        }
        let scaled = |(sum, seen): (f64, u32)| {
            let share = sum / f64::from(seen) / self.top;
            (seen > 0).then(|| (share.clamp(0.0, 1.0) * SCALE).round() as u64)
        };
        let mut columns: Vec<_> = sums.into_iter().map(scaled).collect();
        bridge(&mut columns);
        columns
    }
}

/// Fills single empty columns: samples and columns have different intervals.
fn bridge(columns: &mut [Option<u64>]) {
    for place in 1..columns.len().saturating_sub(1) {
        if columns[place].is_none() && columns[place + 1].is_some() {
            columns[place] = columns[place - 1];
        }
    }
}

impl Screen {
    pub(super) fn graphs(&self, timeline: &Timeline, track: Option<&GpuTimeline>, end: f64) -> Vec<Graph> {
        let span = Period { from: end - MOST_CELLS * self.seconds_per_cell, to: end };
        let mut graphs: Vec<Graph> = track.map(|track| of_gpu(track, span)).unwrap_or_default();
        let rates = span.points(&timeline.steps, |step| step.at, |step| Some(step.samples as f64 / step.seconds));
        let losses = span.points(&timeline.steps, |step| step.at, |step| step.loss);
        let own = [graph("Samples/s", rates, None, short, CLOCK), graph("Loss", losses, None, short, HEAT)];
        let place = graphs.len().min(2);
        graphs.splice(place..place, own.into_iter().flatten());
        let busy = span.points(&timeline.host, |host| host.at, |host| host.cpu_percent);
        let memory =
            span.points(&timeline.host, |host| host.at, |host| host.memory_used_bytes.map(|bytes| bytes as f64));
        graphs.extend(graph("Processors", busy, Some(100.0), percent, WORK));
        graphs.extend(graph("Host memory", memory, Some(timeline.start.memory_bytes as f64), gibs, MEMORY));
        graphs
    }
}

fn of_gpu(track: &GpuTimeline, span: Period) -> Vec<Graph> {
    let of = |figure: fn(&GpuSample) -> Option<f64>| span.points(&track.samples, |sample| sample.at, figure);
    let limit = track.samples.iter().rev().find_map(|sample| sample.power_limit_mw).map(watts);
    let total = track.gpu.memory_total_bytes.map(|bytes| bytes as f64);
    let top_clock = track.gpu.max_sm_clock_mhz.map(f64::from);
    let whole = Some(100.0);
    let memory = of(|gpu| gpu.memory_used_bytes.map(|bytes| bytes as f64));
    let power = of(|gpu| gpu.power_mw.map(watts));
    let clock = of(|gpu| gpu.sm_clock_mhz.map(f64::from));
    let celsius = of(|gpu| gpu.temperature_c.map(f64::from));
    let traffic = of(|gpu| gpu.pcie_to_gpu_bytes_per_s.map(|bytes| bytes as f64));
    let graphs = [
        graph("Utilisation", of(|gpu| gpu.utilisation_percent), whole, percent, WORK),
        graph("SM activity", of(|gpu| gpu.sm_activity_percent), whole, percent, WORK),
        graph("Memory", memory, total, gibs, MEMORY),
        graph("Power", power, limit, |watts| format!("{watts:.0} W"), POWER),
        graph("SM clock", clock, top_clock, |clock| format!("{clock:.0} MHz"), CLOCK),
        graph("Temperature", celsius, whole, |celsius| format!("{celsius:.0} °C"), HEAT),
        graph("PCIe to the GPU", traffic, None, rate, CLOCK),
    ];
    graphs.into_iter().flatten().collect()
}

const MOST_CELLS: f64 = 400.0;

#[derive(Clone, Copy)]
struct Period {
    from: f64,
    to: f64,
}

impl Period {
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
    (!points.is_empty()).then_some(Graph { title, points, top, said, style })
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;

    use super::Graph;

    fn columns(points: &[(f64, f64)], count: usize, end: f64, seconds: f64) -> Vec<Option<u64>> {
        Graph { title: "", points: points.to_vec(), top: 100.0, said: |_| String::new(), style: Style::new() }
            .columns(count, end, seconds)
    }

    #[test]
    fn each_column_is_the_mean_of_its_time() {
        let points = [(0.0, 10.0), (1.0, 20.0), (2.0, 40.0), (3.0, 60.0)];
        assert_eq!(columns(&points, 2, 3.0, 2.0), [Some(150), Some(500)]);
        assert_eq!(columns(&points, 6, 3.0, 1.0), [None, None, Some(100), Some(200), Some(400), Some(600)]);
    }

    #[test]
    fn a_gap_is_shown_and_a_single_missing_column_is_none() {
        let points = [(0.0, 50.0), (2.0, 50.0), (6.0, 120.0)];
        let seen = columns(&points, 7, 6.0, 1.0);
        assert_eq!(seen, [Some(500), Some(500), Some(500), None, None, None, Some(1000)]);
    }
}
