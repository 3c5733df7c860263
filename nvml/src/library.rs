//! Where the management library is, and how it starts.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;

use crate::{DriverError, LIBRARY_VARIABLE};

/// Where the library is when the system's own search does not know it: WSL2, NixOS.
const FURTHER_PLACES: [&str; 2] = ["/usr/lib/wsl/lib/libnvidia-ml.so.1", "/run/opengl-driver/lib/libnvidia-ml.so.1"];

/// What the system searches for: the names that nvml-wrapper has as its default.
const SYSTEM_NAME: &str = if cfg!(target_os = "linux") { "libnvidia-ml.so.1" } else { "nvml.dll" };

/// Opens and starts the library.
pub(crate) fn open(library: Option<&Path>) -> Result<Nvml, DriverError> {
    let places = places(library, std::env::var_os(LIBRARY_VARIABLE).as_deref());
    let mut reason = None;
    for place in &places {
        match Nvml::builder().lib_path(place.as_os_str()).init() {
            Ok(nvml) => return whole(nvml, place),
            Err(NvmlError::LibloadingError(error)) => {
                reason.get_or_insert_with(|| error.to_string());
            }
            Err(NvmlError::FailedToLoadSymbol(reason)) => {
                return Err(DriverError::NotNvml { library: place.clone(), reason });
            }
            Err(error) => return Err(DriverError::from_init(&error)),
        }
    }
    Err(DriverError::NoLibrary { tried: places, reason: reason.unwrap_or_default() })
}

/// A place that somebody named is the only one: another library than the named one would be a surprise.
fn places(library: Option<&Path>, variable: Option<&OsStr>) -> Vec<PathBuf> {
    let named = library.map(Path::to_owned).or_else(|| variable.filter(|path| !path.is_empty()).map(PathBuf::from));
    match named {
        Some(path) => vec![path],
        None => [SYSTEM_NAME].into_iter().chain(FURTHER_PLACES).map(PathBuf::from).collect(),
    }
}

/// nvml-wrapper panics when it drops a library that cannot shut down.
fn whole(nvml: Nvml, place: &Path) -> Result<Nvml, DriverError> {
    let Err(error) = &nvml.lib().nvmlShutdown else { return Ok(nvml) };
    let error = DriverError::NotNvml { library: place.to_owned(), reason: error.to_string() };
    std::mem::forget(nvml);
    Err(error)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::{Path, PathBuf};

    use super::places;

    #[test]
    fn the_callers_path_goes_before_the_variable_and_both_before_the_system() {
        let (path, variable) = (Path::new("/a/nvml.so"), OsStr::new("/b/nvml.so"));
        assert_eq!(places(Some(path), Some(variable)), [PathBuf::from(path)]);
        assert_eq!(places(None, Some(variable)), [PathBuf::from(variable)]);
        for unset in [None, Some(OsStr::new(""))] {
            let places = places(None, unset);
            assert!(places.len() > 1 && !places.contains(&PathBuf::new()), "{places:?}");
        }
    }
}
