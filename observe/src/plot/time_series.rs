//! Figures over time.

#[cfg(test)]
mod tests;

use std::fmt::{self, Write as _};

use super::{Area, Entry, Header, PlotSize, draw_grid, drawn, escaped, open, step, tick};

/// Height of the area inside of the axes, by its width.
const ASPECT: f64 = 0.27;
const LEFT: f64 = 56.0;
const BELOW: f64 = 42.0;
/// Columns of the plot. Each shows minimum and maximum of a line.
const COLUMNS: usize = 240;
/// Magnitude that no figure of a run reaches.
const LARGEST: f64 = 1e100;
/// Colors for lines.
const COLORS: usize = 4;

/// A plot of figures of one unit over time.
#[derive(Clone, Debug, Default)]
pub struct TimeSeriesPlot {
    /// Title with the unit.
    pub title: String,
    /// Lines; there are four colors.
    pub lines: Vec<TimeSeries>,
    /// Figure at the top; by default, slightly above the highest point.
    pub max: Option<f64>,
    /// A figure that is marked from left to right, and its label.
    pub limit: Option<(f64, String)>,
    /// Seconds at the left and the right, for plots that share an axis; by default, those of the points.
    pub between: Option<(f64, f64)>,
}

/// A figure over time.
#[derive(Clone, Debug, Default)]
pub struct TimeSeries {
    /// Name in the legend, which plots of several lines have.
    pub name: String,
    /// Seconds and figures, ascending in time. Figures that are not finite are left out.
    pub points: Vec<(f64, f64)>,
}

/// Scale from figures to positions on the page.
struct Scale {
    area: Area,
    from: f64,
    to: f64,
    max: f64,
    step: f64,
}

impl TimeSeriesPlot {
    /// Draws the plot as an SVG file; `None` without points.
    pub fn svg(&self) -> Option<String> {
        let mut header = String::new();
        let head = Header { title: &self.title, note: "", legend: self.legend() };
        let width = PlotSize::Narrow.width();
        let top = head.draw(&mut header, width).expect("BUG: memory can be written to") + 8.0;
        let (left, right) = (LEFT, width - 16.0);
        let area = Area { left, right, top, bottom: (top + (right - left) * ASPECT).round() };
        let scale = Scale::new(self, area)?;
        Some(drawn(|text| self.write(text, &header, &scale)))
    }

    fn write(&self, text: &mut String, header: &str, scale: &Scale) -> fmt::Result {
        let Area { left, right, bottom, .. } = scale.area;
        open(text, [PlotSize::Narrow.width(), bottom + BELOW], &format!("{} over time", self.title))?;
        text.push_str(header);
        scale.axes(text)?;
        if let Some((figure, label)) = &self.limit {
            let y = scale.y(*figure);
            writeln!(text, "<path class=\"limit\" d=\"M{left} {y:.1}H{right}\"/>")?;
            let label = escaped(label);
            writeln!(text, "<text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", y - 4.0)?;
        }
        for (index, line) in self.lines.iter().enumerate() {
            line.draw(text, scale, index % COLORS)?;
        }
        Ok(())
    }

    /// Names of several lines.
    fn legend(&self) -> Vec<Entry> {
        let of_line = |(index, line): (usize, &TimeSeries)| Entry {
            symbol: format!("<path class=\"c{} line\" d=\"M0 0h28\"/>", index % COLORS),
            name: line.name.clone(),
        };
        let lines = self.lines.iter().enumerate().filter(|_| self.lines.len() > 1);
        lines.map(of_line).collect()
    }
}

impl TimeSeries {
    fn finite(&self) -> impl Iterator<Item = (f64, f64)> {
        // Larger figures have no round grid step.
        self.points.iter().copied().filter(|(at, figure)| at.abs() < LARGEST && figure.abs() < LARGEST)
    }

    fn draw(&self, text: &mut String, scale: &Scale, color: usize) -> fmt::Result {
        let points = self.thinned(scale);
        let position = |(at, figure): &(f64, f64)| format!("{:.1} {:.1}", scale.x(*at), scale.y(*figure));
        match points.as_slice() {
            [] => Ok(()),
            [(at, figure)] => {
                let (x, y) = (scale.x(*at), scale.y(*figure));
                writeln!(text, "<circle class=\"c{color} line\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>")
            }
            several => {
                let path: Vec<_> = several.iter().map(position).collect();
                writeln!(text, "<path class=\"c{color} line\" d=\"M{}\"/>", path.join("L"))
            }
        }
    }

