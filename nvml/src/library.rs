//! Finds and starts the management library.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::{DriverError, LIBRARY_VARIABLE};

/// Locations outside the system's search path: WSL2, NixOS.
const EXTRA_PATHS: [&str; 2] = ["/usr/lib/wsl/lib/libnvidia-ml.so.1", "/run/opengl-driver/lib/libnvidia-ml.so.1"];

/// File name for the system's own search, as in nvml-wrapper.
const SYSTEM_NAME: &str = if cfg!(target_os = "linux") { "libnvidia-ml.so.1" } else { "nvml.dll" };

/// Opens and starts the library.
pub(crate) fn open(library: Option<&Path>) -> Result<Nvml, DriverError> {
    let candidates = candidates(library, std::env::var_os(LIBRARY_VARIABLE).as_deref());
    let mut reason = None;
    for path in &candidates {
        match Nvml::builder().lib_path(path.as_os_str()).init() {
            Ok(nvml) => return check_shutdown(nvml, path),
            Err(NvmlError::LibloadingError(error)) => {
                reason.get_or_insert_with(|| error.to_string());
            }
            Err(NvmlError::FailedToLoadSymbol(reason)) => {
                return Err(DriverError::NotNvml { library: path.clone(), reason });
            }
            Err(error) => return Err(DriverError::from_init(&error)),
        }
    }
    Err(DriverError::NoLibrary { tried: candidates, reason: reason.unwrap_or_default() })
}

/// A path from the caller or the environment is the only candidate: falling back to another library would be a
/// surprise.
fn candidates(library: Option<&Path>, variable: Option<&OsStr>) -> Vec<PathBuf> {
    let named = library.map(Path::to_owned).or_else(|| variable.filter(|path| !path.is_empty()).map(PathBuf::from));
    match named {
        Some(path) => vec![path],
        None => [SYSTEM_NAME].into_iter().chain(EXTRA_PATHS).map(PathBuf::from).collect(),
    }
}

/// Rejects a library without `nvmlShutdown`, because nvml-wrapper panics when it drops one.
fn check_shutdown(nvml: Nvml, path: &Path) -> Result<Nvml, DriverError> {
    let Err(error) = &nvml.lib().nvmlShutdown else { return Ok(nvml) };
    let error = DriverError::NotNvml { library: path.to_owned(), reason: error.to_string() };
    std::mem::forget(nvml);
    Err(error)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::{Path, PathBuf};

    use super::candidates;

    #[test]
    fn the_callers_path_goes_before_the_variable_and_both_before_the_system() {
        let (path, variable) = (Path::new("/a/nvml.so"), OsStr::new("/b/nvml.so"));
        assert_eq!(candidates(Some(path), Some(variable)), [PathBuf::from(path)]);
        assert_eq!(candidates(None, Some(variable)), [PathBuf::from(variable)]);
        for unset in [None, Some(OsStr::new(""))] {
            let candidates = candidates(None, unset);
            assert!(candidates.len() > 1 && !candidates.contains(&PathBuf::new()), "{candidates:?}");
        }
    }
}
