//! What somebody is to know, whether the program has a log or not.

use std::io::{Write, stderr};
#[cfg(feature = "warm")]
use std::path::Path;

#[cfg(feature = "warm")]
use serde::Serializer;

/// A warning in the log; on standard error where the log has no warnings.
pub(crate) fn warn(text: &str) {
    tracing::warn!("{text}");
    if !tracing::enabled!(tracing::Level::WARN) {
        // That nobody reads it is no reason to stop.
        let _ = writeln!(stderr(), "gpu-tuned: {text}");
    }
}

/// A path as text in JSON: what of it is not UTF-8 is replaced, as everywhere where paths are shown.
#[cfg(feature = "warm")]
pub(crate) fn path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}
