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
    /// When the file was changed last, where that is known.
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
        // SAFETY: the bytes of a map stay what they are as long as nobody writes to the file or cuts it, which no process
        // can rule out. Both kinds of mapped files ask their users not to; what this crate writes itself it writes under
        // other names and renames, which leaves a mapped file alone. Nothing relies on bytes that were checked earlier
        // being the same later: lines and items are copied out, and then looked at.
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
