//! Tables for the terminal, and styles of text.

use anstyle::{AnsiColor, Style};

use super::wrap::{WIDTH, columns, wrapped};

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const MARKED: Style = AnsiColor::Yellow.on_default();

/// Longest cell, in characters. Longer ones make a table unreadable, and `format!` panics at widths above 65,535.
const MAX_CELL: usize = 200;
/// Minimum column width for wrapped text.
const MIN_WIDTH: usize = 24;

pub(crate) fn styled(style: Style, text: impl core::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Replaces line breaks, which names of others can have.
pub(crate) fn one_line(text: &str) -> String {
    text.replace('\n', "\u{fffd}")
}

/// Rows of aligned cells. Text after the last cell is wrapped at the width of the terminal, unless the cells are wider.
pub(crate) struct Table {
    /// Headings; true for columns of numbers, which are right-aligned.
    columns: Vec<(String, bool)>,
    rows: Vec<Row>,
    indent: usize,
}

struct Row {
    style: Style,
    cells: Vec<String>,
    rest: String,
}

impl Table {
    /// A table with these headings; empty ones are not printed. Headings of numbers begin with `>`.
    pub(crate) fn new(indent: usize, headings: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let column = |heading: &str| (heading.trim_start_matches('>').to_owned(), heading.starts_with('>'));
        let columns = headings.into_iter().map(|heading| column(heading.as_ref())).collect();
        Self { columns, rows: Vec::new(), indent }
    }

    /// Adds a row, which may have fewer cells than columns. Long cells are cut, and line breaks in them are replaced.
    pub(crate) fn row(&mut self, style: Style, cells: impl Into<Vec<String>>, rest: impl Into<String>) {
        let cut = |cell: String| match cell.char_indices().nth(MAX_CELL) {
            Some((end, _)) => format!("{}…", &cell[..end]),
            None => cell,
        };
        let cells = cells.into().into_iter().map(|cell| cut(one_line(&cell))).collect();
        self.rows.push(Row { style, cells, rest: rest.into() });
    }

    pub(crate) fn print(&self) -> String {
        let headings = self.columns.iter().map(|(heading, _)| heading.clone()).collect();
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

    /// The text after cells of this width.
    fn rest(&self, row: &Row, cells: usize) -> String {
        let begin = self.indent + cells;
        if begin + columns(&row.rest) <= WIDTH || begin > WIDTH {
            row.rest.clone()
        } else if begin + MIN_WIDTH <= WIDTH {
            wrapped(&row.rest, begin)
        } else {
            let below = self.indent + 4;
            format!("\n{:below$}{}", "", wrapped(&row.rest, below))
        }
    }

    fn line(&self, row: &Row, widths: &[usize]) -> String {
        let cells = row.cells.iter().zip(&self.columns).zip(widths);
        let aligned = cells.map(
            |((cell, (_, is_number)), width)| {
                if *is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            },
        );
        let mut line = aligned.collect::<Vec<_>>().join("  ");
        let rest = if row.rest.is_empty() {
            line.truncate(line.trim_end().len());
            String::new()
        } else {
            line.push_str("  ");
            self.rest(row, columns(&line))
        };
        format!("{:indent$}{}{rest}\n", "", styled(row.style, line), indent = self.indent)
    }
}

#[cfg(test)]
mod tests {
    use super::{PLAIN, Table};

    #[test]
    fn long_cells_are_cut() {
        let mut table = Table::new(0, ["name", ">count"]);
        table.row(PLAIN, ["ß".repeat(70_000), "1".to_owned()], "");
        let printed = anstream::adapter::strip_str(&table.print()).to_string();
        assert_eq!(printed.lines().nth(1).map(str::len), Some("ß".len() * 200 + "…      1".len()));
    }

    #[test]
    fn text_after_cells_is_wrapped_unless_the_cells_are_wide() {
        let told = "what is said of it, in more words than there is room for on a line of a terminal";
        let table = |width: usize| {
            let mut table = Table::new(2, ["name"]);
            table.row(PLAIN, ["x".repeat(width)], told);
            anstream::adapter::strip_str(&table.print()).to_string()
        };
        assert_eq!(
            table(10).lines().skip(1).collect::<Vec<_>>(),
            [
                "  xxxxxxxxxx  what is said of it, in more words than there is room for on a line",
                "              of a terminal"
            ]
        );
        let lines = table(60);
        let lines: Vec<_> = lines.lines().skip(1).collect();
        assert_eq!(
            lines[1..],
            ["      what is said of it, in more words than there is room for on a line of a", "      terminal"]
        );
        assert_eq!(table(90).lines().count(), 2);
    }
}
