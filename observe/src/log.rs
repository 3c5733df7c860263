//! Lines for users, with or without a log.

use std::io::{Write, stderr};

use tracing::Level;

/// Writes a warning to the log, or to standard error where the log has warnings switched off.
pub fn warn_user(text: &str) {
    tracing::warn!("{text}");
    if !tracing::enabled!(Level::WARN) {
        print(text);
    }
}

/// Writes a message to the log, or to standard error where the log has no messages of this level.
pub(crate) fn inform_user(text: &str) {
    tracing::info!("{text}");
    if !tracing::enabled!(Level::INFO) {
        print(text);
    }
}

/// Writes a line to standard error, whatever the log.
pub fn print(text: &str) {
    // A closed standard error must not end training.
    let _ = writeln!(stderr(), "gpu-tuned: {text}");
}
