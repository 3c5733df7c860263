use std::path::{Path, PathBuf};

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
    // An interrupted build must not leave half a table behind.
    let draft = folder.join(format!("{name}.draft"));
    let written = std::fs::write(&draft, text).and_then(|()| std::fs::rename(&draft, &path));
    match written {
        Ok(()) => Ok(path),
        Err(cause) => Err(BuildError::Write { path, cause }),
    }
}
