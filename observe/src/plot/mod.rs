//! SVG plots: samples per second over the memory needed, figures over time, bars, and terminals.
//!
//! Equal figures give equal text, so that plots can be committed beside their data.

mod bars;
mod memory_speed;
mod terminal;
mod time_series;

use std::fmt::{self, Write as _};

use gpu_tuned_core::grouped;
use gpu_tuned_core::printable::for_file;

pub use bars::{BarGroup, BarPlot};
pub use memory_speed::{Limit, Mark, MarkKind, MemorySpeedPlot, ModeLine, Point};
pub use terminal::{Style, terminal};
pub use time_series::{TimeSeries, TimeSeriesPlot};

/// Colors that differ for all kinds of color vision, on light and on dark ground.
const STYLE: &str = include_str!("plot.css");

/// Width of a plot. Text has the same size in both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PlotSize {
    /// For a page of its own.
    #[default]
    Wide,
    /// Readable on a telephone, or as one of two columns.
    Narrow,
}

/// The area inside of the axes, in the units of the drawing.
#[derive(Clone, Copy, Debug)]
struct Area {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

impl PlotSize {
    const fn width(self) -> f64 {
        match self {
            Self::Wide => 800.0,
            Self::Narrow => 440.0,
        }
    }
}

/// Returns the text that `draw` writes, and the end of the drawing.
fn drawn(draw: impl FnOnce(&mut String) -> fmt::Result) -> String {
    let mut text = String::new();
    draw(&mut text).expect("BUG: memory can be written to");
    text + "</svg>\n"
}

/// Opens an SVG with its style, ground and title.
fn open(text: &mut String, [width, height]: [f64; 2], title: &str) -> fmt::Result {
    let title = escaped(title);
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\" \
         role=\"img\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>",
    )
}

/// Draws horizontal grid lines with their labels, a `step` apart, from 0 on.
fn draw_grid(text: &mut String, area: Area, last: u32, step: f64, y: impl Fn(f64) -> f64) -> fmt::Result {
    let Area { left, right, .. } = area;
    for count in 0..=last {
        let figure = f64::from(count) * step;
        let (y, label) = (y(figure), tick(figure, step));
        writeln!(text, "<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>")?;
        writeln!(text, "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{label}</text>", left - 8.0, y + 4.0)?;
    }
    Ok(())
}

/// Escapes text for an element, and replaces control characters.
fn escaped(text: &str) -> String {
    for_file(text).replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// Upper bound of the width of text of 12 px.
fn text_width(text: &str) -> f64 {
    6.9 * text.chars().count() as f64
}

/// Formats the figure at a grid line.
fn tick(figure: f64, step: f64) -> String {
    match step {
        _ if figure == 0.0 => "0".to_owned(),
        1.0..1e15 => grouped(figure.round() as u64),
        1e-4..1.0 => format!("{figure:.*}", (-step.log10()).ceil() as usize),
        _ => format!("{figure:.1e}"),
    }
}

/// Returns a round step that makes four to eight grid lines up to `max`.
pub fn step(max: f64) -> f64 {
    let power = 10f64.powi(max.log10().floor() as i32 - 1);
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|factor| factor * power);
    steps.into_iter().find(|step| max / step <= 8.0).unwrap_or(max)
}

/// Left end of the lines above a plot.
const MARGIN: f64 = 16.0;
const TITLE_LINE: f64 = 20.0;
const LINE: f64 = 18.0;
/// Width of a symbol with the space after it.
const SYMBOL: f64 = 34.0;
const GAP: f64 = 18.0;

/// The lines above a plot.
struct Header<'a> {
    pub title: &'a str,
    /// Explanation that the legend lacks; may be empty.
    pub note: &'a str,
    pub legend: Vec<Entry>,
}

/// An entry of a legend.
struct Entry {
    /// Elements from 0 to 28 on the x axis, around 0 on the y axis.
    pub symbol: String,
    pub name: String,
}

impl Header<'_> {
    /// Draws the lines, as many as the width needs. Returns the lower end of the last one.
    fn draw(&self, text: &mut String, width: f64) -> Result<f64, fmt::Error> {
        let room = width - 2.0 * MARGIN;
        let mut y = 2.0;
        // The title is larger than the text that the estimate is for.
        for line in wrapped(self.title, room / 1.25) {
            y += TITLE_LINE;
            writeln!(text, "<text class=\"title\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(&line))?;
        }
        for line in wrapped(self.note, room) {
            y += LINE;
            writeln!(text, "<text class=\"faint\" x=\"{MARGIN}\" y=\"{y}\">{}</text>", escaped(&line))?;
        }
        let mut x = width;
        for Entry { symbol, name } in &self.legend {
            let needed = SYMBOL + text_width(name);
            if x + needed > width - MARGIN {
                (x, y) = (MARGIN, y + LINE);
            }
            writeln!(text, "<g transform=\"translate({x:.1} {:.1})\">{symbol}</g>", y - 4.0)?;
            writeln!(text, "<text x=\"{:.1}\" y=\"{y}\">{}</text>", x + SYMBOL, escaped(name))?;
            x += needed + GAP;
        }
        Ok(y + 6.0)
    }
}

/// Breaks text between words into lines of at most this width.
fn wrapped(text: &str, width: f64) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if text_width(line) + text_width(word) + text_width(" ") <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
