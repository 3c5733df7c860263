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

mod error;
mod turn;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gpu_tuned_core::atomic_file;
use gpu_tuned_core::regular_file;
use gpu_tuned_core::source::{Source, utf8};

pub use error::LockError;

use super::{Lock, LockedWorkload, Merged, merged};
use turn::Turn;

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
