//! Cache of the driver: `CubeCL` caches PTX, which the driver compiles for the GPU and caches itself. A machine that
//! has never run the program has none.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use cubecl::bundle::Bundle;
use cubecl_environment::bytes::Bytes;
use cubecl_environment::persistence::{self, Origin};

/// Namespace of the driver's cache files in an archive, with paths as keys.
pub(super) const NAMESPACE: &str = "driver";

/// Environment variable which, with the value `1`, marks the driver's cache as this run's own, to be archived:
/// `CUDA_CACHE_PATH` names a folder that was empty at the start.
const OWN: &str = "GPU_TUNED_WARM_DRIVER";

/// Folder of the driver's cache, from the CUDA manual; `None` if disabled or unknown.
pub(super) fn folder(variable: impl Fn(&str) -> Option<OsString>) -> Option<PathBuf> {
    let set = |name| variable(name).filter(|value| !value.is_empty());
    if set("CUDA_CACHE_DISABLE").is_some_and(|value| value == "1") {
        return None;
    }
    let usual = || cfg!(target_os = "linux").then(|| Some(PathBuf::from(set("HOME")?).join(".nv/ComputeCache")));
    set("CUDA_CACHE_PATH").map(PathBuf::from).or_else(|| usual().flatten())
}

/// Puts the driver's cache into the active environment, if it is this run's own, and returns how many files it has.
pub(crate) fn collect(variable: impl Fn(&str) -> Option<OsString>) -> io::Result<usize> {
    let is_own = variable(OWN).is_some_and(|value| value == "1") && variable("CUDA_CACHE_PATH").is_some();
    let Some(folder) = folder(variable).filter(|_| is_own) else { return Ok(0) };
    let mut files = Vec::new();
    if folder.exists() {
        walk(&folder, &mut Vec::new(), &mut files)?;
    }
    let summary = persistence::open(NAMESPACE).insert_many(&mut files.into_iter(), Origin::Local);
    if summary.failed > 0 {
        return Err(io::Error::other("the driver's cache could not be copied"));
    }
    Ok(summary.stored)
}

fn walk(folder: &Path, names: &mut Vec<String>, files: &mut Vec<(Bytes, Bytes)>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        // The driver's own names are digits and letters.
        let Ok(name) = entry.file_name().into_string() else { continue };
        names.push(name);
        let kind = entry.file_type()?;
        if kind.is_dir() {
            walk(&entry.path(), names, files)?;
        } else if kind.is_file() {
            let key = Bytes::from_bytes_vec(names.join("/").into_bytes());
            files.push((key, Bytes::from_bytes_vec(fs::read(entry.path())?)));
        }
        names.pop();
    }
    Ok(())
}

/// Writes the driver's cache from an archive, unless there is a cache. Returns the number of files written.
///
/// An existing cache stays as it is, because only the driver may write its index.
pub(super) fn lay_out(bundle: &dyn Bundle, folder: &Path) -> io::Result<usize> {
    if fs::read_dir(folder).is_ok_and(|mut entries| entries.next().is_some()) {
        return Ok(0);
    }
    let parent = folder.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(parent)?;
    let draft = tempfile::Builder::new().prefix(".gpu-tuned-driver-").tempdir_in(parent)?;
    let mut outcome = Ok(0);
    bundle.scan(NAMESPACE, &mut |key, contents| {
        if let Ok(written) = &mut outcome {
            match file(draft.path(), key, contents) {
                Ok(()) => *written += 1,
                Err(error) => outcome = Err(error),
            }
        }
    });
    let written = outcome?;
    if written > 0 {
        // Whole or not at all; another process may have been first.
        fs::rename(draft.path(), folder)?;
    }
    Ok(written)
}

fn file(folder: &Path, key: &[u8], contents: &[u8]) -> io::Result<()> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a name in the archive leads outside the cache");
    let name = Path::new(std::str::from_utf8(key).map_err(|_| damaged())?);
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(name) if name != OsStr::new(""));
    if name.as_os_str().is_empty() || !name.components().all(is_plain) {
        return Err(damaged());
    }
    let path = folder.join(name);
    fs::create_dir_all(path.parent().unwrap_or(folder))?;
    fs::write(path, contents)
}

#[cfg(test)]
mod tests;
