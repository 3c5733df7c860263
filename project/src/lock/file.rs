//! `gpu-tuned.lock` on disk: read whole, updated by one writer at a time, never half-written.
//!
//! ```
//! use gpu_tuned_project::lock::{LockFile, LockedWorkload};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! let file = LockFile::new(folder.path().join("gpu-tuned.lock"));
//! let mut digits = LockedWorkload::default();
//! digits.measured.parameters = 60_074;
//! file.update("digits", &digits)?;
//!
//! let lock = file.read()?.expect("it was just written");
//! assert_eq!(lock.workload["digits"], digits);
//! # Ok(())
//! # }
//! ```

use core::fmt;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use gpu_tuned_core::atomic_file;
use gpu_tuned_core::regular_file;
use gpu_tuned_core::source::{FileError, Source, utf8};
use thiserror::Error;

use super::{Lock, LockedWorkload, Merged, merged};

/// Path of a `gpu-tuned.lock`, which may be missing.
#[derive(Clone, Debug)]
pub struct LockFile {
    path: PathBuf,
}

/// Result of [`LockFile::update`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Update {
    /// True if the file changed. An equal file is not written.
    pub is_changed: bool,
    /// Tables that were removed because they no longer apply, each with the reason.
    pub dropped: Vec<String>,
}

impl LockFile {
    /// The lock at `path`, which may be a link to it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Path of the file, as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the file; `None` if it is missing.
    ///
    /// # Errors
    ///
    /// [`LockError::Read`] and [`LockError::Damaged`].
    pub fn read(&self) -> Result<Option<Lock>, LockError> {
        let Some(text) = self.text()? else { return Ok(None) };
        self.parse(text).map(|(lock, _)| Some(lock))
    }

    /// Merges the measurements of the workload `name` into the file, as [`merged`] does, and creates a missing file.
    ///
    /// Writers take turns with a file lock on `.gpu-tuned.lock.turn` beside the file, so updates are not lost. A reader finds
    /// the old file or the new one: the new one is written as `.gpu-tuned.lock.….tmp`, flushed to disk, and renamed.
    ///
    /// # Errors
    ///
    /// [`LockError`]; the file then stays as it was.
    pub fn update(&self, name: &str, entry: &LockedWorkload) -> Result<Update, LockError> {
        let not_written = |cause| LockError::Write { path: self.path.clone(), cause };
        // Keeps a link.
        let path = fs::canonicalize(&self.path).unwrap_or_else(|_| self.path.clone());
        let _turn = Turn::take(&path).map_err(not_written)?;
        atomic_file::sweep(&path);
        let before = self.text()?.map(|text| self.parse(text)).transpose()?.map(|(_, text)| text);
        let file = self.name();
        let source = before.as_deref().map(|text| Source { file: &file, text });
        let Merged { text, dropped } = merged(source, name, entry).map_err(|mistakes| {
            let (path, name) = (self.path.clone(), name.to_owned());
            LockError::Figures { path, name, mistakes }
        })?;
        let is_changed = before.as_ref() != Some(&text);
        if is_changed {
            atomic_file::replace(&path, &text).map_err(not_written)?;
        }
        Ok(Update { is_changed, dropped })
    }

    fn parse(&self, text: String) -> Result<(Lock, String), LockError> {
        match Lock::parse(Source { file: &self.name(), text: &text }) {
            Ok(lock) => Ok((lock, text)),
            Err(mistakes) => Err(LockError::Damaged { mistakes, text }),
        }
    }

    fn text(&self) -> Result<Option<String>, LockError> {
        match regular_file::read(&self.path, regular_file::LARGEST) {
            Ok(bytes) => {
                let text = utf8(&self.name(), bytes, Lock::REMEDY);
                text.map(Some).map_err(|(mistake, text)| LockError::Damaged { mistakes: vec![mistake], text })
            }
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(cause) => Err(LockError::Read { path: self.path.clone(), cause }),
        }
    }

    /// Name of the file in messages.
    fn name(&self) -> String {
        self.path.display().to_string()
    }
}

/// Turn of a writer. Ends when it is dropped, or when the process ends.
struct Turn {
    /// Locked, unless the file system has no locks.
    _file: File,
    beside: PathBuf,
}

impl Turn {
    /// Waits for the turn to write the file at `path`.
    fn take(path: &Path) -> io::Result<Self> {
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        name.push(".turn");
        let beside = path.with_file_name(name);
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(&beside)?;
            match file.lock() {
                // The previous writer removed the file at the end of its turn.
                Ok(()) if !atomic_file::is_at(&file, &beside) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // As in cargo: where there are no locks, writes without a turn rather than not at all.
                Ok(()) | Err(_) => return Ok(Self { _file: file, beside }),
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        // Removed while locked: a writer that has opened the file notices, and creates another.
        if HAS_FILE_IDS {
            drop(fs::remove_file(&self.beside));
        }
    }
}

/// On other systems the file stays.
const HAS_FILE_IDS: bool = cfg!(unix);

/// Error of reading or updating a `gpu-tuned.lock`. The file stays as it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// The file exists and cannot be read.
    #[error("cannot read `{}`: {cause}; allow reading it, or move it away", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The file has mistakes: it has both sides of a merge, was cut short, edited, or written by a newer release.
    #[error("{}", Marked(mistakes, text))]
    Damaged {
        /// Mistakes with their positions; the last one has the remedy.
        mistakes: Vec<FileError>,
        /// Text of the file.
        text: String,
    },
    /// Measurements out of range.
    #[error(
        "`{name}` is not written to `{}`: {}; measure again on a device that nothing else uses",
        path.display(),
        mistakes.iter().map(|mistake| mistake.message.as_str()).collect::<Vec<_>>().join(", ")
    )]
    Figures {
        /// The file.
        path: PathBuf,
        /// The workload.
        name: String,
        /// Mistakes with their positions in the new text.
        mistakes: Vec<FileError>,
    },
    /// The file, or one beside it, cannot be written: most often a read-only or full disk.
    #[error("cannot write `{}`: {cause}; free disk space, or make its folder and allow writing there", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
}

/// Displays mistakes, each with its line.
struct Marked<'e>(&'e [FileError], &'e str);

/// Maximum width of a line, in characters.
const SHOWN: usize = 120;

impl fmt::Display for Marked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(mistakes, text) = self;
        for (index, mistake) in mistakes.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{mistake}")?;
            let line = text.lines().nth(mistake.place.line.saturating_sub(1)).unwrap_or_default();
            let shown: String = line.chars().take(SHOWN).collect();
            write!(f, "\n{:>5} | {}", mistake.place.line, shown.trim_end())?;
        }
        Ok(())
    }
}
