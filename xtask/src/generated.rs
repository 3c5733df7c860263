//! Generated files: tables of Markdown, pages with generated parts, and comparison with the files of the workspace.
//!
//! `lab/pages` compiles this file, too.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use gpu_tuned_core::atomic_file;

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

/// Writes files, each a path below `root` and its text; with `check` only compares them. `command` writes them.
pub(crate) fn update(root: &Path, files: &[(String, String)], check: bool, command: &str) -> Result<()> {
    let is_stale = |(file, text): &&(String, String)| fs::read_to_string(root.join(file)).ok().as_ref() != Some(text);
    let stale: Vec<_> = files.iter().filter(is_stale).collect();
    if check {
        let names: Vec<_> = stale.iter().map(|(file, _)| file.as_str()).collect();
        ensure!(names.is_empty(), "not current: {}; run `{command}`", names.join(", "));
        return Ok(());
    }
    for (file, text) in stale {
        let path = root.join(file);
        let folder = path.parent().map_or(Ok(()), fs::create_dir_all);
        folder.and_then(|()| atomic_file::replace(&path, text)).with_context(|| format!("cannot write {file}"))?;
        println!("wrote {file}");
    }
    Ok(())
}
