//! Batches by memory and speed.

use std::fmt::{self, Write as _};

use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{Bytes, Precision, grouped, three_digits};

use super::{Area, Entry, Header, PlotSize, draw_grid, drawn, escaped, open, step, text_width};

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
        drawn(|text| self.write(text))
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
        self.draw_labels(text, &scale)
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
    draw_grid(text, scale.area, (scale.max / scale.step).round() as u32, scale.step, |figure| scale.y(figure))?;
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

/// Radius of the largest outline.
const OUTLINE: f64 = 8.0;

/// A marked batch.
#[derive(Clone, Debug)]
pub struct Mark {
    /// Kind of the mark, which selects its shape.
    pub kind: MarkKind,
    /// Samples of the batch.
    pub batch: u64,
    /// Memory needed.
    pub memory: Bytes,
    /// Samples per second.
    pub samples_per_s: f64,
    /// Amounts of memory that a line leads to: devices that the batch is planned for.
    pub until: Vec<Bytes>,
    /// Text where a pointer rests, and in the legend if no other mark has this kind.
    pub title: String,
}

/// The method that chooses a marked batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MarkKind {
    /// The plan.
    Planned,
    /// The largest batch that fits, as batch finders choose it.
    Largest,
    /// A fixed batch of [`MarkKind::FIXED_BATCH`] samples, as found in many configs.
    Fixed,
}

impl MarkKind {
    /// Samples of the fixed batch.
    pub const FIXED_BATCH: u64 = 64;

    /// Draws the outline around a point, with a title unless that is empty.
    fn outline(self, [x, y]: [f64; 2], title: &str) -> String {
        let title = if title.is_empty() { String::new() } else { format!("<title>{}</title>", escaped(title)) };
        let path = match self {
            Self::Planned => format!("M{:.1} {y:.1}a7 7 0 1 0 14 0a7 7 0 1 0 -14 0", x - 7.0),
            Self::Largest => format!("M{:.1} {:.1}h13v13h-13z", x - 6.5, y - 6.5),
            Self::Fixed => format!("M{:.1} {y:.1}l8.5 -8.5l8.5 8.5l-8.5 8.5z", x - 8.5),
        };
        format!("<path class=\"mark\" d=\"{path}\">{title}</path>")
    }
}

impl fmt::Display for MarkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Planned => f.write_str("planned"),
            Self::Largest => f.write_str("largest that fits"),
            Self::Fixed => write!(f, "batch {}", Self::FIXED_BATCH),
        }
    }
}

impl Mark {
    /// Draws the line to the devices that the batch is planned for.
    fn draw_memory(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let [x, y] = scale.position(self.memory, self.samples_per_s);
        let ends = || self.until.iter().map(|memory| scale.x(*memory));
        if !self.until.is_empty() {
            let largest = ends().fold(x, f64::max);
            writeln!(text, "<path class=\"spare\" d=\"M{:.1} {y:.1}H{largest:.1}\"/>", (x + OUTLINE).min(largest))?;
        }
        for end in ends() {
            writeln!(text, "<path class=\"mark\" d=\"M{end:.1} {:.1}v8\"/>", y - 4.0)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug)]
struct Unit {
    bytes: f64,
    name: &'static str,
}

/// Scale from figures to positions on the page.
struct Scale {
    area: Area,
    unit: Unit,
    /// Logarithms to base 2 of the memory at the left and the right, in the unit.
    from: f64,
    to: f64,
    /// Samples per second at the top, and between grid lines.
    max: f64,
    step: f64,
}

impl Scale {
    fn new(plot: &MemorySpeedPlot, area: Area) -> Self {
        let points = || plot.lines.iter().flat_map(|line| &line.points);
        let amounts = points().map(|point| point.memory).chain(plot.marks.iter().map(|mark| mark.memory));
        let all: Vec<Bytes> = amounts.chain(plot.limits.iter().map(|limit| limit.memory)).collect();
        let max = all.iter().copied().max().unwrap_or(Bytes::from_mib(1024));
        let min = all.iter().copied().min().unwrap_or(max).max(Bytes(1));
        let unit = if max < Bytes::from_mib(1024) { Unit::MIB } else { Unit::GIB };
        let speeds = points().map(|point| point.interval.map_or(point.samples_per_s, |(_, max)| max));
        let fastest = speeds.chain(plot.marks.iter().map(|mark| mark.samples_per_s)).fold(1.0, f64::max);
        let step = step(fastest * 1.06);
        let (from, to) = ((unit.amount(min) / 1.1).log2(), (unit.amount(max) * 1.1).log2());
        // Between points that lie close together there may be no two powers of two to label.
        let has_labels = from.ceil() < to.floor();
        let (from, to) = if has_labels { (from, to) } else { (from.floor(), to.ceil()) };
        Self { area, unit, from, to, max: (fastest * 1.06 / step).ceil() * step, step }
    }

