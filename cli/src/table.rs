//! Tables for the terminal, and the styles of what they say.

use anstyle::{AnsiColor, Style};

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const MARKED: Style = AnsiColor::Yellow.on_default();

/// The text in a style.
pub(crate) fn styled(style: Style, text: impl core::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Which end of a column its cells keep to.
#[derive(Clone, Copy)]
pub(crate) enum Align {
    Left,
    Right,
}

/// Rows of aligned cells. What follows the last column of a row is not aligned.
pub(crate) struct Table {
    columns: Vec<(&'static str, Align)>,
    rows: Vec<Row>,
    indent: usize,
}

struct Row {
    style: Style,
    cells: Vec<String>,
    rest: String,
}

impl Table {
    /// A table; with empty headings it prints none.
    pub(crate) fn new(indent: usize, columns: impl Into<Vec<(&'static str, Align)>>) -> Self {
        Self { columns: columns.into(), rows: Vec::new(), indent }
    }

    /// Adds a row. It may have fewer cells than there are columns.
    pub(crate) fn row(&mut self, style: Style, cells: impl Into<Vec<String>>, rest: impl Into<String>) {
        self.rows.push(Row { style, cells: cells.into(), rest: rest.into() });
    }

    /// The lines.
    pub(crate) fn print(&self) -> String {
        let headings = self.columns.iter().map(|(heading, _)| (*heading).to_owned()).collect();
        let heading = Row { style: BOLD, cells: headings, rest: String::new() };
        let has_heading = self.columns.iter().any(|(heading, _)| !heading.is_empty());
        let rows = has_heading.then_some(&heading).into_iter().chain(&self.rows);
        let width = |column: usize| {
            let cells = rows.clone().filter_map(|row| row.cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        rows.map(|row| self.line(row, &widths)).collect()
    }

    fn line(&self, row: &Row, widths: &[usize]) -> String {
        let cells = row.cells.iter().zip(&self.columns).zip(widths);
        let aligned = cells.map(|((cell, (_, align)), width)| match align {
            Align::Left => format!("{cell:<width$}"),
            Align::Right => format!("{cell:>width$}"),
        });
        let mut line = aligned.collect::<Vec<_>>().join("  ");
        if row.rest.is_empty() {
            line.truncate(line.trim_end().len());
        } else {
            line.push_str("  ");
        }
        format!("{:indent$}{}{}\n", "", styled(row.style, line), row.rest, indent = self.indent)
    }
}
