//! `CubeCL`'s caches, switched on for a fingerprint.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::environment;
use cubecl_environment::persistence::{self, CacheConfig};
use cubecl_environment::records::RecordLevel;
use serde::Serialize;

use super::configured::by_user;
use super::fingerprint::Fingerprint;

/// Largest size of a database, in bytes. Every build of a program adds kernels, which nothing removes; a larger
/// database is deleted.
const LARGEST: u64 = 2 << 30;

/// The namespaces of tuned choices.
pub(super) const TUNED: &str = "autotune";

/// `CubeCL`'s messages in a tuning record for a kernel that ran out of memory: of a launch, of a buffer, and the name
/// of an error.
const NO_MEMORY: [&[u8]; 3] = [b"out-of-memory", b"out of device memory", b"OutOfMemory"];

/// State of the caches of compiled kernels and tuning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "caches", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Caches {
    /// They do.
    On {
        /// The database that they are in.
        #[serde(serialize_with = "super::path_as_text")]
        path: PathBuf,
        /// True if compiled kernels are cached, too. Their key is the build ID from the linker, so a program without
        /// one has none.
        kernels: bool,
        /// Tuned choices that were dropped because a kernel had found no memory when it was tried.
        dropped: usize,
    },
    /// The caches cannot be written: kernels and tuning last for this process.
    NotWritable {
        /// Path of the database.
        #[serde(serialize_with = "super::path_as_text")]
        path: PathBuf,
    },
    /// They are for this run alone, which makes a bundle.
    Throwaway {
        /// The database that they are in.
        #[serde(serialize_with = "super::path_as_text")]
        path: PathBuf,
    },
    /// The user's own configuration applies.
    Configured {
        /// Source of the configuration.
        by: String,
    },
    /// `CubeCL` was configured, or used, earlier in this process, and is left as it was.
    TooLate,
    /// There is no GPU: nothing is compiled or tuned.
    NoGpu,
}

/// The folder that this process has switched its caches on in; `None` before that, and where it may not.
static OURS: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Switches caches on, unless the user or the process has configured them. `throwaway` is a folder for this run alone;
/// `overrules` ignores the user's configuration.
pub(super) fn switch_on(fingerprint: &Fingerprint, throwaway: Option<&Path>, overrules: bool) -> Caches {
    // Taken by two threads that start at once, the second finds it done.
    let mut ours = OURS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let name = fingerprint.environment();
    let kernels = buildid::build_id().is_some();
    if let Some(root) = &*ours {
        if *environment::active() != *name {
            environment::activate(&name);
        }
        return on(root.join(environment::file_name(&name)), kernels, throwaway.is_some());
    }
    let folder = std::env::current_dir().ok();
    if let Some(by) = by_user(folder.as_deref(), |name| std::env::var_os(name)).filter(|_| !overrules) {
        return Caches::Configured { by };
    }
    // Other things that the user has configured stay as they are.
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    let place = throwaway.map_or(CacheConfig::Global, |folder| CacheConfig::Directory(folder.to_owned()));
    let root = place.root();
    let path = root.join(environment::file_name(&name));
    config.compilation.cache = kernels;
    config.autotune.disable_cache = false;
    config.environment.name.clone_from(&name);
    config.environment.path = place;
    config.environment.records.level = RecordLevel::Off;
    begin_anew_if_large(&path, LARGEST);
    if !CubeClRuntimeConfig::try_set(config) {
        return Caches::TooLate;
    }
    *ours = Some(root);
    on(path, kernels, throwaway.is_some())
}

fn on(path: PathBuf, kernels: bool, is_throwaway: bool) -> Caches {
    if is_throwaway {
        return Caches::Throwaway { path };
    }
    let dropped = drop_choices_without_memory();
    // Reading has opened the database. Without a file, CubeCL caches in memory.
    if path.exists() { Caches::On { path, kernels, dropped } } else { Caches::NotWritable { path } }
}

/// Removes a database that has grown beyond `largest` bytes.
///
/// A process that has the database open keeps its file.
fn begin_anew_if_large(path: &Path, largest: u64) {
    if !fs::metadata(path).is_ok_and(|file| file.len() > largest) {
        return;
    }
    tracing::info!(path = %path.display(), "the cache of kernels has grown too large, and is begun anew");
    if let Err(error) = remove(path) {
        tracing::warn!(%error, path = %path.display(), "the cache of kernels cannot be removed");
    }
}

