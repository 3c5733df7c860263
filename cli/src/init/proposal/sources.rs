//! The package's sources.

use std::fs;
use std::path::{Path, PathBuf};

use gpu_tuned_project::sources::{SourceError, SourceFile};

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
        match parsed(&path, workspace) {
            Ok(source) => sources.push(source),
            Err(note) => notes.push(note),
        }
    }
    (sources, notes)
}

/// One source, if it can be read.
pub(super) fn one(path: &Path, workspace: &Path) -> Option<Source> {
    parsed(path, workspace).ok()
}

fn parsed(path: &Path, workspace: &Path) -> Result<Source, String> {
    let name = change::name(path, workspace);
    match SourceFile::read(path) {
        Ok(SourceFile { text, syntax, .. }) => Ok(Source { name, text, file: syntax }),
        Err(SourceError::Io { .. }) => Err(format!("`{name}` cannot be read, and was not looked at")),
        Err(SourceError::Syntax { line, message, .. }) => {
            Err(format!("{name}:{line}: {message}; this file was not looked at"))
        }
    }
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
