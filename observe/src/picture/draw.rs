//! The picture as text.

use core::fmt::{self, Write as _};

use super::scale::{BOTTOM, HEIGHT, LEFT, RIGHT, Scale, TOP, WIDTH};
use super::{Figure, Limit, Line, Point, Ring};
use gpu_tuned_core::{Precision, three_digits};

/// Colours that stand apart for all kinds of colour vision, on light and on dark ground.
const STYLE: &str = "<style>
  text { font: 12px system-ui, sans-serif; fill: #333 }
  .ground { fill: #fff } .grid { stroke: #e4e4e4 } .axis { stroke: #666 } .card { stroke: #999; stroke-dasharray: 2 3 }
  .line { fill: none; stroke-width: 2 } .checkpointed { stroke-dasharray: 6 4 } .title { font-weight: 600; font-size: 14px }
  .planned { fill: none; stroke: #222; stroke-width: 1.5 } .spare { stroke: #888; stroke-width: 1 }
  .f32 { stroke: #0065a8; fill: #0065a8 } .bf16 { stroke: #c44f00; fill: #c44f00 } .hollow { fill: #fff }
  @media (prefers-color-scheme: dark) {
    text { fill: #ccc } .ground { fill: #15181c } .grid { stroke: #2b3036 } .axis { stroke: #999 } .card { stroke: #777 }
    .planned { stroke: #eee } .spare { stroke: #888 }
    .f32 { stroke: #5db4f0; fill: #5db4f0 } .bf16 { stroke: #ff9a4d; fill: #ff9a4d } .hollow { fill: #15181c }
  }
  .line { fill: none }
</style>";

impl Figure {
    /// The picture, as a file of its own: it has light and dark colours, and names of points where a pointer rests.
    pub fn svg(&self) -> String {
        let mut text = String::new();
        self.write(&mut text).expect("BUG: memory can be written to");
        text
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        let (scale, title) = (Scale::of(self), escaped(&self.title));
        write!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
             <title>{title}: samples per second by the memory needed</title>\n{STYLE}\n\
             <rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
        )?;
        writeln!(text, "<text class=\"title\" x=\"{LEFT}\" y=\"22\">{title}</text>")?;
        axes(text, &scale)?;
        self.limits.iter().try_for_each(|limit| limit.draw(text, &scale))?;
        frontier(text, &scale, self)?;
        self.rings.iter().try_for_each(|ring| ring.draw(text, &scale))?;
        self.lines.iter().try_for_each(|line| line.draw(text, &scale))?;
        self.legend(text)?;
        text.push_str("</svg>\n");
        Ok(())
    }

    fn legend(&self, text: &mut String) -> fmt::Result {
        let mut x = LEFT;
        for line in &self.lines {
            let (colour, dashes, hollow) = line.classes();
            writeln!(text, "<path class=\"{colour} line{dashes}\" d=\"M{x:.1} 41h30\"/>")?;
            writeln!(text, "<circle class=\"{colour}{hollow}\" cx=\"{:.1}\" cy=\"41\" r=\"3\"/>", x + 15.0)?;
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
}

fn axes(text: &mut String, scale: &Scale) -> fmt::Result {
    for count in 0..=(scale.most / scale.step).round() as u32 {
        let figure = f64::from(count) * scale.step;
        let y = scale.y(figure);
        writeln!(text, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>")?;
        let label = three_digits(figure);
        let label = if count == 0 { "0" } else { &label };
        writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, y + 4.0)?;
    }
    for power in scale.from.ceil() as i32..=scale.to.floor() as i32 {
        let amount = 2f64.powi(power);
        let x = scale.x(scale.unit.bytes(amount));
        writeln!(text, "<path class=\"axis\" d=\"M{x:.1} {BOTTOM}v5\"/>")?;
        writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{amount}</text>", BOTTOM + 19.0)?;
    }
    writeln!(text, "<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>")?;
    let (x, y, unit) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM), scale.unit.name());
    writeln!(text, "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">memory needed, {unit}</text>", HEIGHT - 12.0)?;
    writeln!(text, "<text transform=\"translate(18 {y}) rotate(-90)\" text-anchor=\"middle\">samples/s</text>")
}

/// Steps below the points that no other is better than.
fn frontier(text: &mut String, scale: &Scale, figure: &Figure) -> fmt::Result {
    let [(memory, samples_per_s), rest @ ..] = figure.frontier.as_slice() else { return Ok(()) };
    let mut path = format!("M{:.1} {:.1}", scale.x(*memory), scale.y(*samples_per_s));
    for (memory, samples_per_s) in rest {
        write!(path, "H{:.1}V{:.1}", scale.x(*memory), scale.y(*samples_per_s))?;
    }
    writeln!(text, "<path class=\"spare line\" d=\"{path}H{RIGHT}\"/>")
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

impl Line {
    fn draw(&self, text: &mut String, scale: &Scale) -> fmt::Result {
        let (colour, dashes, hollow) = self.classes();
        let place = |point: &Point| (scale.x(point.memory), scale.y(point.samples_per_s));
        let path: Vec<_> = self.points.iter().map(place).map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        if path.len() > 1 {
            writeln!(text, "<path class=\"{colour} line{dashes}\" d=\"M{}\"/>", path.join("L"))?;
        }
        for point in &self.points {
            let (x, y) = place(point);
            if let Some((least, most)) = point.interval {
                let (low, high) = (scale.y(least), scale.y(most));
                writeln!(
                    text,
                    "<path class=\"{colour}\" d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6M{:.1} {high:.1}h6\"/>",
                    x - 3.0,
                    x - 3.0
                )?;
            }
            let (mode, batch, speed) = (self.mode, point.batch, three_digits(point.samples_per_s));
            let (amount, unit) = (scale.unit.of(point.memory), scale.unit.name());
            writeln!(
                text,
                "<circle class=\"{colour}{hollow}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{mode}, batch {batch}: {speed} \
                 samples/s, {amount:.2} {unit}</title></circle>"
            )?;
        }
        Ok(())
    }

    /// Colour, dashes and filling.
    fn classes(&self) -> (&'static str, &'static str, &'static str) {
        let colour = if self.mode.precision == Precision::F32 { "f32" } else { "bf16" };
        if self.mode.checkpointing { (colour, " checkpointed", " hollow") } else { (colour, "", "") }
    }
}

/// The text without what would end the element that it stands in.
pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
