//! Warm starts: caches of kernels and tuning that outlive the process, and archives of them for other machines.
//!
//! The first optimizer step of a process compiles and tunes all kernels, for 20 to 110 seconds. `start` makes `CubeCL`
//! cache the results in the user's cache folder, in one environment a [`Fingerprint`]: GPU, driver, versions, and
//! whether TF32 is switched off. `CubeCL` is configured once in a process, before its first use. The user's own
//! configuration takes precedence (`cubecl.toml`, `burn.toml`, `CUBECL_ENVIRONMENT`, `CUBECL_AUTOTUNE_CACHE`), and so
//! does a program that has configured or used `CubeCL` before. The report names the reason.
//!
//! `cargo gpu-tuned warm` writes the archive `gpu-tuned.warm/NAME.bundle` for the planned steps, beside `Cargo.toml`. A start
//! with the same fingerprint loads it. It searches `gpu-tuned.warm` beside `Cargo.toml` when cargo runs the program, and beside
//! the program, for files that only this user can write; `GPU_TUNED_WARM_BUNDLE` names another folder or a file, and
//! `GPU_TUNED_WARM_SHA256` the digest that it must have. If an archive cannot be used, the session starts without it and
//! reports why.
//!
//! `Session::warm_start` reports the caches. Programs without a session call [`begin`].

mod bundle;
mod caches;
mod driver;
mod fingerprint;
mod prepare;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::{fmt, io};

use gpu_tuned_observe::log::warn_user;
use gpu_tuned_observe::progress::Progress;
use gpu_tuned_train::train::{StepError, TrainerError};
use serde::{Serialize, Serializer};
use thiserror::Error;

use crate::requests::archive_folder;
use bundle::{FORMAT, LARGEST};

pub use bundle::{Bundled, Saved, save};
pub use caches::Caches;
pub(crate) use driver::collect as collect_driver_cache;
pub use fingerprint::{Fingerprint, GpuKind};
pub use prepare::CacheEvent;

/// Folder of archives.
pub const FOLDER: &str = "gpu-tuned.warm";
/// Environment variable that names an archive, or another folder of archives.
pub const BUNDLE: &str = "GPU_TUNED_WARM_BUNDLE";
/// Environment variable with the SHA-256 of the only archive that may be used, in hexadecimal.
pub const SHA256: &str = "GPU_TUNED_WARM_SHA256";
/// Namespace of notes on loaded archives.
const NOTES: &str = "gpu-tuned";

/// State of the caches at a session's first step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WarmStart {
    /// The caches.
    #[serde(flatten)]
    pub caches: Caches,
    /// Events in the preparation of the caches, such as a damaged database.
    pub events: Vec<CacheEvent>,
    /// Archive that was found or named.
    pub bundle: Option<Bundled>,
}

/// Switches the caches on for the GPUs of a fingerprint, and loads an archive if there is one. `gpus` are CUDA indices.
///
/// Call it before anything uses Burn or `CubeCL` on a GPU. `start` does.
pub fn begin(fingerprint: &Fingerprint, gpus: &[usize]) -> WarmStart {
    let _progress = Progress::begin("opening the kernel cache");
    // A run that writes an archive has its own caches, whatever the user has configured.
    let (throwaway, overrules) = (throwaway(), archive_folder().is_some());
    let (caches, events) = caches::switch_on(fingerprint, throwaway, overrules);
    // Every event is in the report, too.
    events.iter().filter(|event| event.is_slow()).for_each(|event| warn_user(&event.to_string()));
    if matches!(caches, Caches::NotWritable { .. }) {
        warn_user(&caches.to_string());
    }
    let found = if throwaway.is_some() { None } else { bundle::find(fingerprint) };
    let bundle = found.map(|found| match (found, &caches) {
        (Err(ignored), _) => ignored,
        (Ok(path), Caches::On { .. } | Caches::NotWritable { .. }) => bundle::take(path, fingerprint, gpus),
        (Ok(path), _) => Bundled::Ignored { path, because: "the caches are not gpu-tuned's to fill".to_owned() },
    });
    caches::begin_counting(&caches);
    let warm = WarmStart { caches, events, bundle };
    tracing::info!("warm start: {warm}");
    warm
}

