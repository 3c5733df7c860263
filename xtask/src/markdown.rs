//! Tables of Markdown, and pages with generated parts.

/// Formats values as the cells of a row.
macro_rules! cells {
    ($($cell:expr),* $(,)?) => { [$($cell.to_string()),*] };
}
pub(crate) use cells;

/// Formats a table; empty without rows.
pub(crate) fn table<const N: usize>(headings: [&str; N], rows: impl IntoIterator<Item = [String; N]>) -> String {
    let rows: String = rows.into_iter().map(|row| line(&row)).collect();
    if rows.is_empty() { rows } else { format!("{}|{}\n{rows}", line(&headings), "---|".repeat(N)) }
}

fn line(cells: &[impl AsRef<str>]) -> String {
    let cell = |cell: &str| if cell.is_empty() { " |".to_owned() } else { format!(" {cell} |") };
    format!("|{}\n", cells.iter().map(|text| cell(text.as_ref())).collect::<String>())
}

/// Replaces the parts of a page, each a name in braces. An empty part leaves no gap.
pub(crate) fn filled(page: &str, parts: &[(&str, String)]) -> String {
    let replace = |page: String, (name, text): &(&str, String)| page.replace(&format!("{{{name}}}"), text.trim_end());
    let page = parts.iter().fold(page.to_owned(), replace);
    page.replace("\n\n\n\n", "\n\n")
}