/// Removes a database, after its log: a leftover log would be read into the next database.
fn remove(path: &Path) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().as_encoded_bytes();
    for entry in fs::read_dir(path.parent().unwrap_or(Path::new(".")))?.flatten() {
        let other = entry.file_name();
        if other.len() > name.len() && other.as_encoded_bytes().starts_with(name) {
            fs::remove_file(entry.path())?;
        }
    }
    fs::remove_file(path)
}

/// Drops the tuned choices that were made while memory was short, so that they are made again.
///
/// Kept, they would slow every later process down: a kernel that found no memory counts as one that does not work.
fn drop_choices_without_memory() -> usize {
    let tuned = |namespace: &String| namespace.split('/').next() == Some(TUNED);
    let mut dropped = 0;
    for namespace in persistence::namespaces().into_iter().filter(tuned) {
        let storage = persistence::open(&namespace);
        let mut spoilt = Vec::new();
        storage.scan(&mut |key, value| {
            if found_no_memory(value) {
                spoilt.push(key.to_vec());
            }
        });
        for key in &spoilt {
            storage.purge_key(key);
        }
        dropped += spoilt.len();
    }
    dropped
}

/// Returns true for tuning that ran out of memory.
pub(super) fn found_no_memory(choice: &[u8]) -> bool {
    NO_MEMORY.iter().any(|words| choice.windows(words.len()).any(|part| part == *words))
}

impl Caches {
    /// Reason why the caches may contain tuning with TF32, over which Burn panics without TF32. `None` for separate caches.
    #[cfg(any(test, feature = "cuda"))]
    #[doc(hidden)]
    pub fn tf32_in_them(&self) -> Option<String> {
        match self {
            Self::Configured { by } => Some(format!(
                "caches are configured by {by}, and may contain kernels tuned with TF32; remove that setting, and \
                 kernels without TF32 get their own caches"
            )),
            Self::TooLate => Some(
                "CubeCL was configured or used before the start; start the session before anything uses the GPU"
                    .to_owned(),
            ),
            Self::On { .. } | Self::NotWritable { .. } | Self::Throwaway { .. } | Self::NoGpu => None,
        }
    }
}

impl fmt::Display for Caches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::On { path, kernels, dropped } => {
                let kept = if *kernels { "kernels and tuning" } else { "tuning, not kernels (no build ID)," };
                write!(f, "{kept} kept in {}", path.display())?;
                if *dropped > 0 { write!(f, "; {dropped} choices made without memory dropped") } else { Ok(()) }
            }
            Self::NotWritable { path } => {
                write!(f, "nothing can be kept in {}: every process compiles and tunes anew", path.display())
            }
            Self::Throwaway { path } => write!(f, "from nothing, in {}", path.display()),
            Self::Configured { by } => write!(f, "caches as configured by {by}"),
            Self::TooLate => f.write_str("caches as they were: CubeCL was configured or used before the start"),
            Self::NoGpu => f.write_str("nothing to warm without a GPU"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::{Caches, begin_anew_if_large};

    #[test]
    fn what_was_tuned_with_tf32_may_be_in_caches_of_others() {
        let path = PathBuf::from("cache.db");
        for ours in [
            Caches::On { path: path.clone(), kernels: true, dropped: 0 },
            Caches::NotWritable { path: path.clone() },
            Caches::Throwaway { path },
        ] {
            assert_eq!(ours.tf32_in_them(), None);
        }
        let why = Caches::Configured { by: "cubecl.toml".to_owned() }.tf32_in_them().expect("a reason");
        assert_eq!(
            why,
            "caches are configured by cubecl.toml, and may contain kernels tuned with TF32; remove that setting, and \
             kernels without TF32 get their own caches"
        );
        let why = Caches::TooLate.tf32_in_them().expect("a reason");
        assert!(why.ends_with("start the session before anything uses the GPU"), "{why}");
    }

    #[test]
    fn a_database_that_has_grown_is_removed_with_what_belongs_to_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str| folder.path().join(name);
        for name in ["h200.db", "h200.db-wal", "h200.db-tshm", "h200-other.db", "h200"] {
            fs::write(file(name), [0; 100]).expect("it is written");
        }
        begin_anew_if_large(&file("h200.db"), 100);
        assert!(file("h200.db").exists());
        begin_anew_if_large(&file("h200.db"), 99);
        let mut left: Vec<_> = fs::read_dir(folder.path()).expect("files").flatten().map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left, ["h200", "h200-other.db"]);
        begin_anew_if_large(&file("h200.db"), 0);
    }
}
