//! Turns of writers of one file.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use gpu_tuned_core::atomic_file;

/// Turn of a writer. Ends when it is dropped, or when the process ends.
pub(super) struct Turn {
    /// Locked, unless the file system has no locks.
    _file: File,
    beside: PathBuf,
}

impl Turn {
    /// Waits for the turn to write the file at `path`.
    pub(super) fn take(path: &Path) -> io::Result<Self> {
        let mut name = std::ffi::OsString::from(".");
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
