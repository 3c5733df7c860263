//! Raw results of the hardware tests: a folder for each device, with files of JSON lines.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::de::DeserializeOwned;

/// Folder of the results.
pub(crate) const FOLDER: &str = "tests/hardware/results";

/// Folders in `results` that have `file`, sorted.
pub(crate) fn folders_with(results: &Path, file: &str) -> Result<Vec<PathBuf>> {
    let read = || -> std::io::Result<Vec<_>> { fs::read_dir(results)?.map(|entry| Ok(entry?.path())).collect() };
    let mut folders = read().with_context(|| format!("cannot read {}", results.display()))?;
    folders.retain(|folder| folder.join(file).is_file());
    folders.sort();
    Ok(folders)
}

/// Parses lines of JSON.
pub(crate) fn lines<T: DeserializeOwned>(file: &str, text: &str) -> Result<Vec<T>> {
    let numbered = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    numbered.map(|(index, line)| serde_json::from_str(line).with_context(|| format!("{file}:{}", index + 1))).collect()
}
