//! What somebody is to know, whether the program has a log or not.

/// A warning in the log; on standard error where the log has no warnings.
pub(crate) fn warn(text: &str) {
    tracing::warn!("{text}");
    if !tracing::enabled!(tracing::Level::WARN) {
        eprintln!("gpu-tuned: {text}");
    }
}
