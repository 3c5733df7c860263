//! Sources of a package, and edits by hand in several of them.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};

use gpu_tuned_attribute::sources::{SourceError, SourceFile};
use serde::Serialize;

use crate::diff::{added_lines, display_name, unified};

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

/// A line to edit, and the reason.
#[derive(Debug, Serialize)]
pub struct Edit {
    /// File of the edit.
    pub file: String,
    /// First line of the edit.
    pub line: usize,
    /// Reason for the edit.
    pub what: String,
}

type Changes = Vec<(Range<usize>, String)>;

#[derive(Default)]
pub(super) struct Patch<'a> {
    edits: Vec<Edit>,
    files: BTreeMap<&'a str, (&'a Source, Changes)>,
}

impl<'a> Patch<'a> {
    /// Adds the reason of an edit at a byte of a source.
    pub(super) fn note(&mut self, source: &Source, at: usize, what: impl Into<String>) {
        let line = source.text[..at].matches('\n').count() + 1;
        self.edits.push(Edit { file: source.name.clone(), line, what: what.into() });
    }

    pub(super) fn replace(&mut self, source: &'a Source, range: Range<usize>, new: impl Into<String>) {
        self.files.entry(&source.name).or_insert_with(|| (source, Vec::new())).1.push((range, new.into()));
    }

    pub(super) fn insert(&mut self, source: &'a Source, at: usize, new: impl Into<String>) {
        self.replace(source, at..at, new);
    }

    /// The edits, the diff of all files, and the number of new lines.
    pub(super) fn finish(self) -> (Vec<Edit>, String, usize) {
        let (mut diffs, mut lines) = (String::new(), 0);
        for (name, (source, mut changes)) in self.files {
            changes.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
            let mut text = source.text.clone();
            for (range, new) in changes {
                text.replace_range(range, &new);
            }
            lines += added_lines(&source.text, &text);
            diffs.push_str(&unified(&source.text, &text, &format!("a/{name}"), &format!("b/{name}")));
        }
        let mut edits = self.edits;
        edits.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        (edits, diffs, lines)
    }
}
