//! Samples per second by the memory needed: one figure for each model.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use anyhow::Result;
use gpu_tuned_core::measured::Mode;
use gpu_tuned_core::{Bytes, Precision};

use super::figures::rate;
use super::subject::{Card, Subject, cards};
use super::sweep::Timed;
use super::throughput::{Choice, Outcome, Table};

const WIDTH: f64 = 800.0;
const HEIGHT: f64 = 460.0;
const LEFT: f64 = 68.0;
const RIGHT: f64 = WIDTH - 20.0;
const TOP: f64 = 78.0;
const BOTTOM: f64 = HEIGHT - 52.0;

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

/// What is drawn of one mode.
struct Line<'a> {
    mode: Mode,
    /// Memory needed and repeats, by batch.
    points: Vec<(Bytes, u64, &'a Timed, f64)>,
}

/// Where figures lie on the page.
struct Scale {
    /// Logarithms to the base 2 of GiB at the left and the right.
    from: f64,
    to: f64,
    /// Samples per second at the top, and between lines of the grid.
    most: f64,
    step: f64,
}

/// The figure of one model, with the points planned in its tables marked.
pub(super) fn figure(subject: &Subject, tables: &[&Table]) -> Result<String> {
    let lines = lines(subject)?;
    let cards = cards()?;
    let scale = Scale::of(&lines, &cards);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\">\n\
         <title>{}: samples per second by the memory needed</title>\n{STYLE}\n\
         <rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n",
        subject.name
    );
    writeln!(text, "<text class=\"title\" x=\"{LEFT}\" y=\"22\">{}</text>", subject.name)?;
    axes(&mut text, &scale)?;
    card_lines(&mut text, &scale, &cards)?;
    planned(&mut text, &scale, tables)?;
    for line in &lines {
        line.draw(&mut text, &scale)?;
    }
    legend(&mut text, &lines)?;
    text.push_str("</svg>\n");
    Ok(text)
}

fn lines<'a>(subject: &'a Subject) -> Result<Vec<Line<'a>>> {
    let mut lines = Vec::new();
    for (mode, batches) in subject.sweep.modes().filter(|(mode, _)| subject.has(*mode)) {
        let mut points = Vec::new();
        for (batch, timed) in batches.iter().filter(|(_, timed)| timed.ran()) {
            let need = subject.takes(mode, *batch)?.0;
            points.extend(timed.median().map(|median| (need, *batch, timed, median)));
        }
        lines.push(Line { mode, points });
    }
    Ok(lines)
}

impl Scale {
    fn of(lines: &[Line], cards: &[Card]) -> Self {
        let needs = lines.iter().flat_map(|line| &line.points).map(|(need, ..)| need.gib());
        let all: Vec<f64> = needs.chain(cards.iter().map(|card| card.facts.memory_total.gib())).collect();
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        let most = all.iter().copied().fold(0.0, f64::max);
        let rates = lines.iter().flat_map(|line| &line.points).filter_map(|(_, _, timed, _)| timed.interval());
        let fastest = rates.map(|(_, most)| most).fold(1.0, f64::max);
        let step = step(fastest * 1.06);
        Self { from: (least / 1.1).log2(), to: (most * 1.1).log2(), most: (fastest * 1.06 / step).ceil() * step, step }
    }

    fn x(&self, memory: Bytes) -> f64 {
        let share = (memory.gib().log2() - self.from) / (self.to - self.from);
        LEFT + share * (RIGHT - LEFT)
    }

    fn y(&self, samples_per_s: f64) -> f64 {
        BOTTOM - samples_per_s / self.most * (BOTTOM - TOP)
    }
}

/// A round step that makes four to eight lines of the grid.
fn step(most: f64) -> f64 {
    let power = 10f64.powi(most.log10().floor() as i32 - 1);
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|factor| factor * power);
    steps.into_iter().find(|step| most / step <= 8.0).unwrap_or(most)
}

fn axes(text: &mut String, scale: &Scale) -> Result<()> {
    for count in 0..=(scale.most / scale.step).round() as u32 {
        let figure = f64::from(count) * scale.step;
        let y = scale.y(figure);
        writeln!(text, "<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>")?;
        let label = rate(figure);
        let label = if count == 0 { "0" } else { &label };
        writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", LEFT - 8.0, y + 4.0)?;
    }
    for power in scale.from.ceil() as i32..=scale.to.floor() as i32 {
        let gib = 2f64.powi(power);
        let x = scale.x(Bytes((gib * f64::from(1 << 30)) as u64));
        writeln!(text, "<path class=\"axis\" d=\"M{x:.1} {BOTTOM}v5\"/>")?;
        writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{gib}</text>", BOTTOM + 19.0)?;
    }
    writeln!(text, "<path class=\"axis\" d=\"M{LEFT} {BOTTOM}H{RIGHT}\"/>")?;
    let (x, y) = (f64::midpoint(LEFT, RIGHT), f64::midpoint(TOP, BOTTOM));
    writeln!(text, "<text x=\"{x}\" y=\"{}\" text-anchor=\"middle\">memory needed, GiB</text>", HEIGHT - 12.0)?;
    writeln!(text, "<text transform=\"translate(18 {y}) rotate(-90)\" text-anchor=\"middle\">samples/s</text>")?;
    Ok(())
}