    /// Keeps minimum and maximum of each column, in their order, so that peaks stay.
    fn thinned(&self, scale: &Scale) -> Vec<(f64, f64)> {
        let points: Vec<(f64, f64)> = self.finite().collect();
        if points.len() <= 2 * COLUMNS {
            return points;
        }
        let column = |at: f64| ((at - scale.from) / (scale.to - scale.from) * COLUMNS as f64) as usize;
        let mut kept: Vec<(f64, f64)> = Vec::with_capacity(2 * COLUMNS);
        for group in points.chunk_by(|a, b| column(a.0) == column(b.0)) {
            let by_figure = |a: &&(f64, f64), b: &&(f64, f64)| a.1.total_cmp(&b.1);
            let ends = group.iter().min_by(by_figure).zip(group.iter().max_by(by_figure));
            let (min, max) = ends.map(|(min, max)| (*min, *max)).expect("BUG: a group is not empty");
            kept.extend(if min.0 <= max.0 { [min, max] } else { [max, min] });
        }
        kept
    }
}

impl Scale {
    fn new(plot: &TimeSeriesPlot, area: Area) -> Option<Self> {
        let points = || plot.lines.iter().flat_map(TimeSeries::finite);
        let first = points().map(|(at, _)| at).reduce(f64::min)?;
        let last = points().map(|(at, _)| at).fold(first, f64::max);
        let (from, to) = plot.between.unwrap_or((first, last));
        let highest = points().map(|(_, figure)| figure).chain(plot.limit.iter().map(|(figure, _)| *figure));
        let max = plot.max.unwrap_or_else(|| highest.fold(0.0, f64::max) * 1.06);
        let max = if max > 0.0 { max } else { 1.0 };
        // Half of the grid lines of a taller plot.
        let step = 2.0 * step(max);
        let (max, step) = match plot.max {
            Some(_) => (max, max / 2.0),
            None => ((2.0 * max / step).ceil() * step / 2.0, step),
        };
        Some(Self { area, from, to: to.max(from + 1e-3), max, step })
    }

    fn x(&self, at: f64) -> f64 {
        let Area { left, right, .. } = self.area;
        left + ((at - self.from) / (self.to - self.from)).clamp(0.0, 1.0) * (right - left)
    }

    fn y(&self, figure: f64) -> f64 {
        let Area { top, bottom, .. } = self.area;
        bottom - (figure / self.max).clamp(0.0, 1.0) * (bottom - top)
    }

    fn axes(&self, text: &mut String) -> fmt::Result {
        let Area { left, right, bottom, .. } = self.area;
        draw_grid(text, self.area, (self.max / self.step).floor() as u32, self.step, |figure| self.y(figure))?;
        let seconds = self.to - self.from;
        let (step, unit, name) = time_step(seconds);
        for count in 0..=(seconds / step).floor() as u32 {
            let at = f64::from(count) * step;
            let (x, label) = (self.x(self.from + at), format!("{} {name}", tick(at / unit, step / unit)));
            writeln!(text, "<path class=\"axis\" d=\"M{x:.1} {bottom}v5\"/>")?;
            let (x, anchor) = if x > right - 10.0 { (right, "end") } else { (x, "middle") };
            writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>", bottom + 17.0)?;
        }
        writeln!(text, "<path class=\"axis\" d=\"M{left} {bottom}H{right}\"/>")?;
        let (x, y) = (f64::midpoint(left, right), bottom + 34.0);
        writeln!(
            text,
            "<text class=\"faint\" x=\"{x}\" y=\"{y}\" text-anchor=\"middle\">time since the first record</text>"
        )
    }
}

/// Returns the seconds between labels of the time axis, at most eight, and the seconds and the name of their unit.
fn time_step(seconds: f64) -> (f64, f64, &'static str) {
    const STEPS: [f64; 17] = [
        1.0, 2.0, 5.0, 10.0, 15.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0,
        43200.0,
    ];
    let step = STEPS.into_iter().find(|step| seconds / step <= 8.0);
    let step = step.unwrap_or_else(|| 86400.0 * self::step(seconds / 86400.0));
    match if seconds < 4.0 { self::step(seconds) } else { step } {
        step @ ..60.0 => (step, 1.0, "s"),
        step @ 60.0..3600.0 => (step, 60.0, "min"),
        step => (step, 3600.0, "h"),
    }
}
