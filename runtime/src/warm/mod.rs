//! Warm starts: compiled kernels and tuned choices that outlive the process, and bundles of them for other machines.
//!
//! The first optimizer step of a process compiles every kernel and tries out many of them, for 20 to 110 seconds.
//! [`start`](crate::start) lets `CubeCL` keep what comes of it, in the user's cache folder, in an environment for each
//! [`Fingerprint`]: GPU, driver, releases, and whether TF32 is switched off. `CubeCL` is configured once in a process, before
//! its first use. Where the user has said something of caches (in `cubecl.toml`, in `burn.toml`, in `CUBECL_ENVIRONMENT` or
//! `CUBECL_AUTOTUNE_CACHE`), or the program has configured or used it before, all is left as it is, and the report says so.
//!
//! `cargo gpu-tuned warm` makes a bundle of what the planned steps need, `gpu-tuned.warm/NAME.bundle` beside `Cargo.toml`.
//! A start takes it when it is for the same fingerprint. It looks for `gpu-tuned.warm` beside `Cargo.toml` when cargo runs
//! the program, beside the program, and in the current folder; `GPU_TUNED_WARM_BUNDLE` names another folder, or a file.
//! Whatever is wrong with a bundle, the session starts without it and says why.
//!
//! [`Session::warm_start`](crate::Session::warm_start) tells what was done. Programs without a session call [`begin`].

mod bundle;
mod caches;
mod configured;
mod driver;
mod fingerprint;
mod session;
mod taken;

use std::env;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use serde::Serialize;

pub use bundle::{BundleError, Saved, save};
pub use caches::Caches;
pub use fingerprint::{Fingerprint, GpuKind};
pub use session::WarmError;
pub use taken::Bundled;

/// The folder of bundles.
pub const FOLDER: &str = "gpu-tuned.warm";
/// The environment variable that names a bundle, or another folder of them.
pub const BUNDLE: &str = "GPU_TUNED_WARM_BUNDLE";
/// The environment variable that asks for a bundle, with the folder to write it to.
const ASKED: &str = "GPU_TUNED_WARM";
/// Where it is noted which bundles were taken.
const NOTES: &str = "gpu-tuned";

/// How the first step of a session will find the caches.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct WarmStart {
    /// The caches.
    #[serde(flatten)]
    pub caches: Caches,
    /// The bundle, where one was found or named.
    pub bundle: Option<Bundled>,
}

/// Switches the caches on for the GPUs of a fingerprint, and fills them from a bundle, where there is one. `gpus` are the
/// numbers of those GPUs in CUDA's order.
///
/// Call it before anything uses Burn or `CubeCL` on a GPU. [`start`](crate::start) does.
pub fn begin(fingerprint: &Fingerprint, gpus: &[usize]) -> WarmStart {
    begin_in(throwaway(), asked().is_some(), fingerprint, gpus)
}

/// `bundles` is whether this run makes a bundle: it has caches of its own, whatever the user has configured.
fn begin_in(throwaway: Option<&Path>, bundles: bool, fingerprint: &Fingerprint, gpus: &[usize]) -> WarmStart {
    let caches = caches::switch_on(fingerprint, throwaway, bundles);
    let bundle = match (&caches, throwaway) {
        (_, Some(_)) => None,
        (Caches::On { .. } | Caches::NotWritable { .. }, _) => taken::find(fingerprint)
            .map(|found| found.map_or_else(|ignored| ignored, |path| taken::take(path, fingerprint, gpus))),
        _ => taken::find(fingerprint).map(|found| {
            let left = |path| Bundled::Ignored { path, because: "the caches are not gpu-tuned's to fill".to_owned() };
            found.map_or_else(|ignored| ignored, left)
        }),
    };
    let warm = WarmStart { caches, bundle };
    tracing::info!("warm start: {warm}");
    warm
}

/// A folder for caches that this run alone sees: a bundle has what the planned steps need and nothing else. `None` in every
/// other run; one that measures leaves what it tuned to the training that is planned by it.
fn throwaway() -> Option<&'static Path> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let make = || {
        let folder = asked().map(|_| tempfile::Builder::new().prefix("gpu-tuned-warm-").tempdir());
        // Not removed when it is dropped, since statics never are: see `clear_away`.
        folder?.ok().map(tempfile::TempDir::keep)
    };
    FOLDER.get_or_init(make).as_deref()
}

/// Removes what [`throwaway`] has made. The run is over.
fn clear_away() {
    if let Some(folder) = throwaway() {
        // What cannot be removed is in the system's folder for such things.
        drop(std::fs::remove_dir_all(folder));
    }
}

/// The folder that a bundle is asked for in.
fn asked() -> Option<PathBuf> {
    env::var_os(ASKED).filter(|folder| !folder.is_empty()).map(PathBuf::from)
}

impl WarmStart {
    /// Without a GPU.
    pub(crate) const fn without_gpu() -> Self {
        Self { caches: Caches::NoGpu, bundle: None }
    }
}

impl fmt::Display for WarmStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.caches)?;
        self.bundle.iter().try_for_each(|bundle| write!(f, "; {bundle}"))
    }
}

/// Serializes a path as text. Bytes that are not UTF-8 are replaced.
fn path_as_text<S: serde::Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}
