//! Writers of one file, one after the other.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// A turn at writing a file. It ends when this is dropped, or the process ends in whatever way.
pub(super) struct Turn {
    /// Locked, unless the file system has no locks.
    _file: File,
    beside: PathBuf,
    /// Whether nobody else is writing.
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
                // The writer before took the file away with its turn.
                Ok(()) if !is_at(&file, &beside) => {}
                Ok(()) => return Ok(Self { _file: file, beside, is_alone: true }),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // As cargo does it: to write without a turn is better than not at all.
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
        // While it is locked: who opened it before sees that it is gone, and makes another.
        if TELLS_FILES_APART {
            drop(fs::remove_file(&self.beside));
        }
    }
}

const TELLS_FILES_APART: bool = cfg!(unix);

/// Whether the open file is still the one at this path.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(there)) => id(open) == id(there),
        _ => false,
    }
}

/// Elsewhere the file stays.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> bool {
    true
}
