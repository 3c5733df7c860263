//! What `--json` prints where JSON has no word for a thing.

use std::path::Path;

use serde::{Serialize, Serializer};

/// A path as a text: what of it is not UTF-8 is replaced, as everywhere where paths are shown.
#[derive(Clone, Copy)]
pub(crate) struct PathText<'a>(pub &'a Path);

impl Serialize for PathText<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.display())
    }
}
