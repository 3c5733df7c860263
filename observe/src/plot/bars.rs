//! Bars of several runs for each of some things.

use std::fmt::{self, Write as _};

use super::{Entry, Header, LINE, MARGIN, PlotSize, drawn, escaped, open, text_width};

/// Height of a bar.
const BAR: f64 = 13.0;
/// Space between groups of bars.
const SPACE: f64 = 10.0;

/// A plot of horizontal bars in groups, each with its label.
#[derive(Clone, Debug, Default)]
pub struct BarPlot {
    /// Width of the plot.
    pub size: PlotSize,
    /// Heading.
    pub title: String,
    /// Explanation of the bars' length; may be empty.
    pub note: String,
    /// Names of the bars of a group, at most four.
    pub names: Vec<String>,
    /// Groups, from the top.
    pub groups: Vec<BarGroup>,
}

/// The bars of one thing.
#[derive(Clone, Debug)]
pub struct BarGroup {
    /// Its name.
    pub name: String,
    /// Length and label of each bar, in the order of the names.
    pub bars: Vec<(f64, String)>,
}

impl BarPlot {
    /// Draws the plot.
    pub fn svg(&self) -> String {
        drawn(|text| self.draw(text))
    }

    fn draw(&self, text: &mut String) -> fmt::Result {
        let width = self.size.width();
        let mut above = String::new();
        let symbol = |index: usize| format!("<rect class=\"c{index}\" y=\"-5\" width=\"28\" height=\"9\"/>");
        let entry = |(index, name): (usize, &String)| Entry { symbol: symbol(index), name: name.clone() };
        let legend = self.names.iter().enumerate().map(entry).collect();
        let top = Header { title: &self.title, note: &self.note, legend }.draw(&mut above, width)?;
        let bars: usize = self.groups.iter().map(|group| group.bars.len()).sum();
        let height = top + SPACE + BAR * bars as f64 + SPACE * self.groups.len() as f64;
        open(text, [width, height], &self.title)?;
        text.push_str(&above);
        let all = || self.groups.iter().flat_map(|group| &group.bars);
        let widest = |texts: &mut dyn Iterator<Item = &String>| texts.map(|it| text_width(it)).fold(0.0, f64::max);
        let left = MARGIN + widest(&mut self.groups.iter().map(|group| &group.name)) + 8.0;
        let room = width - left - MARGIN - widest(&mut all().map(|(_, label)| label)) - 6.0;
        let longest = all().map(|(length, _)| *length).fold(f64::MIN_POSITIVE, f64::max);
        let mut y = top + SPACE;
        for BarGroup { name, bars } in &self.groups {
            let middle = y + BAR * bars.len() as f64 / 2.0 + 4.0;
            let (x, name) = (left - 8.0, escaped(name));
            writeln!(text, "<text x=\"{x:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{name}</text>")?;
            for (index, (length, label)) in bars.iter().enumerate() {
                let (end, height) = (length / longest * room, BAR - 2.0);
                writeln!(
                    text,
                    "<rect class=\"c{index}\" x=\"{left:.1}\" y=\"{y:.1}\" width=\"{end:.1}\" height=\"{height}\"/>"
                )?;
                let (x, y_label, label) = (left + end + 6.0, y + LINE / 2.0 + 1.0, escaped(label));
                writeln!(text, "<text x=\"{x:.1}\" y=\"{y_label:.1}\">{label}</text>")?;
                y += BAR;
            }
            y += SPACE;
        }
        Ok(())
    }
}
