//! Environment variables by which `cargo gpu-tuned` requests measurements of a program.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

use gpu_tuned_project::lock::Lock;

/// Requests a measurement, with the value `1`.
const MEASURE: &str = "GPU_TUNED_MEASURE";
/// Requests one line of JSON on standard output, with the value `1`.
const JSON: &str = "GPU_TUNED_MEASURE_JSON";
/// Limits the time of a measurement, in whole seconds.
pub(crate) const BUDGET: &str = "GPU_TUNED_MEASURE_BUDGET";
/// Path of the lock.
const LOCK: &str = "GPU_TUNED_LOCK";
/// Requests a kernel cache archive, with the folder to write it to.
const WARM: &str = "GPU_TUNED_WARM";

/// Returns true under `cargo gpu-tuned measure`.
pub fn is_measurement_requested() -> bool {
    is_on(MEASURE)
}

/// Returns true if programs read the result.
pub(crate) fn is_json_requested() -> bool {
    is_on(JSON)
}

/// Requested time of a measurement, as text.
pub(crate) fn requested_budget() -> Option<String> {
    non_empty(BUDGET).map(|text| text.to_string_lossy().into_owned())
}

/// Folder for a kernel cache archive, under `cargo gpu-tuned warm`.
pub fn archive_folder() -> Option<PathBuf> {
    non_empty(WARM).map(PathBuf::from)
}

/// Path of the lock: as requested, or in the folder of the package, or in the current folder.
pub(crate) fn lock_path() -> PathBuf {
    non_empty(LOCK).map_or_else(|| package().unwrap_or_default().join(Lock::NAME), PathBuf::from)
}

/// Folder of the package that cargo runs.
pub(crate) fn package() -> Option<PathBuf> {
    non_empty("CARGO_MANIFEST_DIR").map(PathBuf::from)
}

/// Value of an environment variable, unless empty.
pub(crate) fn non_empty(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|value| !value.is_empty())
}

/// Returns true if a variable is `1`.
pub(crate) fn is_on(variable: &str) -> bool {
    env::var_os(variable).is_some_and(|value| value == "1")
}

/// Name for files and tables from a driver's device name: letters and digits in lower case, hyphens for the rest.
pub fn slug(name: &str) -> String {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join("-").to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::slug;

    #[test]
    fn a_device_gets_a_short_name() {
        assert_eq!(slug("NVIDIA H200 NVL (96 GB)"), "nvidia-h200-nvl-96-gb");
        assert_eq!(slug("CPU (2 cores)"), "cpu-2-cores");
    }
}