    fn x(&self, memory: Bytes) -> f64 {
        let share = (self.unit.amount(memory).log2() - self.from) / (self.to - self.from);
        self.area.left + share * (self.area.right - self.area.left)
    }

    fn y(&self, samples_per_s: f64) -> f64 {
        self.area.bottom - samples_per_s / self.max * (self.area.bottom - self.area.top)
    }

    /// Labelled amounts of memory: powers of two, and one and a half of each where they are few.
    fn labels(&self) -> Vec<f64> {
        let powers = || (self.from.floor() as i32..=self.to.floor() as i32).map(|power| 2f64.powi(power));
        let has_few = self.to.floor() - self.from.ceil() < 3.0;
        let between = powers().filter(|_| has_few).map(|power| 1.5 * power);
        let mut labels: Vec<f64> = powers().chain(between).collect();
        labels.retain(|amount| (self.from..=self.to).contains(&amount.log2()));
        labels.sort_by(f64::total_cmp);
        labels
    }

    fn position(&self, memory: Bytes, samples_per_s: f64) -> [f64; 2] {
        [self.x(memory), self.y(samples_per_s)]
    }
}

impl Unit {
    const MIB: Self = Self { bytes: (1 << 20) as f64, name: "MiB" };
    const GIB: Self = Self { bytes: (1 << 30) as f64, name: "GiB" };

    fn amount(self, memory: Bytes) -> f64 {
        memory.0 as f64 / self.bytes
    }

    fn to_bytes(self, amount: f64) -> Bytes {
        Bytes((amount * self.bytes) as u64)
    }
}

/// Height of a label of 12 px.
const HEIGHT: f64 = 12.0;
/// Space at each side of a label.
const GAP: f64 = 2.0;

/// The places that are taken in a plot.
struct Labels {
    bounds: Area,
    taken: Vec<Area>,
}

impl Labels {
    const fn new(bounds: Area) -> Self {
        Self { bounds, taken: Vec::new() }
    }

    fn avoid(&mut self, [x, y]: [f64; 2], radius: f64) {
        self.taken.push(Area { left: x - radius, right: x + radius, top: y - radius, bottom: y + radius });
    }

    /// Finds a free place for a label of this width around a point, and takes it. Returns the middle of the label's base line; `None` if every place
    /// overlaps something.
    fn place(&mut self, [x, y]: [f64; 2], radius: f64, width: f64) -> Option<[f64; 2]> {
        let half = width / 2.0 + GAP;
        let (beside, away) = (radius + half + 2.0, radius + 2.0);
        let middles = [
            [x, y - away - HEIGHT / 2.0],
            [x, y + away + HEIGHT / 2.0],
            [x + beside, y],
            [x - beside, y],
            [x + half, y + away + HEIGHT / 2.0],
            [x - half, y - away - HEIGHT / 2.0],
            [x + half, y - away - HEIGHT / 2.0],
            [x - half, y + away + HEIGHT / 2.0],
        ];
        let (found, area) = middles.into_iter().find_map(|[x, y]| {
            let (top, bottom) = (y - HEIGHT / 2.0, y + HEIGHT / 2.0);
            let area = Area { left: x - half, right: x + half, top, bottom };
            let is_free = area.is_inside(self.bounds) && !self.taken.iter().any(|other| area.overlaps(*other));
            is_free.then_some(([x, bottom - 2.0], area))
        })?;
        self.taken.push(area);
        Some(found)
    }
}

impl Area {
    fn is_inside(self, other: Self) -> bool {
        self.left >= other.left && self.right <= other.right && self.top >= other.top && self.bottom <= other.bottom
    }

    fn overlaps(self, other: Self) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }
}

#[cfg(test)]
mod tests {
    use super::{Area, Labels};

    #[test]
    fn labels_avoid_symbols_each_other_and_the_edge() {
        let mut labels = Labels::new(Area { left: 0.0, right: 100.0, top: 0.0, bottom: 60.0 });
        labels.avoid([50.0, 30.0], 3.0);
        let placed: Vec<_> = (0..9).map_while(|_| labels.place([50.0, 30.0], 3.0, 13.8)).collect();
        assert!((2..9).contains(&placed.len()), "{placed:?}");
        for (index, [x, y]) in placed.iter().enumerate() {
            assert!((8.9..=91.1).contains(x) && (10.0..=60.0).contains(y), "{placed:?}");
            let overlaps = |other: &[f64; 2]| (other[0] - x).abs() < 17.0 && (other[1] - y).abs() < 12.0;
            assert!(!placed[..index].iter().any(overlaps), "{placed:?}");
        }
    }
}
