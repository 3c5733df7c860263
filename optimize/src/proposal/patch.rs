//! Edits by hand in several files.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use super::sources::Source;
use crate::diff::{added_lines, unified};

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