/// Folder of this run's own caches, so that an archive has the kernels of the planned steps alone. `None` in other runs: a
/// measurement leaves its tuning to training.
fn throwaway() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let folder = archive_folder().map(|_| tempfile::Builder::new().prefix("gpu-tuned-warm-").tempdir());
        // Statics are never dropped: see `remove_throwaway`.
        folder?.ok().map(tempfile::TempDir::keep)
    };
    FOLDER.get_or_init(make).as_deref()
}

/// Removes the folder of [`throwaway`] at the end of a run.
pub(crate) fn remove_throwaway() {
    if let Some(folder) = throwaway() {
        // A leftover is in the system's folder for temporary files.
        drop(std::fs::remove_dir_all(folder));
    }
}

impl WarmStart {
    /// State without a GPU.
    pub const fn without_gpu() -> Self {
        Self { caches: Caches::NoGpu, events: Vec::new(), bundle: None }
    }
}

impl fmt::Display for WarmStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.caches)?;
        self.events.iter().try_for_each(|event| write!(f, "; {event}"))?;
        self.bundle.iter().try_for_each(|bundle| write!(f, "; {bundle}"))
    }
}

/// Serializes a path as text, with replacements for bytes that are not UTF-8.
fn path_as_text<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

/// Reason why no kernel cache archive was made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WarmError {
    /// There is no GPU.
    #[error("there is no GPU, so there are no kernels to archive: run on a machine with a GPU")]
    NoGpu,
    /// Kernels and tuning go into caches that cannot be archived.
    #[error("an archive needs caches of its own, and this process has others: {caches}")]
    Caches {
        /// Caches of the session.
        caches: Caches,
    },
    /// The session has no trainer for its precision.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// A planned step failed.
    #[error("a step with micro-batches of {micro_batch} failed")]
    Step {
        /// Samples in a micro-batch.
        micro_batch: usize,
        /// Error of the step.
        #[source]
        source: Box<StepError>,
    },
    /// The model panicked.
    #[error("a step with micro-batches of {micro_batch} failed: {message}")]
    Model {
        /// Samples in a micro-batch.
        micro_batch: usize,
        /// Message of the panic.
        message: String,
    },
    /// Memory ran out, so that tuning may have chosen slow kernels.
    #[error("out of memory with the planned micro-batches of {micro_batch}: is another process using the GPU?")]
    Memory {
        /// Samples in a micro-batch.
        micro_batch: usize,
    },
    /// The archive could not be written.
    #[error("no archive was written: {0}")]
    Bundle(BundleError),
}

/// Error of a kernel cache archive.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// The file cannot be written.
    #[error("`{}` cannot be written: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The file is no archive.
    #[error("it is no kernel cache archive of gpu-tuned")]
    Unknown,
    /// The file has the format of another release.
    #[error("it has format {found}, and this release reads format {FORMAT}")]
    Format {
        /// Format of the file.
        found: u32,
    },
    /// The archive was made on another GPU, with another driver or with other versions.
    #[error("{}", differences.join("; "))]
    Elsewhere {
        /// Differences, a sentence each.
        differences: Vec<String>,
    },
    /// The file is larger than any archive.
    #[error("it has {bytes} bytes, and an archive has {LARGEST} at most")]
    TooLarge {
        /// Bytes of the file.
        bytes: u64,
    },
    /// The file was cut short or changed.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The file is another one than the variable pins.
    #[error("its SHA-256 is {found}, and {SHA256} is {expected}")]
    Digest {
        /// Digest of the file.
        found: String,
        /// Digest of the variable.
        expected: String,
    },
    /// The archive would be empty.
    #[error("nothing was compiled or tuned")]
    Empty,
    /// `CubeCL` could not export its environment.
    #[error("CubeCL exported no caches: {0}")]
    Export(String),
}
