//! Where `gpu-tuned.lock` is, and writing it.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use gpu_tuned_core::lock::{Lock, LockedWorkload, merged};
use gpu_tuned_core::source::Source;

use super::MeasureError;
use super::session::package;

/// The environment variable that has the path.
const VARIABLE: &str = "GPU_TUNED_LOCK";

pub(super) fn path() -> PathBuf {
    let given = env::var_os(VARIABLE).filter(|path| !path.is_empty()).map(PathBuf::from);
    given.unwrap_or_else(|| package().unwrap_or_default().join(Lock::NAME))
}

/// Writes a workload beside what is on record, and returns what of it no longer holds.
pub(super) fn update(path: &Path, name: &str, workload: &LockedWorkload) -> Result<Vec<String>, MeasureError> {
    let text = fs::read_to_string(path).ok();
    let source = text.as_deref().map(|text| Source { file: Lock::NAME, text });
    let merged = merged(source, name, workload).map_err(|mistakes| MeasureError::Written { mistakes: format!("{mistakes:?}") })?;
    fs::write(path, merged.text).map_err(|error| MeasureError::Written { mistakes: error.to_string() })?;
    Ok(merged.dropped)
}
