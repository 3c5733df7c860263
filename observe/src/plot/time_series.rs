//! Figures over time.

use core::fmt::{self, Write as _};

use gpu_tuned_core::three_digits;

use super::step;
use super::svg::{LEFT, RIGHT, escaped, open};

const HEIGHT: f64 = 190.0;
const TOP: f64 = 36.0;
const BOTTOM: f64 = HEIGHT - 34.0;
/// Columns of the plot. Each shows minimum and maximum of a line.
const COLUMNS: usize = 400;
/// Magnitude that no figure of a run reaches.
const LARGEST: f64 = 1e100;
/// Colors for lines.
const COLORS: usize = 4;

const STYLE: &str = include_str!("time_series.css");

/// A plot of figures of one unit over time.
#[derive(Clone, Debug, Default)]
pub struct TimeSeriesPlot {
    /// Title with the unit.
    pub title: String,
    /// Lines; there are four colors.
    pub lines: Vec<TimeSeries>,
    /// Figure at the top; by default, slightly above the highest point.
    pub most: Option<f64>,
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
    from: f64,
    to: f64,
    most: f64,
    step: f64,
}

impl TimeSeriesPlot {
    /// Draws the plot as an SVG file; `None` without points.
    pub fn svg(&self) -> Option<String> {
        let scale = Scale::new(self)?;
        let mut text = String::new();
        self.write(&mut text, &scale).expect("BUG: memory can be written to");
        Some(text)
    }

    fn write(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        open(text, HEIGHT, &self.title, " over time", STYLE)?;
        scale.axes(text)?;
        if let Some((figure, label)) = &self.limit {
            let y = scale.y(*figure);
            writeln!(text, "<path class=\"card\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>")?;
            let label = escaped(label);
            writeln!(text, "<text x=\"{RIGHT}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", y - 4.0)?;
        }
        for (index, line) in self.lines.iter().enumerate() {
            line.draw(text, scale, index % COLORS)?;
        }
        self.legend(text)?;
        text.push_str("</svg>\n");
        Ok(())
    }

    /// Draws the names of several lines from right to left.
    fn legend(&self, text: &mut String) -> fmt::Result {
        let mut x = RIGHT;
        for (index, line) in self.lines.iter().enumerate().rev().filter(|_| self.lines.len() > 1) {
            let name = escaped(&line.name);
            writeln!(text, "<text x=\"{x:.1}\" y=\"22\" text-anchor=\"end\">{name}</text>")?;
            x -= 6.9 * line.name.chars().count() as f64 + 8.0;
            writeln!(text, "<path class=\"course c{}\" d=\"M{:.1} 18h20\"/>", index % COLORS, x - 20.0)?;
            x -= 36.0;
        }
        Ok(())
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
                writeln!(text, "<circle class=\"course c{color}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2\"/>")
            }
            several => {
                let path: Vec<_> = several.iter().map(position).collect();
                writeln!(text, "<path class=\"course c{color}\" d=\"M{}\"/>", path.join("L"))
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
    fn new(plot: &TimeSeriesPlot) -> Option<Self> {
        let points = || plot.lines.iter().flat_map(TimeSeries::finite);
        let first = points().map(|(at, _)| at).reduce(f64::min)?;
        let last = points().map(|(at, _)| at).fold(first, f64::max);
        let (from, to) = plot.between.unwrap_or((first, last));
        let highest = points().map(|(_, figure)| figure).chain(plot.limit.iter().map(|(figure, _)| *figure));
        let most = plot.most.unwrap_or_else(|| highest.fold(0.0, f64::max) * 1.06);
        let most = if most > 0.0 { most } else { 1.0 };
        // Half of the grid lines of a taller plot.
        let step = 2.0 * step(most);
        let (most, step) = match plot.most {
            Some(_) => (most, most / 2.0),
            None => ((2.0 * most / step).ceil() * step / 2.0, step),
        };
        Some(Self { from, to: to.max(from + 1e-3), most, step })
    }

    fn x(&self, at: f64) -> f64 {
        LEFT + ((at - self.from) / (self.to - self.from)).clamp(0.0, 1.0) * (RIGHT - LEFT)
    }

    fn y(&self, figure: f64) -> f64 {
        BOTTOM - (figure / self.most).clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    fn axes(&self, text: &mut String) -> fmt::Result {
        for count in 0..=(self.most / self.step).floor() as u32 {
            let figure = f64::from(count) * self.step;
            let (y, label) = (self.y(figure), if count == 0 { "0".to_owned() } else { three_digits(figure) });
            writeln!(text, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>")?;
            writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, y + 4.0)?;
        }
        let seconds = self.to - self.from;
        let step = self::step(seconds);
        for count in 0..=(seconds / step).floor() as u32 {
            let at = f64::from(count) * step;
            let (x, label) = (self.x(self.from + at), duration(at, step));
            writeln!(text, "<path class=\"axis\" d=\"M{x:.1} {BOTTOM}v5\"/>")?;
            writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", BOTTOM + 19.0)?;
        }
        writeln!(text, "<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>")
    }
}

/// Formats seconds, minutes or hours, for a grid step of `step`.
fn duration(seconds: f64, step: f64) -> String {
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < step / 2.0 => "0".to_owned(),
        _ if step < 1.0 => format!("{seconds:.1} s"),
        ..600 => format!("{whole} s"),
        600..7200 => format!("{}:{:02} min", whole / 60, whole % 60),
        _ => format!("{}:{:02} h", whole / 3600, whole % 3600 / 60),
    }
}

#[cfg(test)]
mod tests {
    use super::{TimeSeries, TimeSeriesPlot};

