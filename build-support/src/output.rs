use std::path::{Path, PathBuf};

use gpu_tuned_core::atomic_file;

use crate::BuildError;

/// The whole table, for the attribute.
pub(crate) const TABLE: &str = "gpu-tuned.resolved.toml";
/// The runtime's part of the table.
pub(crate) const RUNTIME_TABLE: &str = "gpu-tuned.runtime.toml";

/// Writes the file `name` in `folder` and returns its path. A file with the same text is not rewritten.
pub(crate) fn write(folder: &Path, name: &str, text: &str) -> Result<PathBuf, BuildError> {
    let path = folder.join(name);
    if std::fs::read_to_string(&path).is_ok_and(|present| present == text) {
        return Ok(path);
    }
    match atomic_file::replace(&path, text) {
        Ok(()) => Ok(path),
        Err(cause) => Err(BuildError::Write { path, cause }),
    }
}
