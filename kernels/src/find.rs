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

use crate::cublaslt::CublasLt;
use crate::cudnn::Cudnn;
use crate::nccl::Nccl;

/// Variable with folders of libraries.
pub const FOLDERS: &str = "GPU_TUNED_LIBRARIES";

/// A library: its name, files and packages.
#[derive(Debug)]
struct Wanted {
    name: &'static str,
    /// File names by version, newest first.
    files: &'static [&'static str],
    /// Folders of wheels below `site-packages`.
    wheels: &'static [&'static str],
    advice: &'static str,
}

const CUBLASLT: Wanted = Wanted {
    name: "cuBLASLt",
    files: &["libcublasLt.so.13", "libcublasLt.so.12"],
    wheels: &["nvidia/cu13/lib", "nvidia/cublas/lib"],
    advice: "install the CUDA toolkit or `pip install nvidia-cublas`",
};

const CUDNN: Wanted = Wanted {
    name: "cuDNN",
    files: &["libcudnn.so.9"],
    wheels: &["nvidia/cudnn/lib"],
    advice: "install cuDNN 9 or `pip install nvidia-cudnn-cu13`",
};

const NCCL: Wanted = Wanted {
    name: "NCCL (`libnccl.so.2` or `libnccl.so`)",
    files: &["libnccl.so.2", "libnccl.so"],
    wheels: &["nvidia/nccl/lib"],
    advice: "install NCCL 2 or `pip install nvidia-nccl-cu13` (`-cu12` for a driver before 580)",
};

/// Failure of loading a library.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum LoadError {
    /// The dynamic loader refused the file.
    #[error("{path} cannot be loaded: {reason}")]
    Open {
        /// The file, or the bare name for the system's paths.
        path: PathBuf,
        /// The loader's message.
        reason: String,
    },
    /// A version of the library that is too old.
    #[error("{path} is version {found} of {library}; version {oldest} or later is needed")]
    Version {
        /// Name of the library.
        library: &'static str,
        /// The file.
        path: PathBuf,
        /// Version of the file, as the library counts.
        found: usize,
        /// The oldest version with all functions that are called.
        oldest: usize,
    },
    /// A cuDNN for another version of CUDA than cuBLASLt.
    #[error("{path} is for CUDA {needed}, and the loaded cuBLASLt for CUDA {loaded}")]
    Cuda {
        /// The file.
        path: PathBuf,
        /// Major version of CUDA of the file.
        needed: usize,
        /// Major version of CUDA of cuBLASLt.
        loaded: usize,
    },
}

/// Failure of finding a library: every file that was tried.
#[derive(Debug, thiserror::Error)]
#[error("{} was not found ({}); {}, or set {FOLDERS} to its folder", wanted.name, tried(failures), wanted.advice)]
pub struct NotFound {
    wanted: &'static Wanted,
    searched: Vec<String>,
    failures: Vec<LoadError>,
}

impl NotFound {
    /// Packages to install.
    pub fn advice(&self) -> &'static str {
        self.wanted.advice
    }

    /// Places that were searched, in order.
    pub fn searched(&self) -> &[String] {
        &self.searched
    }

    /// Failures of loading the files that are there.
    pub fn failures(&self) -> impl Iterator<Item = &LoadError> {
        self.failures.iter().filter(|failure| match failure {
            // The dynamic loader fails for a bare name that it does not find.
            LoadError::Open { path, .. } => path.components().count() > 1,
            LoadError::Version { .. } | LoadError::Cuda { .. } => true,
        })
    }
}

fn tried(failures: &[LoadError]) -> String {
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
    first(&CUBLASLT, &Places::of_process(), CublasLt::load)
}

/// Loads the first cuDNN that is found, for the CUDA version of the cuBLASLt that this process has loaded.
///
/// cuDNN calls cuBLASLt of its own CUDA version, and ends the process if there is none.
///
/// # Errors
///
/// When no file is found, or none can be loaded.
pub fn cudnn(cublaslt: Option<&CublasLt>) -> Result<Cudnn, NotFound> {
    let loaded = cublaslt.map(CublasLt::cuda);
    first(&CUDNN, &Places::of_process(), |path| for_cuda(Cudnn::load(path)?, loaded))
}

/// Loads the first NCCL that is found.
///
/// # Errors
///
/// When no file is found, or none can be loaded.
pub fn nccl() -> Result<Nccl, NotFound> {
    first(&NCCL, &Places::of_process(), Nccl::load)
}

fn for_cuda(library: Cudnn, loaded: Option<usize>) -> Result<Cudnn, LoadError> {
    let needed = library.cuda();
    match loaded {
        Some(loaded) if loaded != needed => Err(LoadError::Cuda { path: library.path().into(), needed, loaded }),
        _ => Ok(library),
    }
}

fn first<L>(
    wanted: &'static Wanted,
    places: &Places,
    load: impl Fn(&Path) -> Result<L, LoadError>,
) -> Result<L, NotFound> {
    let mut failures = Vec::new();
    for path in candidates(wanted, places) {
        match load(&path) {
            Ok(library) => return Ok(library),
            Err(failure) => failures.push(failure),
        }
    }
    Err(NotFound { wanted, searched: places.names(), failures })
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
fn candidates(wanted: &Wanted, places: &Places) -> Vec<PathBuf> {
    if let Some(folders) = &places.folders {
        return present(wanted, folders);
    }
    let toolkits = places
        .toolkits
        .iter()
        .flat_map(|toolkit| ["lib64", "lib", "targets/x86_64-linux/lib"].map(|folder| toolkit.join(folder)));
    let wheels = places
        .pythons
        .iter()
        .flat_map(|prefix| packages(prefix))
        .flat_map(|packages| wanted.wheels.iter().map(move |wheel| packages.join(wheel)));
    let mut found: Vec<PathBuf> = wanted.files.iter().map(PathBuf::from).collect();
    found.extend(present(wanted, &toolkits.chain(wheels).collect::<Vec<_>>()));
    found
}

fn present(wanted: &Wanted, folders: &[PathBuf]) -> Vec<PathBuf> {
    let files = folders.iter().flat_map(|folder| wanted.files.iter().map(move |name| folder.join(name)));
    files.filter(|file| file.exists()).collect()
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