    fn drawn(points: Vec<(f64, f64)>) -> Option<String> {
        let line = TimeSeries { name: String::new(), points };
        TimeSeriesPlot { title: "a <b> & c".to_owned(), lines: vec![line], ..TimeSeriesPlot::default() }.svg()
    }

    /// Heights of the points of the only line.
    fn heights(svg: &str) -> Vec<f64> {
        let path = svg.split("class=\"course c0\" d=\"M").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
        path.split('L').map(|point| point.split(' ').nth(1).unwrap().parse().unwrap()).collect()
    }

    #[test]
    fn without_points_there_is_no_plot() {
        assert_eq!(drawn(Vec::new()), None);
        assert_eq!(drawn(vec![(0.0, f64::NAN), (0.0, f64::INFINITY), (1.0, 1e308)]), None);
    }

    #[test]
    fn titles_are_text() {
        let svg = drawn(vec![(0.0, 1.0), (1.0, 2.0)]).unwrap();
        assert!(svg.contains("a &lt;b&gt; &amp; c") && !svg.contains("<b>"));
    }

    #[test]
    fn a_peak_among_very_many_points_is_there() {
        let mut points: Vec<_> = (0..100_000).map(|index| (f64::from(index) / 10.0, 50.0)).collect();
        points[77_777].1 = 100.0;
        points[33_333].1 = 0.0;
        let svg = drawn(points).unwrap();
        let heights = heights(&svg);
        assert!(heights.len() <= 802, "{}", heights.len());
        // The page's heights count downwards.
        let count = |is: fn(f64, f64) -> bool| heights.iter().filter(|height| is(**height, heights[0])).count();
        assert_eq!((count(|height, usual| height < usual), count(|height, usual| height > usual)), (1, 1));
    }

    #[test]
    fn one_point_and_no_time_at_all_are_drawn() {
        assert!(drawn(vec![(5.0, 1.0)]).unwrap().contains("<circle"));
        let heights = heights(&drawn(vec![(5.0, 0.0), (5.0, 0.0)]).unwrap());
        assert!(heights.iter().all(|height| height.is_finite()));
    }
}
