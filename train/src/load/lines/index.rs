//! Index of the lines of a file, and its cache file.
//!
//! `NAME.lines` has 8 bytes of mark and version, a header, the first byte of each line, and a CRC-32 of all that. The
//! header has the size and modification time of the text and the number of lines. Numbers are 8-byte and little-endian.

use std::ffi::OsString;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use gpu_tuned_core::atomic_file;

use crate::load::stored::StoredFile;

/// Changes with the format.
const MARK: &[u8; 8] = b"gtlines\x01";
const NUMBER: usize = 8;
/// Bytes before the beginnings of lines.
const HEADER: usize = MARK.len() + 3 * NUMBER;
const CHECKSUM: usize = 4;

/// The beginnings of the lines.
#[derive(Debug)]
pub(super) struct Index {
    bytes: Bytes,
    lines: usize,
}

#[derive(Debug)]
enum Bytes {
    Stored(StoredFile),
    Made(Vec<u8>),
}

/// Identity of the indexed text.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    bytes: u64,
    /// Nanoseconds since 1970; 0 if earlier or unknown.
    changed: u64,
}

impl Index {
    /// Index of `text`, the file at `path`.
    pub(super) fn open(path: &Path, text: &StoredFile) -> io::Result<Self> {
        let stamp = Stamp::new(text);
        let cache = cache(path);
        let kept = StoredFile::open(&cache).ok().and_then(|file| Some((valid_lines(&file, stamp)?, file)));
        if let Some((lines, file)) = kept {
            return Ok(Self { bytes: Bytes::Stored(file), lines });
        }
        let made = make(text, stamp)?;
        if let Err(error) = atomic_file::replace(&cache, &made) {
            tracing::warn!(path = %cache.display(), %error, "the index of lines cannot be kept: it is made at each start");
        }
        let lines = (made.len() - HEADER - CHECKSUM) / NUMBER;
        Ok(Self { bytes: Bytes::Made(made), lines })
    }

    /// Lines.
    pub(super) const fn len(&self) -> usize {
        self.lines
    }

    /// Range of a line in a text of `end` bytes, including its ending.
    pub(super) fn line(&self, line: usize, end: u64) -> io::Result<Range<u64>> {
        let count = 2.min(self.lines - line);
        let begin = HEADER + line * NUMBER;
        let range = begin..begin + count * NUMBER;
        let bytes = match &self.bytes {
            Bytes::Stored(file) => &file.read(range.start as u64..range.end as u64)?,
            Bytes::Made(bytes) => &bytes[range],
        };
        Ok(number(bytes)..if count == 2 { number(&bytes[NUMBER..]) } else { end })
    }
}

impl Stamp {
    fn new(text: &StoredFile) -> Self {
        let changed = text.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let changed = changed.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Self { bytes: text.len, changed }
    }
}

/// The file of the index: beside that of the text.
fn cache(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".lines");
    name.into()
}

fn make(text: &StoredFile, stamp: Stamp) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; HEADER];
    let mut add = |start: u64| {
        if start < text.len {
            bytes.extend(start.to_le_bytes());
        }
    };
    add(0);
    let mut before = 0;
    text.for_each_part(0..text.len, |part| {
        let ends = part.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
        ends.for_each(|(at, _)| add(before + at as u64 + 1));
        before += part.len() as u64;
    })?;
    let lines = (bytes.len() - HEADER) / NUMBER;
    let header = [stamp.bytes, stamp.changed, lines as u64].map(u64::to_le_bytes);
    bytes[..MARK.len()].copy_from_slice(MARK);
    bytes[MARK.len()..HEADER].copy_from_slice(header.as_flattened());
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    Ok(bytes)
}

/// Number of lines of a complete index of the text; `None` for any other file.
fn valid_lines(file: &StoredFile, stamp: Stamp) -> Option<usize> {
    let end = file.len.checked_sub(CHECKSUM as u64)?;
    let header = file.read(0..HEADER as u64).ok()?;
    let (mark, header) = header.split_at(MARK.len());
    let [bytes, changed, lines] = [0, 1, 2].map(|index| number(&header[index * NUMBER..]));
    let is_whole = Some(end) == lines.checked_mul(NUMBER as u64).and_then(|bytes| bytes.checked_add(HEADER as u64));
    if mark != MARK || (Stamp { bytes, changed }) != stamp || !is_whole {
        return None;
    }
    let checksum = file.read(end..file.len).ok()?;
    (file.crc32(0..end).ok()?.to_le_bytes()[..] == checksum[..]).then(|| usize::try_from(lines).ok())?
}

/// The first number of `bytes`.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |number| u64::from_le_bytes(*number))
}
