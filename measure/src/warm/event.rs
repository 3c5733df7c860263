//! Events in the preparation of a kernel cache.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// Event in the preparation of a kernel cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CacheEvent {
    /// The database was damaged. A new one was begun.
    SetAside {
        /// New path of the damaged database.
        #[serde(serialize_with = "super::path_as_text")]
        path: PathBuf,
        /// Fault that was found.
        because: String,
    },
    /// The database's file was empty. A new one was begun.
    Emptied,
    /// The database was too large, and was deleted.
    Outgrown {
        /// Its size.
        bytes: u64,
    },
    /// The cache is on a network file system, and is used by this host alone.
    OneHost {
        /// Kind of file system, such as `NFS`.
        file_system: String,
    },
}

impl CacheEvent {
    /// Returns true if this start is slow because of the event.
    pub(super) fn is_slow(&self) -> bool {
        !matches!(self, Self::OneHost { .. })
    }
}

impl fmt::Display for CacheEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ANEW: &str = "this process compiles and tunes again";
        match self {
            Self::SetAside { path, because } => {
                write!(f, "the kernel cache was damaged ({because}) and is now {}; {ANEW}", path.display())
            }
            Self::Emptied => {
                write!(
                    f,
                    "the file of the kernel cache was empty, as after an interrupted copy or on a full disk; {ANEW}"
                )
            }
            Self::Outgrown { bytes } => {
                write!(f, "the kernel cache had grown to {} MiB and was deleted; {ANEW}", bytes >> 20)
            }
            Self::OneHost { file_system } => {
                write!(f, "a cache for this host alone, because the folder is on a network file system ({file_system})")
            }
        }
    }
}
