//! Batches by memory and speed.

use core::fmt::{self, Write as _};

use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{Bytes, Precision, three_digits};

use super::svg::{BOTTOM, HEIGHT, LEFT, RIGHT, Scale, TOP, escaped, open};

/// A plot of batches: samples per second over the memory needed.
#[derive(Clone, Debug, Default)]
pub struct MemorySpeedPlot {
    /// Title of the plot.
    pub title: String,
    /// Text at the upper right, for what the legend does not explain.
    pub note: String,
    /// A line for each mode.
    pub lines: Vec<ModeLine>,
    /// Amounts of memory that are marked from top to bottom.
    pub limits: Vec<Limit>,
    /// Rings around points.
    pub rings: Vec<Ring>,
    /// The rings' text in the legend; empty without rings.
    pub ringed: String,
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

/// A ring around a point, and a line from there to larger amounts of memory.
#[derive(Clone, Debug)]
pub struct Ring {
    /// Memory of the point.
    pub memory: Bytes,
    /// Samples per second of the point.
    pub samples_per_s: f64,
    /// Amounts of memory that the line leads to.
    pub until: Vec<Bytes>,
    /// Text where a pointer rests.
    pub title: String,
}

/// Colors that differ for all kinds of color vision, on light and on dark ground.
const STYLE: &str = include_str!("memory_speed.css");

impl MemorySpeedPlot {
    /// Draws the plot as an SVG file with light and dark colors, and with the names of points where a pointer rests.
    pub fn svg(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("BUG: memory can be written to");
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        let scale = Scale::new(self);
        open(text, HEIGHT, &self.title, ": samples per second by the memory needed", STYLE)?;
        axes(text, &scale)?;
        self.limits.iter().try_for_each(|limit| limit.draw(text, &scale))?;
        self.draw_frontier(text, &scale)?;
        self.rings.iter().try_for_each(|ring| ring.draw(text, &scale))?;
        self.lines.iter().try_for_each(|line| line.draw(text, &scale))?;
        self.legend(text)?;
        text.push_str("</svg>\n");
        Ok(())
    }

    fn legend(&self, text: &mut String) -> fmt::Result {
        let mut x = LEFT;
        for line in &self.lines {
            let (color, dashes, hollow) = line.classes();
            writeln!(text, "<path class=\"{color} line{dashes}\" d=\"M{x:.1} 41h30\"/>")?;
            writeln!(text, "<circle class=\"{color}{hollow}\" cx=\"{:.1}\" cy=\"41\" r=\"3\"/>", x + 15.0)?;
            let name = line.mode.to_string();
            writeln!(text, "<text x=\"{:.1}\" y=\"45\">{name}</text>", x + 36.0)?;
            x += 54.0 + 6.9 * name.len() as f64;
        }
        if !self.ringed.is_empty() {
            writeln!(text, "<circle class=\"planned\" cx=\"{:.1}\" cy=\"41\" r=\"7\"/>", x + 7.0)?;
            writeln!(text, "<text x=\"{:.1}\" y=\"45\">{}</text>", x + 20.0, escaped(&self.ringed))?;
        }
        writeln!(text, "<text x=\"{RIGHT}\" y=\"22\" text-anchor=\"end\">{}</text>", escaped(&self.note))
    }

    /// Draws steps below the Pareto frontier.
    fn draw_frontier(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let [(memory, samples_per_s), rest @ ..] = self.frontier.as_slice() else { return Ok(()) };
        let mut path = format!("M{:.1} {:.1}", scale.x(*memory), scale.y(*samples_per_s));
        for (memory, samples_per_s) in rest {
            write!(path, "H{:.1}V{:.1}", scale.x(*memory), scale.y(*samples_per_s))?;
        }
        writeln!(text, "<path class=\"spare line\" d=\"{path}H{RIGHT}\"/>")
    }
}

fn axes(text: &mut String, scale: &Scale) -> fmt::Result {
    for count in 0..=(scale.max / scale.step).round() as u32 {
        let figure = f64::from(count) * scale.step;
        let y = scale.y(figure);
        writeln!(text, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>")?;
        let label = three_digits(figure);
        let label = if count == 0 { "0" } else { &label };
        writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, y + 4.0)?;
    }
    for power in scale.from.ceil() as i32..=scale.to.floor() as i32 {
        let amount = 2f64.powi(power);
        let x = scale.x(scale.unit.to_bytes(amount));
        writeln!(text, "<path class=\"axis\" d=\"M{x:.1} {BOTTOM}v5\"/>")?;
        writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{amount}</text>", BOTTOM + 19.0)?;
    }
    writeln!(text, "<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>")?;
    let (x, y, unit) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM), scale.unit.name);
    writeln!(text, "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">memory needed, {unit}</text>", HEIGHT - 12.0)?;
    writeln!(text, "<text transform=\"translate(18 {y}) rotate(-90)\" text-anchor=\"middle\">samples/s</text>")
}

impl Limit {
    fn draw(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let (x, label) = (scale.x(self.memory), escaped(&self.label));
        writeln!(text, "<path class=\"card\" d=\"M{x:.1} {TOP}V{BOTTOM}\"/>")?;
        writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", TOP - 6.0)
    }
}

impl Ring {
    fn draw(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let (x, y) = (scale.x(self.memory), scale.y(self.samples_per_s));
        let ends = || self.until.iter().map(|memory| scale.x(*memory));
        if !self.until.is_empty() {
            let largest = ends().fold(x, f64::max);
            writeln!(text, "<path class=\"spare\" d=\"M{:.1} {y:.1}H{largest:.1}\"/>", (x + 7.0).min(largest))?;
        }
        for end in ends() {
            writeln!(text, "<path class=\"planned\" d=\"M{end:.1} {:.1}v8\"/>", y - 4.0)?;
        }
        writeln!(
            text,
            "<circle class=\"planned\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"><title>{}</title></circle>",
            escaped(&self.title)
        )
    }
}

impl ModeLine {
    fn draw(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let (color, dashes, hollow) = self.classes();
        let position = |point: &Point| (scale.x(point.memory), scale.y(point.samples_per_s));
        let path: Vec<_> = self.points.iter().map(position).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        if path.len() > 1 {
            writeln!(text, "<path class=\"{color} line{dashes}\" d=\"M{}\"/>", path.join("L"))?;
        }
        for point in &self.points {
            let (x, y) = position(point);
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
                "<circle class=\"{color}{hollow}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{mode}, batch {batch}: {speed} \
                 samples/s, {amount:.2} {unit}</title></circle>"
            )?;
        }
        Ok(())
    }

    /// Returns the classes of color, dashes and filling.
    fn classes(&self) -> (&'static str, &'static str, &'static str) {
        let color = if self.mode.precision == Precision::F32 { "f32" } else { "bf16" };
        if self.mode.checkpointing { (color, " checkpointed", " hollow") } else { (color, "", "") }
    }
}
