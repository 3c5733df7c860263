//! Kernels: stored as text if the environment requests it, and classified by name.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::KERNELS_VARIABLE;

/// Part of the names of the kernels by which CubeCL measures peaks.
const MEASURES: &str = "throughput";

/// Keeps the text of a module in the folder of [`KERNELS_VARIABLE`], if that is set.
pub(crate) fn keep(text: &[u8]) {
    static KEPT: AtomicUsize = AtomicUsize::new(0);
    let Some(folder) = std::env::var_os(KERNELS_VARIABLE).map(PathBuf::from) else { return };
    let file = folder.join(format!("{}-{}.ptx", std::process::id(), KEPT.fetch_add(1, Ordering::Relaxed)));
    if let Err(error) = fs::write(&file, text) {
        eprintln!("fake-cuda: {}: {error}", file.display());
    }
}

/// Returns true if the kernel of this name measures a peak.
pub(crate) fn measures(name: &str) -> bool {
    name.contains(MEASURES)
}
