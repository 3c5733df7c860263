//! JSON on standard output.

use std::path::Path;

use serde::{Serialize, Serializer};

/// Indented JSON with a line break at the end.
pub(crate) fn pretty(value: &impl Serialize) -> String {
    format!("{}\n", serde_json::to_string_pretty(value).expect("BUG: reports are always JSON"))
}

/// A path as text, with replacement characters for bytes that are not UTF-8.
#[derive(Clone, Copy)]
pub(crate) struct PathText<'a>(pub &'a Path);

impl Serialize for PathText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.display())
    }
}
