//! The package's sources.

use std::fs;
use std::path::{Path, PathBuf};

use crate::init::change;

/// A source that could be read.
pub(super) struct Source {
    pub name: String,
    /// With lines that end in `\n`, and as its places count it.
    pub text: String,
    pub file: syn::File,
}

/// Every source below a folder, by name; and which of them could not be read.
pub(super) fn read(folder: &Path, workspace: &Path) -> (Vec<Source>, Vec<String>) {
    let mut paths = Vec::new();
    collect(folder, &mut paths);
    paths.sort_unstable();
    let (mut sources, mut notes) = (Vec::new(), Vec::new());
    for path in paths {
        let name = change::name(&path, workspace);
        let Ok(text) = fs::read_to_string(&path) else {
            notes.push(format!("`{name}` cannot be read, and was not looked at"));
            continue;
        };
        let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n");
        // syn takes such a line off, and counts from there.
        let text = if text.starts_with("#!/") { text.replacen("#!", "//", 1) } else { text };
        match syn::parse_file(&text) {
            Ok(file) => sources.push(Source { name, text, file }),
            Err(error) => {
                let line = error.span().start().line;
                notes.push(format!("{name}:{line}: {error}; this file was not looked at"));
            }
        }
    }
    (sources, notes)
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // Links are not followed: they can lead around in a circle.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&path, paths),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") => {
                paths.push(path);
            }
            _ => {}
        }
    }
}
