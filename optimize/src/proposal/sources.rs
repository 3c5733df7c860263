//! Sources of a package.

use std::fs;
use std::path::{Path, PathBuf};

use gpu_tuned_attribute::sources::{SourceError, SourceFile};

use crate::diff::display_name;

pub(super) struct Source {
    pub name: String,
    /// Text with `\n` as line ending, to which spans refer.
    pub text: String,
    pub file: syn::File,
}

/// Sources below a folder by name, and notes on unreadable ones.
pub(super) fn read(folder: &Path, workspace: &Path) -> (Vec<Source>, Vec<String>) {
    let mut paths = Vec::new();
    collect(folder, &mut paths);
    paths.sort_unstable();
    let (mut sources, mut notes) = (Vec::new(), Vec::new());
    for path in paths {
        match parsed(&path, workspace) {
            Ok(source) => sources.push(source),
            Err(note) => notes.push(note),
        }
    }
    (sources, notes)
}

pub(super) fn one(path: &Path, workspace: &Path) -> Option<Source> {
    parsed(path, workspace).ok()
}

fn parsed(path: &Path, workspace: &Path) -> Result<Source, String> {
    let name = display_name(path, workspace);
    match SourceFile::read(path) {
        Ok(SourceFile { text, syntax, .. }) => Ok(Source { name, text, file: syntax }),
        Err(SourceError::Io { .. }) => Err(format!("`{name}` cannot be read, and was skipped")),
        Err(SourceError::Syntax { line, message, .. }) => {
            Err(format!("{name}:{line}: {message}; this file was skipped"))
        }
    }
}

fn collect(folder: &Path, paths: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        // Links may be circular.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(&path, paths),
            Ok(kind) if kind.is_file() && path.extension().is_some_and(|extension| extension == "rs") => {
                paths.push(path);
            }
            _ => {}
        }
    }
}
