//! Bars of one line: a share with its figures.

use ratatui::style::Style;
use ratatui::text::{Line, Span};

use super::styles::FAINT;

const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/// A bar of a number of cells.
pub(super) fn bar(cells: usize, share: f64) -> (String, String) {
    let eighths = (share.clamp(0.0, 1.0) * (cells * 8) as f64).round() as usize;
    let (whole, part) = (eighths / 8, eighths % 8);
    let mut filled = "█".repeat(whole);
    filled.extend(part.checked_sub(1).map(|part| EIGHTHS[part]));
    let left = cells - filled.chars().count();
    (filled, "·".repeat(left))
}

/// A line: name, bar of a share, and figures.
pub(super) struct Bar {
    pub name: &'static str,
    pub share: Option<f64>,
    pub figures: String,
    pub style: Style,
}

impl Bar {
    /// The line in a number of cells, with `figures` of them behind the bar.
    pub(super) fn line(&self, cells: usize, figures: usize) -> Line<'static> {
        let name = format!("{:<13}", self.name);
        let length = cells.saturating_sub(name.len() + figures + 2);
        let mut spans = vec![Span::raw(name)];
        if let Some(share) = self.share.filter(|_| length >= 4) {
            let (filled, left) = bar(length, share);
            spans.extend([Span::styled(filled, self.style), Span::styled(left, FAINT), Span::raw(" ")]);
            spans.push(Span::raw(format!("{:>figures$}", self.figures)));
        } else {
            let room = if length >= 4 { length + 1 + figures } else { figures };
            spans.push(Span::raw(format!("{:>room$}", self.figures)));
        }
        Line::from(spans)
    }
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn bars_are_as_long_as_their_share() {
        for (share, filled) in
            [(0.0, ""), (1.0, "████"), (0.5, "██"), (0.28, "█▏"), (0.01, ""), (7.0, "████"), (-1.0, "")]
        {
            let (bar, left) = bar(4, share);
            assert_eq!((bar.as_str(), bar.chars().count() + left.chars().count()), (filled, 4), "{share}");
        }
    }
}