fn card_lines(text: &mut String, scale: &Scale, cards: &[Card]) -> Result<()> {
    for card in cards {
        let x = scale.x(card.facts.memory_total);
        writeln!(text, "<path class=\"card\" d=\"M{x:.1} {TOP}V{BOTTOM}\"/>")?;
        let label = format!("{:.0}", card.facts.memory_total.gib());
        writeln!(text, "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>", TOP - 6.0)?;
    }
    Ok(())
}

/// A ring around each planned point, and a line from there to the memory that it was planned for.
fn planned(text: &mut String, scale: &Scale, tables: &[&Table]) -> Result<()> {
    let mut rings: BTreeMap<(Mode, u64), (&Choice, Vec<&Card>)> = BTreeMap::new();
    for row in tables.iter().flat_map(|table| &table.rows) {
        if let [Ok(choice), ..] = &row.choices {
            rings.entry((choice.mode, choice.batch)).or_insert((choice, Vec::new())).1.push(&row.card);
        }
    }
    for ((mode, batch), (choice, cards)) in rings {
        let Outcome::Runs(found) = choice.outcome else { continue };
        let (x, y) = (scale.x(choice.need), scale.y(found.samples_per_s));
        let largest = cards.iter().map(|card| scale.x(card.facts.memory_total)).fold(x, f64::max);
        writeln!(text, "<path class=\"spare\" d=\"M{:.1} {y:.1}H{largest:.1}\"/>", (x + 7.0).min(largest))?;
        for card in &cards {
            let end = scale.x(card.facts.memory_total);
            writeln!(text, "<path class=\"planned\" d=\"M{end:.1} {:.1}v8\"/>", y - 4.0)?;
        }
        let names: Vec<_> = cards.iter().map(|card| card.name.as_str()).collect();
        let (names, rate) = (names.join(", "), rate(found.samples_per_s));
        writeln!(
            text,
            "<circle class=\"planned\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"7\"><title>planned for {names}: {mode}, batch {batch}, \
             {rate} samples/s</title></circle>"
        )?;
    }
    Ok(())
}

impl Line<'_> {
    fn draw(&self, text: &mut String, scale: &Scale) -> Result<()> {
        let (colour, dashes, hollow) = self.classes();
        let path: Vec<_> = self
            .points
            .iter()
            .map(|(need, _, _, median)| format!("{:.1} {:.1}", scale.x(*need), scale.y(*median)))
            .collect();
        if path.len() > 1 {
            writeln!(text, "<path class=\"{colour} line{dashes}\" d=\"M{}\"/>", path.join("L"))?;
        }
        for (need, batch, timed, median) in &self.points {
            let (x, y) = (scale.x(*need), scale.y(*median));
            if let Some((least, most)) = timed.interval() {
                let (low, high) = (scale.y(least), scale.y(most));
                writeln!(
                    text,
                    "<path class=\"{colour}\" d=\"M{x:.1} {low:.1}V{high:.1}M{:.1} {low:.1}h6M{:.1} {high:.1}h6\"/>",
                    x - 3.0,
                    x - 3.0
                )?;
            }
            let (mode, speed, gib) = (self.mode, rate(*median), need.gib());
            writeln!(
                text,
                "<circle class=\"{colour}{hollow}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\"><title>{mode}, batch {batch}: {speed} \
                 samples/s, {gib:.2} GiB</title></circle>"
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

fn legend(text: &mut String, lines: &[Line]) -> Result<()> {
    let mut x = LEFT;
    for line in lines {
        let (colour, dashes, hollow) = line.classes();
        writeln!(text, "<path class=\"{colour} line{dashes}\" d=\"M{x:.1} 41h30\"/>")?;
        writeln!(text, "<circle class=\"{colour}{hollow}\" cx=\"{:.1}\" cy=\"41\" r=\"3\"/>", x + 15.0)?;
        let name = line.mode.to_string();
        writeln!(text, "<text x=\"{:.1}\" y=\"45\">{name}</text>", x + 36.0)?;
        x += 54.0 + 6.9 * name.len() as f64;
    }
    writeln!(text, "<circle class=\"planned\" cx=\"{:.1}\" cy=\"41\" r=\"7\"/>", x + 7.0)?;
    writeln!(text, "<text x=\"{:.1}\" y=\"45\">planned</text>", x + 20.0)?;
    writeln!(
        text,
        "<text x=\"{RIGHT}\" y=\"22\" text-anchor=\"end\">dotted: memory of a card, GiB; bars: slowest to fastest repeat</text>"
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::step;

    #[test]
    fn grids_have_four_to_eight_round_lines() {
        for most in [0.7, 1.0, 4.1, 9.9, 10.0, 41.0, 99.0, 880.0, 1400.0, 6219.0, 123_456.0] {
            let step = step(most);
            assert!((4.0..=8.0).contains(&(most / step)), "{most}: {step}");
            let digits = format!("{step:e}");
            assert!(["1e", "2e", "5e"].iter().any(|round| digits.starts_with(round)), "{most}: {step}");
        }
    }
}
