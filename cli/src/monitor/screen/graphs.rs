//! Figures over time.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Sparkline;

use super::palette::STRONG;

/// A figure over time, with the top of its scale.
pub(super) struct Graph {
    pub title: &'static str,
    /// Times and values, the last first.
    pub points: Vec<(f64, f64)>,
    pub top: f64,
    /// Format of a value.
    pub said: fn(f64) -> String,
    /// The last value, formatted.
    pub last: String,
    pub style: Style,
}

const SCALE: f64 = 1000.0;

impl Graph {
    /// Sets the last value up to this time.
    pub(super) fn close(&mut self, end: f64) {
        let last = self.points.iter().find(|(at, _)| *at <= end);
        self.last = last.map(|(_, value)| (self.said)(*value)).unwrap_or_default();
    }

    /// Draws the title above columns, each the mean of its time.
    pub(super) fn draw(&self, frame: &mut Frame<'_>, area: Rect, end: f64, seconds_per_cell: f64) {
        if area.height < 2 || area.width < 8 {
            return;
        }
        let title = Line::from(vec![
            Span::styled(self.title, STRONG),
            Span::raw(" "),
            Span::styled(self.last.clone(), self.style),
        ]);
        frame.render_widget(title, Rect { height: 1, ..area });
        let columns = self.columns(area.width.into(), end, seconds_per_cell);
        let plot = Rect { y: area.y + 1, height: area.height - 1, ..area };
        let line = Sparkline::default().data(columns).max(SCALE as u64).style(self.style).absent_value_symbol(" ");
        frame.render_widget(line, plot);
    }

    /// Values of columns, the newest to the right; `None` without samples.
    fn columns(&self, count: usize, end: f64, seconds_per_cell: f64) -> Vec<Option<u64>> {
        let mut sums = vec![(0.0, 0u32); count];
        for (at, value) in &self.points {
            let age = ((end - at) / seconds_per_cell).floor();
            if age >= 0.0 && age < count as f64 {
                let (sum, seen) = &mut sums[count - 1 - age as usize];
                *sum += value;
                *seen += 1;
            }
        }
        let scaled = |(sum, seen): (f64, u32)| {
            let share = sum / f64::from(seen) / self.top;
            (seen > 0).then(|| (share.clamp(0.0, 1.0) * SCALE).round() as u64)
        };
        let mut columns: Vec<_> = sums.into_iter().map(scaled).collect();
        bridge(&mut columns);
        columns
    }
}

/// Fills single empty columns: samples and columns have different intervals.
fn bridge(columns: &mut [Option<u64>]) {
    for place in 1..columns.len().saturating_sub(1) {
        if columns[place].is_none() && columns[place + 1].is_some() {
            columns[place] = columns[place - 1];
        }
    }
}

#[cfg(test)]
mod tests {
    use ratatui::style::Style;

    use super::Graph;

    fn columns(points: &[(f64, f64)], count: usize, end: f64, seconds: f64) -> Vec<Option<u64>> {
        let (title, last) = ("", String::new());
        Graph { title, points: points.to_vec(), top: 100.0, said: |_| String::new(), last, style: Style::new() }
            .columns(count, end, seconds)
    }

    #[test]
    fn each_column_is_the_mean_of_its_time() {
        let points = [(0.0, 10.0), (1.0, 20.0), (2.0, 40.0), (3.0, 60.0)];
        assert_eq!(columns(&points, 2, 3.0, 2.0), [Some(150), Some(500)]);
        assert_eq!(columns(&points, 6, 3.0, 1.0), [None, None, Some(100), Some(200), Some(400), Some(600)]);
    }

    #[test]
    fn a_gap_is_shown_and_a_single_missing_column_is_none() {
        let points = [(0.0, 50.0), (2.0, 50.0), (6.0, 120.0)];
        let seen = columns(&points, 7, 6.0, 1.0);
        assert_eq!(seen, [Some(500), Some(500), Some(500), None, None, None, Some(1000)]);
    }
}
