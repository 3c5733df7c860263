//! Title, note and legend above a plot.

use core::fmt::{self, Write as _};

use super::svg::{escaped, text_width};

/// Left end of the lines above a plot.
const MARGIN: f64 = 16.0;
const TITLE_LINE: f64 = 20.0;
const LINE: f64 = 18.0;
/// Width of a symbol with the space after it.
const SYMBOL: f64 = 34.0;
const GAP: f64 = 18.0;

/// The lines above a plot.
pub(super) struct Header<'a> {
    pub title: &'a str,
    /// Explanation that the legend lacks; may be empty.
    pub note: &'a str,
    pub legend: Vec<Entry>,
}

/// An entry of a legend.
pub(super) struct Entry {
    /// Elements from 0 to 28 on the x axis, around 0 on the y axis.
    pub symbol: String,
    pub name: String,
}

impl Header<'_> {
    /// Draws the lines, as many as the width needs. Returns the lower end of the last one.
    pub(super) fn draw(&self, text: &mut String, width: f64) -> Result<f64, fmt::Error> {
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
