//! Marks that git leaves in a file when both sides of a merge changed it.

use crate::source::{FileError, Source};

const MARKERS: [&str; 4] = ["<<<<<<<", "|||||||", "=======", ">>>>>>>"];

/// The first conflict marker, with what to do about it. No line of a lock begins like one otherwise.
pub(crate) fn marker(source: Source<'_>, remedy: &str) -> Option<FileError> {
    let mut offset = 0;
    for line in source.text.split_inclusive('\n') {
        if MARKERS.iter().any(|marker| is(line, marker)) {
            return Some(source.error(&(offset..offset), format!("a merge left both sides here: {remedy}")));
        }
        offset += line.len();
    }
    None
}

/// Whether the line is the marker, alone or with the name of a side.
fn is(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.trim_end().is_empty() || rest.starts_with(' '))
}
