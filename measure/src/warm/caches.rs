//! `CubeCL`'s caches, switched on for a fingerprint unless the user configures them, and counts of their new entries.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::{fmt, fs};

use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::environment;
use cubecl_environment::persistence::{self, CacheConfig};
use cubecl_environment::records::RecordLevel;
use gpu_tuned_observe::progress::{Details, set_details};
use serde::Serialize;
use toml::{Table, Value};

use super::fingerprint::Fingerprint;
use super::prepare::{Access, CacheEvent, Prepared, prepare};

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
    /// The caches are read and written.
    On {
        /// Path of the database.
        #[serde(serialize_with = "super::path_as_text")]
        path: PathBuf,
        /// True if compiled kernels are cached, too. Their key is the build ID from the linker, so a program without
        /// one has none.
        kernels: bool,
        /// Tuned choices that were dropped because a kernel had found no memory when it was tried.
        dropped: usize,
    },
    /// The caches are not written: new kernels and tuning last for this process.
    NotWritable {
        /// Path of the database.
        #[serde(serialize_with = "super::path_as_text")]
        path: PathBuf,
        /// Reason.
        because: String,
        /// True if there are entries, which are read.
        is_read: bool,
    },
    /// The caches are for this run alone, which makes an archive.
    Throwaway {
        /// Path of the database.
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

/// Prepared databases of this process, by the environment of their fingerprint. Empty before the first use.
static PREPARED: Mutex<BTreeMap<String, Prepared>> = Mutex::new(BTreeMap::new());

/// Switches caches on, unless the user or the process has configured them, and returns events of their preparation.
/// `throwaway` is a folder for this run alone; `overrules` ignores the user's configuration.
pub(super) fn switch_on(
    fingerprint: &Fingerprint,
    throwaway: Option<&Path>,
    overrules: bool,
) -> (Caches, Vec<CacheEvent>) {
    // Two threads that start at once take turns.
    let mut prepared = PREPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let is_first = prepared.is_empty();
    let folder = std::env::current_dir().ok();
    if is_first && let Some(by) = by_user(folder.as_deref(), |name| std::env::var_os(name)).filter(|_| !overrules) {
        return (Caches::Configured { by }, Vec::new());
    }
    let name = fingerprint.environment();
    let mut database = match (prepared.remove(&name), throwaway) {
        (Some(before), _) => before,
        (None, Some(folder)) => Prepared::new(folder, name.clone()),
        // Before CubeCL is configured, which opens the database.
        (None, None) => prepare(&CacheConfig::Global.root(), name.clone()),
    };
    let kernels = buildid::build_id().is_some();
    if !is_first {
        database.activate();
    } else if !CubeClRuntimeConfig::try_set(configuration(&database, kernels)) {
        return (Caches::TooLate, database.events);
    }
    let caches = open(&database, kernels, throwaway.is_some());
    let events = database.finish();
    prepared.insert(name, database);
    (caches, events)
}

/// Configuration of `CubeCL` for a database. Other settings of the user stay as they are.
fn configuration(database: &Prepared, kernels: bool) -> CubeClRuntimeConfig {
    let mut config = CubeClRuntimeConfig::from_current_dir().override_from_env();
    config.compilation.cache = kernels;
    config.autotune.disable_cache = false;
    config.environment.name.clone_from(&database.name);
    config.environment.path = CacheConfig::Directory(database.root.clone());
    config.environment.records.level = RecordLevel::Off;
    config
}

/// Opens the database through `CubeCL`.
fn open(database: &Prepared, kernels: bool, is_throwaway: bool) -> Caches {
    let path = database.path.clone();
    if is_throwaway {
        return Caches::Throwaway { path };
    }
    let (because, is_read) = match &database.access {
        Access::Full => {
            let dropped = drop_choices_without_memory();
            // Without a file, CubeCL caches in memory.
            if path.exists() {
                return Caches::On { path, kernels, dropped };
            }
            ("CubeCL cannot open it".to_owned(), false)
        }
        Access::ReadOnly(because) => (because.clone(), !persistence::namespaces().is_empty()),
        Access::Unusable(because) => (because.clone(), false),
    };
    Caches::NotWritable { path, because, is_read }
}

/// Drops the tuned choices that were made while memory was short, so that they are made again.
///
/// Kept, they would slow every later process down: a kernel that found no memory counts as one that does not work.
fn drop_choices_without_memory() -> usize {
    let mut dropped = 0;
    for namespace in persistence::namespaces().into_iter().filter(|namespace| is_tuned(namespace)) {
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

/// Returns true for the namespace of tuned choices.
pub(super) fn is_tuned(namespace: &str) -> bool {
    namespace.split('/').next() == Some(TUNED)
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
            Self::NotWritable { path, because, is_read: true } => {
                write!(f, "kernels and tuning read from {}; new ones are not kept, because {because}", path.display())
            }
            Self::NotWritable { path, because, is_read: false } => {
                let path = path.display();
                write!(f, "nothing is kept in {path}, because {because}; this process compiles and tunes again")
            }
            Self::Throwaway { path } => write!(f, "from nothing, in {}", path.display()),
            Self::Configured { by } => write!(f, "caches as configured by {by}"),
            Self::TooLate => f.write_str("caches as they were: CubeCL was configured or used before the start"),
            Self::NoGpu => f.write_str("nothing to warm without a GPU"),
        }
    }
}

/// The files that `CubeCL` 0.11 reads, and the section of them; in each folder in this order.
const FILES: [(&str, Option<&str>); 4] =
    [("cubecl.toml", None), ("CubeCL.toml", None), ("burn.toml", Some("cubecl")), ("Burn.toml", Some("cubecl"))];

/// Keys of `CubeCL`'s files that configure caches.
const KEYS: [&[&str]; 4] =
    [&["compilation", "cache"], &["environment", "name"], &["environment", "path"], &["autotune", "disable_cache"]];

/// Environment variables that configure caches.
const VARIABLES: [&str; 2] = ["CUBECL_ENVIRONMENT", "CUBECL_AUTOTUNE_CACHE"];

/// Source of the user's cache configuration, if any. `CubeCL` searches its files from `folder` upwards.
fn by_user(folder: Option<&Path>, variable: impl Fn(&str) -> Option<OsString>) -> Option<String> {
    if let Some(name) = VARIABLES.iter().find(|name| variable(name).is_some()) {
        return Some((*name).to_owned());
    }
    // The first file that configures CubeCL is the only one.
    let (file, table) = folder?.ancestors().find_map(|folder| FILES.iter().find_map(|file| read(folder, *file)))?;
    let key = KEYS.iter().find(|key| has(&table, key))?;
    Some(format!("`{}` in {file}", key.join(".")))
}

/// The configuration in a file; `None` for one that `CubeCL` passes by.
fn read(folder: &Path, (name, section): (&str, Option<&str>)) -> Option<(String, Table)> {
    let path = folder.join(name);
    let mut table: Table = fs::read_to_string(&path).ok()?.parse().ok()?;
    if let Some(section) = section {
        let Some(Value::Table(inner)) = table.remove(section) else { return None };
        table = inner;
    }
    Some((path.display().to_string(), table))
}

fn has(table: &Table, key: &[&str]) -> bool {
    let [first, rest @ ..] = key else { return true };
    match table.get(*first) {
        Some(Value::Table(inner)) => has(inner, rest),
        Some(_) => rest.is_empty(),
        None => false,
    }
}

/// First part of the namespaces of compiled kernels, by runtime.
const KERNELS: &str = "cuda";

/// Entries of the active environment.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    kernels: u64,
    choices: u64,
}

