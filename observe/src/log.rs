//! Warnings for users, with or without a log.

use std::io::{Write, stderr};

/// Writes a warning to the log, or to standard error where the log has warnings switched off.
pub fn warn_user(text: &str) {
    tracing::warn!("{text}");
    if !tracing::enabled!(tracing::Level::WARN) {
        // A closed standard error must not end training.
        let _ = writeln!(stderr(), "gpu-tuned: {text}");
    }
}
