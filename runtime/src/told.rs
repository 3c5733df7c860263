//! What somebody is to know, whether the program has a log or not.

use std::io::{Write, stderr};

/// A warning in the log; on standard error where the log has no warnings.
pub(crate) fn warn(text: &str) {
    tracing::warn!("{text}");
    if !tracing::enabled!(tracing::Level::WARN) {
        // That nobody reads it is no reason to stop.
        let _ = writeln!(stderr(), "gpu-tuned: {text}");
    }
}
