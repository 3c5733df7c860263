//! Files that are read at positions.

use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::time::SystemTime;

/// Bytes that are read at once of a whole file.
const CHUNK: u64 = 1 << 20;

/// A file that is read at any position, by several threads at once. Nothing is mapped, so that a file which is cut short by
/// others gives an error.
#[derive(Debug)]
pub(super) struct StoredFile {
    file: File,
    /// Bytes when it was opened.
    pub(super) len: u64,
    /// Modification time, if known.
    pub(super) modified: Option<SystemTime>,
}

impl StoredFile {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        Ok(Self { file, len: metadata.len(), modified: metadata.modified().ok() })
    }

    /// The bytes of a range; fewer bytes are an error.
    pub(super) fn read(&self, range: Range<u64>) -> io::Result<Vec<u8>> {
        let length = range.end.checked_sub(range.start).filter(|_| range.end <= self.len);
        let length = length.and_then(|length| usize::try_from(length).ok());
        let mut bytes = vec![0; length.ok_or(ErrorKind::UnexpectedEof)?];
        read_exact_at(&self.file, &mut bytes, range.start)?;
        Ok(bytes)
    }

    /// CRC-32 of a range.
    pub(super) fn crc32(&self, range: Range<u64>) -> io::Result<u32> {
        let mut hasher = crc32fast::Hasher::new();
        self.for_each_part(range, |part| hasher.update(part))?;
        Ok(hasher.finalize())
    }

    /// Passes the bytes of a range to `take`, a part at a time.
    pub(super) fn for_each_part(&self, range: Range<u64>, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut start = range.start;
        while start < range.end {
            let end = range.end.min(start + CHUNK);
            take(&self.read(start..end)?);
            start = end;
        }
        Ok(())
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, bytes: &mut [u8], position: u64) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, bytes, position)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut bytes: &mut [u8], mut position: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, bytes, position) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(count) => {
                bytes = &mut bytes[count..];
                position += count as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
