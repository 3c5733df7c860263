//! Places where NVIDIA's libraries are installed.
//!
//! The driver does not bring them. They come with the CUDA toolkit, with packages of the system, or with the wheels that
//! PyTorch installs. Searched in this order, newest version first:
//!
//! 1. folders in `GPU_TUNED_LIBRARIES`, separated as in `PATH`; then nothing else is searched;
//! 2. the system's paths, with `LD_LIBRARY_PATH`;
//! 3. the toolkits of `CUDA_PATH`, `CUDA_HOME` and `/usr/local/cuda`;
//! 4. wheels beside Python: in `VIRTUAL_ENV` and `CONDA_PREFIX`, of the user, and of the system.

use std::env;
use std::path::{Path, PathBuf};

use crate::cublaslt::{CublasError, CublasLt};

/// Variable with folders of libraries.
pub const FOLDERS: &str = "GPU_TUNED_LIBRARIES";
/// Names of cuBLASLt by version, newest first.
const NAMES: [&str; 2] = ["libcublasLt.so.13", "libcublasLt.so.12"];
/// Folders of wheels below `site-packages`.
const WHEELS: [&str; 2] = ["nvidia/cu13/lib", "nvidia/cublas/lib"];

/// Failure of finding a library: every file that was tried.
#[derive(Debug, thiserror::Error)]
#[error(
    "cuBLASLt was not found ({}); install the CUDA toolkit or `pip install nvidia-cublas`, or set {FOLDERS} to its folder",
    tried(failures)
)]
pub struct NotFound {
    searched: Vec<String>,
    failures: Vec<CublasError>,
}

impl NotFound {
    /// Places that were searched, in order.
    pub fn searched(&self) -> &[String] {
        &self.searched
    }

    /// Failures of loading the files that are there.
    pub fn failures(&self) -> impl Iterator<Item = &CublasError> {
        self.failures.iter().filter(|failure| match failure {
            // The dynamic loader fails for a bare name that it does not find.
            CublasError::Load { path, .. } => path.components().count() > 1,
            _ => true,
        })
    }
}

fn tried(failures: &[CublasError]) -> String {
    match failures.last() {
        None => "no file of its name".into(),
        Some(last) => last.to_string(),
    }
}

/// Loads the first cuBLASLt that is found.
///
/// # Errors
///
/// When no file is found, or none can be loaded.
pub fn cublaslt() -> Result<CublasLt, NotFound> {
    first(&Places::of_process())
}

fn first(places: &Places) -> Result<CublasLt, NotFound> {
    let mut failures = Vec::new();
    for path in candidates(places) {
        match CublasLt::load(&path) {
            Ok(library) => return Ok(library),
            Err(failure) => failures.push(failure),
        }
    }
    Err(NotFound { searched: places.names(), failures })
}

/// Places to search.
#[derive(Clone, Debug, Default)]
struct Places {
    /// If set, the only ones.
    folders: Option<Vec<PathBuf>>,
    toolkits: Vec<PathBuf>,
    /// Prefixes with `lib/python3*` below them.
    pythons: Vec<PathBuf>,
}

impl Places {
    fn of_process() -> Self {
        let variable = |name| env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let home = variable("HOME").map(|home| home.join(".local"));
        Self {
            folders: env::var_os(FOLDERS)
                .filter(|value| !value.is_empty())
                .map(|value| env::split_paths(&value).collect()),
            toolkits: [variable("CUDA_PATH"), variable("CUDA_HOME"), Some("/usr/local/cuda".into())]
                .into_iter()
                .flatten()
                .collect(),
            pythons: [
                variable("VIRTUAL_ENV"),
                variable("CONDA_PREFIX"),
                home,
                Some("/usr/local".into()),
                Some("/usr".into()),
            ]
            .into_iter()
            .flatten()
            .collect(),
        }
    }

    /// Names of the places, in the order of the search.
    fn names(&self) -> Vec<String> {
        let named = |paths: &[PathBuf], below: &str| -> Vec<String> {
            paths.iter().map(|path| format!("{}{below}", path.display())).collect()
        };
        if let Some(folders) = &self.folders {
            return named(folders, "");
        }
        let system = vec!["the system's paths".to_owned()];
        [system, named(&self.toolkits, ""), named(&self.pythons, "/lib/python3*")].concat()
    }
}

/// Files to try in order. Bare names are for the dynamic loader, which has paths of its own.
fn candidates(places: &Places) -> Vec<PathBuf> {
    if let Some(folders) = &places.folders {
        return present(folders);
    }
    let toolkits = places
        .toolkits
        .iter()
        .flat_map(|toolkit| ["lib64", "lib", "targets/x86_64-linux/lib"].map(|folder| toolkit.join(folder)));
    let wheels = places
        .pythons
        .iter()
        .flat_map(|prefix| packages(prefix))
        .flat_map(|packages| WHEELS.map(|wheel| packages.join(wheel)));
    let mut found: Vec<PathBuf> = NAMES.map(PathBuf::from).into();
    found.extend(present(&toolkits.chain(wheels).collect::<Vec<_>>()));
    found
}

fn present(folders: &[PathBuf]) -> Vec<PathBuf> {
    folders.iter().flat_map(|folder| NAMES.map(|name| folder.join(name))).filter(|file| file.exists()).collect()
}

/// `site-packages` and `dist-packages` of each Python below a prefix, newest version first.
fn packages(prefix: &Path) -> Vec<PathBuf> {
    let Ok(entries) = prefix.join("lib").read_dir() else { return Vec::new() };
    let mut pythons: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")))
        .collect();
    // By minor version: 3.9 is older than 3.13.
    pythons.sort_by_key(|path| std::cmp::Reverse(minor_version(path)));
    pythons.iter().flat_map(|python| ["site-packages", "dist-packages"].map(|folder| python.join(folder))).collect()
}

fn minor_version(path: &Path) -> u32 {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.strip_prefix("python3.").and_then(|minor| minor.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
