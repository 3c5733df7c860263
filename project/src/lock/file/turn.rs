//! Turns of writers of one file.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Turn of a writer. Ends when it is dropped, or when the process ends.
pub(super) struct Turn {
    /// Locked, unless the file system has no locks.
    _file: File,
    beside: PathBuf,
    /// True if no other process is writing.
    pub is_alone: bool,
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
                Ok(()) if !is_at(&file, &beside) => {}
                Ok(()) => return Ok(Self { _file: file, beside, is_alone: true }),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // As in cargo: writes without a turn rather than not at all.
                Err(error) if error.kind() == ErrorKind::Unsupported => {
                    return Ok(Self { _file: file, beside, is_alone: false });
                }
                Err(error) => return Err(error),
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

const HAS_FILE_IDS: bool = cfg!(unix);

/// Returns true if the open file is still at this path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(there)) => id(open) == id(there),
        _ => false,
    }
}

/// On other systems the file stays.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}
