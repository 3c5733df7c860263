//! Lines to be edited by hand, in however many files.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;

use super::sources::Source;
use crate::init::change;

/// A place in a source that is to be edited, and for what.
#[derive(Debug, Serialize)]
pub(in crate::init) struct Edit {
    pub file: String,
    pub line: usize,
    pub what: String,
}

/// What replaces what, by bytes.
type Changes = Vec<(Range<usize>, String)>;

/// Edits, and what becomes of the sources.
#[derive(Default)]
pub(super) struct Patch<'a> {
    edits: Vec<Edit>,
    files: BTreeMap<&'a str, (&'a Source, Changes)>,
}

impl<'a> Patch<'a> {
    /// Notes what an edit is for that begins at a byte of a source.
    pub(super) fn note(&mut self, source: &Source, at: usize, what: impl Into<String>) {
        let line = source.text[..at].matches('\n').count() + 1;
        self.edits.push(Edit { file: source.name.clone(), line, what: what.into() });
    }

    /// Puts text in the place of some.
    pub(super) fn replace(&mut self, source: &'a Source, range: Range<usize>, new: impl Into<String>) {
        self.files.entry(&source.name).or_insert_with(|| (source, Vec::new())).1.push((range, new.into()));
    }

    pub(super) fn insert(&mut self, source: &'a Source, at: usize, new: impl Into<String>) {
        self.replace(source, at..at, new);
    }

    /// The edits, all files' changes as `diff -u` has them, and the lines that are new or other than they were.
    pub(super) fn finish(self) -> (Vec<Edit>, String, usize) {
        let (mut diffs, mut lines) = (String::new(), 0);
        for (name, (source, mut changes)) in self.files {
            changes.sort_by_key(|(range, _)| std::cmp::Reverse(range.start));
            let mut text = source.text.clone();
            for (range, new) in changes {
                text.replace_range(range, &new);
            }
            lines += change::lines(&source.text, &text);
            diffs.push_str(&change::unified(&source.text, &text, &format!("a/{name}"), &format!("b/{name}")));
        }
        let mut edits = self.edits;
        edits.sort_by(|a, b| (&a.file, a.line).cmp(&(&b.file, b.line)));
        (edits, diffs, lines)
    }
}
