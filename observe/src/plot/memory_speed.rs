//! Batches by memory and speed.

use core::fmt::{self, Write as _};

use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{Bytes, Precision, grouped, three_digits};

use super::labels::Labels;
use super::legend::{Entry, Header};
use super::mark::{Mark, MarkKind, OUTLINE};
use super::scale::Scale;
use super::svg::{Area, PlotSize, escaped, open, text_width, tick};

/// A plot of batches: samples per second over the memory needed.
#[derive(Clone, Debug, Default)]
pub struct MemorySpeedPlot {
    /// Width of the plot.
    pub size: PlotSize,
    /// Title of the plot, with the device.
    pub title: String,
    /// Line below the title, for what the legend does not explain.
    pub note: String,
    /// A line for each mode.
    pub lines: Vec<ModeLine>,
    /// Amounts of memory that are marked from top to bottom.
    pub limits: Vec<Limit>,
    /// Marked batches. The legend names their kinds.
    pub marks: Vec<Mark>,
    /// Memory and samples per second of the Pareto frontier, ascending: steps are drawn below it.
    pub frontier: Vec<(Bytes, f64)>,
}

/// The batches of one mode.
#[derive(Clone, Debug)]
pub struct ModeLine {
    /// The mode, which selects color and dashes.
    pub mode: Mode,
    /// Points in the order in which they are joined.
    pub points: Vec<Point>,
}

/// A batch.
#[derive(Clone, Copy, Debug)]
pub struct Point {
    /// Samples of the batch.
    pub batch: u64,
    /// Memory needed.
    pub memory: Bytes,
    /// Median samples per second.
    pub samples_per_s: f64,
    /// Samples per second of the slowest and the fastest repeat.
    pub interval: Option<(f64, f64)>,
}

/// A marked amount of memory.
#[derive(Clone, Debug)]
pub struct Limit {
    /// The amount.
    pub memory: Bytes,
    /// Text above the mark.
    pub label: String,
}

/// Height of the area inside of the axes, by its width.
const ASPECT: f64 = 0.48;
/// Space for the labels of limits, and for the axes' labels at the left and the bottom.
const LIMITS: f64 = 18.0;
const LEFT: f64 = 80.0;
const BELOW: f64 = 48.0;
const RADIUS: f64 = 3.0;
/// Width of bold text, relative to other text.
const BOLD: f64 = 1.2;

impl MemorySpeedPlot {
    /// Begin of the files of plots of the default size.
    pub const SVG_BEGIN: &str = r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 "#;

    /// Draws the plot as an SVG file with light and dark colors, and with the names of points where a pointer rests.
    pub fn svg(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("BUG: memory can be written to");
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        let width = self.size.width();
        let mut header = String::new();
        let head = Header { title: &self.title, note: &self.note, legend: self.legend() };
        let top = head.draw(&mut header, width)? + LIMITS;
        let (left, right) = (LEFT, width - 16.0);
        let area = Area { left, right, top, bottom: (top + (right - left) * ASPECT).round() };
        let scale = Scale::new(self, area);
        let title = format!("{}: samples per second by the memory needed", self.title);
        open(text, [width, area.bottom + BELOW], &title)?;
        text.push_str(&header);
        axes(text, &scale)?;
        self.limits.iter().try_for_each(|limit| limit.draw(text, &scale))?;
        self.draw_frontier(text, &scale)?;
        self.marks.iter().try_for_each(|mark| mark.draw_memory(text, &scale))?;
        self.lines.iter().try_for_each(|line| line.draw(text, &scale))?;
        for mark in &self.marks {
            let position = scale.position(mark.memory, mark.samples_per_s);
            writeln!(text, "{}", mark.kind.outline(position, &mark.title))?;
        }
        self.draw_labels(text, &scale)?;
        text.push_str("</svg>\n");
        Ok(())
    }

    fn legend(&self) -> Vec<Entry> {
        let of_line = |line: &ModeLine| {
            let (color, dashes, hollow) = line.classes();
            let symbol = format!(
                "<path class=\"{color} line{dashes}\" d=\"M0 0h28\"/><circle class=\"{color}{hollow}\" cx=\"14\" r=\"{RADIUS}\"/>"
            );
            Entry { symbol, name: line.mode.to_string() }
        };
        let of_kind = |kind: MarkKind| {
            let mut marks = self.marks.iter().filter(|mark| mark.kind == kind);
            // The only mark of a kind is described, for paper and telephones, where no pointer rests.
            let name = match (marks.next(), marks.next()) {
                (Some(only), None) => only.title.clone(),
                _ => kind.to_string(),
            };
            Entry { symbol: kind.outline([14.0, 0.0], ""), name }
        };
        let mut kinds: Vec<MarkKind> = self.marks.iter().map(|mark| mark.kind).collect();
        kinds.sort();
        kinds.dedup();
        self.lines.iter().map(of_line).chain(kinds.into_iter().map(of_kind)).collect()
    }