/// Entries before the first step, and the use of new ones. `None` without caches of ours.
static BEFORE: Mutex<Option<(Counts, String)>> = Mutex::new(None);

/// Begins to count new entries, for the reports of long work.
pub(super) fn begin_counting(caches: &Caches) {
    let outcome = match caches {
        Caches::On { path, .. } => Some(format!("kept in {}, so the next process is faster", path.display())),
        Caches::NotWritable { .. } => Some("not kept for the next process".to_owned()),
        _ => None,
    };
    let before = outcome.map(|outcome| (Counts::now(), outcome));
    *BEFORE.lock().unwrap_or_else(PoisonError::into_inner) = before;
    set_details(details);
}

fn details() -> Option<Details> {
    let (before, outcome) = BEFORE.lock().unwrap_or_else(PoisonError::into_inner).clone()?;
    let now = Counts::now();
    let kernels = now.kernels.saturating_sub(before.kernels);
    let choices = now.choices.saturating_sub(before.choices);
    let counts = format!("kernels compiled: {kernels}, choices tuned: {choices}");
    (kernels + choices > 0).then_some(Details { counts, outcome })
}

impl Counts {
    fn now() -> Self {
        environment::namespaces().iter().fold(Self::default(), |counts, namespace| {
            match namespace.namespace.split('/').next() {
                Some(KERNELS) => Self { kernels: counts.kernels + namespace.entries, ..counts },
                Some(TUNED) => Self { choices: counts.choices + namespace.entries, ..counts },
                _ => counts,
            }
        })
    }
}

#[cfg(test)]
mod tests;
