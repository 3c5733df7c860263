//! Files as bytes in memory.
#![expect(unsafe_code, reason = "mapping a file is unsafe: it can be changed by others")]

use std::fs::File;
use std::io;
use std::ops::Deref;
use std::path::Path;
use std::time::SystemTime;

use memmap2::Mmap;

/// A file, mapped to be read.
#[derive(Debug)]
pub(super) struct Map {
    /// `None` of an empty file, which not every system maps.
    bytes: Option<Mmap>,
    /// Modification time, if known.
    pub(super) modified: Option<SystemTime>,
}

impl Map {
    /// Maps the file as it is now. It must not be changed in place before the map is dropped; it may be replaced.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        let modified = metadata.modified().ok();
        if metadata.len() == 0 {
            return Ok(Self { bytes: None, modified });
        }
        // SAFETY: the mapped bytes stay the same as long as no process writes to the file or truncates it, which cannot
        // be ruled out. The documentation of both kinds of mapped files asks users not to. This crate writes such files
        // under other names and renames them, which leaves a mapped file intact. No code relies on checked bytes
        // staying the same: lines and items are copied out before they are checked.
        let bytes = unsafe { Mmap::map(&file)? };
        Ok(Self { bytes: Some(bytes), modified })
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
}
