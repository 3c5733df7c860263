//! Conflict markers of git.

use gpu_tuned_core::source::{FileError, Source};

const MARKERS: [&str; 4] = ["<<<<<<<", "|||||||", "=======", ">>>>>>>"];

/// Finds the first conflict marker; the message ends with `remedy`.
pub(crate) fn marker(source: Source<'_>, remedy: &str) -> Option<FileError> {
    let mut offset = 0;
    for line in source.text.split_inclusive('\n') {
        if MARKERS.iter().any(|marker| is_marker(line, marker)) {
            return Some(source.error(&(offset..offset), format!("a merge left both sides here: {remedy}")));
        }
        offset += line.len();
    }
    None
}

/// Returns true for a marker alone or followed by a branch name.
fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.trim_end().is_empty() || rest.starts_with(' '))
}
