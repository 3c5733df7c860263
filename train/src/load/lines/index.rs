//! Index of the lines of a file, and its cache file.
//!
//! `NAME.lines` has 8 bytes of mark and version, a header, the first byte of each line, and a CRC-32 of all that. The
//! header has the size and modification time of the text and the number of lines. Numbers are 8-byte and little-endian.

use gpu_tuned_core::atomic_file;
use std::ffi::OsString;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::load::map::Map;

/// Changes with the format.
const MARK: &[u8; 8] = b"gtlines\x01";
const NUMBER: usize = 8;
/// Bytes before the beginnings of lines.
const HEADER: usize = MARK.len() + 3 * NUMBER;
const CHECKSUM: usize = 4;

/// The beginnings of the lines.
#[derive(Debug)]
pub(super) struct Index(Stored);

#[derive(Debug)]
enum Stored {
    Mapped(Map),
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
    /// Index of `text`, the content of the file.
    pub(super) fn open(path: &Path, text: &Map) -> Self {
        let stamp = Stamp::new(text);
        let cache = cache(path);
        if let Some(map) = Map::open(&cache).ok().filter(|map| is_valid(map, stamp)) {
            return Self(Stored::Mapped(map));
        }
        let made = make(text, stamp);
        if let Err(error) = atomic_file::replace(&cache, &made) {
            tracing::warn!(path = %cache.display(), %error, "the index of lines cannot be kept: it is made at each start");
        }
        Self(Stored::Made(made))
    }

    /// Lines.
    pub(super) fn len(&self) -> usize {
        (self.bytes().len() - HEADER - CHECKSUM) / NUMBER
    }

    /// Range of a line in a text of `end` bytes, including its ending.
    pub(super) fn line(&self, line: usize, end: usize) -> Range<usize> {
        let next = if line + 1 < self.len() { self.start(line + 1) } else { end };
        self.start(line)..next
    }

    fn start(&self, line: usize) -> usize {
        usize::try_from(number(&self.bytes()[HEADER + line * NUMBER..])).unwrap_or(usize::MAX)
    }

    fn bytes(&self) -> &[u8] {
        match &self.0 {
            Stored::Mapped(map) => map,
            Stored::Made(bytes) => bytes,
        }
    }
}

impl Stamp {
    fn new(text: &Map) -> Self {
        let changed = text.modified.and_then(|time| time.duration_since(UNIX_EPOCH).ok());
        let changed = changed.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        Self { bytes: text.len() as u64, changed }
    }
}

/// The file of the index: beside that of the text.
fn cache(path: &Path) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(".lines");
    name.into()
}

fn make(text: &[u8], stamp: Stamp) -> Vec<u8> {
    let ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let starts = std::iter::once(0).chain(ends).filter(|start| *start < text.len());
    let mut bytes = vec![0; HEADER];
    starts.for_each(|start| bytes.extend((start as u64).to_le_bytes()));
    let lines = (bytes.len() - HEADER) / NUMBER;
    let header = [stamp.bytes, stamp.changed, lines as u64].map(u64::to_le_bytes);
    bytes[..MARK.len()].copy_from_slice(MARK);
    bytes[MARK.len()..HEADER].copy_from_slice(header.as_flattened());
    let checksum = crc32fast::hash(&bytes);
    bytes.extend(checksum.to_le_bytes());
    bytes
}

/// Returns true for a complete index of the text.
fn is_valid(bytes: &[u8], stamp: Stamp) -> bool {
    let Some((body, checksum)) = bytes.split_last_chunk::<CHECKSUM>().filter(|(body, _)| body.len() >= HEADER) else {
        return false;
    };
    let (header, starts) = body.split_at(HEADER);
    let (mark, header) = header.split_at(MARK.len());
    let [size, changed, lines] = [0, 1, 2].map(|index| number(&header[index * NUMBER..]));
    mark == MARK
        && Stamp { bytes: size, changed } == stamp
        && Some(starts.len() as u64) == lines.checked_mul(NUMBER as u64)
        && crc32fast::hash(body) == u32::from_le_bytes(*checksum)
}

/// The first number of `bytes`.
fn number(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(u64::MAX, |number| u64::from_le_bytes(*number))
}
