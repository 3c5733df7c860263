//! Paths that mean standard input or output.

use std::path::Path;

/// Returns true if a path means the standard input or output. A file of this name is `./-`.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Name of an input in messages.
pub(crate) fn input_name(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Name of an input within a sentence.
pub(crate) fn quoted(path: &Path) -> String {
    if is_standard(path) { input_name(path) } else { format!("`{}`", path.display()) }
}