    /// Draws the batch sizes where they fit, first those of marks.
    fn draw_labels(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let mut labels = Labels::new(scale.area);
        let marks: Vec<_> = self.marks.iter().map(|mark| (mark.batch, mark.memory, mark.samples_per_s)).collect();
        let points = self.lines.iter().flat_map(|line| &line.points);
        let points: Vec<_> = points.map(|point| (point.batch, point.memory, point.samples_per_s)).collect();
        let symbols = points.iter().map(|point| (point, RADIUS)).chain(marks.iter().map(|mark| (mark, OUTLINE)));
        for ((_, memory, speed), radius) in symbols {
            labels.avoid(scale.position(*memory, *speed), radius);
        }
        let is_marked = |point: &&(u64, Bytes, f64)| {
            let [x, y] = scale.position(point.1, point.2);
            let positions = marks.iter().map(|mark| (mark.0, scale.position(mark.1, mark.2)));
            positions.into_iter().any(|(batch, other)| batch == point.0 && (other[0] - x).hypot(other[1] - y) < OUTLINE)
        };
        let of_points = points.iter().filter(|point| !is_marked(point)).map(|point| (point, "batch", RADIUS, 1.0));
        // Several methods may choose the same batch.
        let of_marks = marks.iter().enumerate().filter(|(index, mark)| !marks[..*index].contains(mark));
        let all = of_marks.map(|(_, mark)| (mark, "chosen", OUTLINE, BOLD)).chain(of_points);
        for ((batch, memory, samples_per_s), class, radius, weight) in all {
            let label = grouped(*batch);
            let (position, width) = (scale.position(*memory, *samples_per_s), weight * text_width(&label));
            if let Some([x, y]) = labels.place(position, radius, width) {
                writeln!(
                    text,
                    "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{label}</text>"
                )?;
            }
        }
        Ok(())
    }

    /// Draws steps below the Pareto frontier.
    fn draw_frontier(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let [(memory, samples_per_s), rest @ ..] = self.frontier.as_slice() else { return Ok(()) };
        let mut path = format!("M{:.1} {:.1}", scale.x(*memory), scale.y(*samples_per_s));
        for (memory, samples_per_s) in rest {
            write!(path, "H{:.1}V{:.1}", scale.x(*memory), scale.y(*samples_per_s))?;
        }
        writeln!(text, "<path class=\"spare\" d=\"{path}H{}\"/>", scale.area.right)
    }
}

fn axes(text: &mut String, scale: &Scale) -> fmt::Result {
    let Area { left, right, top, bottom } = scale.area;
    for count in 0..=(scale.max / scale.step).round() as u32 {
        let figure = f64::from(count) * scale.step;
        let (y, label) = (scale.y(figure), tick(figure, scale.step));
        writeln!(text, "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>")?;
        writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", left - 8.0, y + 4.0)?;
    }
    for amount in scale.labels() {
        let x = scale.x(scale.unit.to_bytes(amount));
        writeln!(text, "<path class=\"axis\" d=\"M{x:.1} {bottom}v5\"/>")?;
        writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{amount}</text>", bottom + 18.0)?;
    }
    writeln!(text, "<path class=\"axis\" d=\"M{left} {bottom}H{right}\"/>")?;
    let (x, y, unit) = (f64::midpoint(left, right), f64::midpoint(top, bottom), scale.unit.name);
    let below = bottom + 38.0;
    writeln!(text, "<text x=\"{x}\" y=\"{below}\" text-anchor=\"middle\">memory needed, {unit} (logarithmic)</text>")?;
    writeln!(text, "<text transform=\"translate(16 {y}) rotate(-90)\" text-anchor=\"middle\">samples/s</text>")
}

impl Limit {
    fn draw(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let Area { right, top, bottom, .. } = scale.area;
        let (x, label) = (scale.x(self.memory), escaped(&self.label));
        writeln!(text, "<path class=\"limit\" d=\"M{x:.1} {top}V{bottom}\"/>")?;
        let (x, anchor) = if x > right - 40.0 { (right, "end") } else { (x, "middle") };
        writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\">{label}</text>", top - 5.0)
    }
}

impl ModeLine {
    fn draw(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let (color, dashes, hollow) = self.classes();
        let position = |point: &Point| scale.position(point.memory, point.samples_per_s);
        let path: Vec<_> = self.points.iter().map(position).map(|[x, y]| format!("{x:.1} {y:.1}")).collect();
        if path.len() > 1 {
            writeln!(text, "<path class=\"{color} line{dashes}\" d=\"M{}\"/>", path.join("L"))?;
        }
        for point in &self.points {
            let [x, y] = position(point);
            if let Some((min, max)) = point.interval {
                let (low, high, left) = (scale.y(min), scale.y(max), x - 3.0);
                writeln!(
                    text,
                    "<path class=\"{color}\" d=\"M{x:.1} {low:.1}V{high:.1}M{left:.1} {low:.1}h6M{left:.1} {high:.1}h6\"/>",
                )?;
            }
            let (mode, batch, speed) = (self.mode, point.batch, three_digits(point.samples_per_s));
            let (amount, unit) = (scale.unit.amount(point.memory), scale.unit.name);
            writeln!(
                text,
                "<circle class=\"{color}{hollow}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{RADIUS}\"><title>{mode}, batch {batch}: \
                 {speed} samples/s, {amount:.2} {unit}</title></circle>"
            )?;
        }
        Ok(())
    }

    /// Returns the classes of color, dashes and filling.
    fn classes(&self) -> (&'static str, &'static str, &'static str) {
        let color = if self.mode.precision == Precision::F32 { "c0" } else { "c1" };
        if self.mode.checkpointing { (color, " dashed", " hollow") } else { (color, "", "") }
    }
}
