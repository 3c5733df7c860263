//! The file of prepared items.
//!
//! The file has 8 bytes of mark and version; then the items, each followed by its CRC-32; then the tail. The tail is
//! the key, the end of each item, the length of the key, the number of items, and a CRC-32 of the tail so far. Numbers
//! are 8-byte and little-endian, checksums 4-byte. The tail is written last, so a file that was cut short has none.

use gpu_tuned_core::atomic_file::Draft;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::CacheError;
use crate::load::stored::StoredFile;

/// Changes with the format.
const MARK: &[u8; 8] = b"gtitems\x01";
const NUMBER: u64 = 8;
const CHECKSUM: usize = 4;

/// Problem of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unusable {
    #[error("it is not whole, or not a cache of items")]
    Broken,
    #[error("it holds items of another fingerprint, type or number")]
    OtherItems,
}

/// A whole file of items.
#[derive(Debug)]
pub(super) struct Items {
    file: StoredFile,
    /// Position of the table of item ends.
    ends: u64,
    len: usize,
}

impl Items {
    /// The items of the file, if they have this key.
    pub(super) fn read(file: StoredFile, key: &str) -> Result<Self, Unusable> {
        let (ends, len, found) = parts(&file).ok_or(Unusable::Broken)?;
        if found == key.as_bytes() { Ok(Self { file, ends, len }) } else { Err(Unusable::OtherItems) }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes of an item; `None` if they are not those that were written.
    pub(super) fn item(&self, index: usize) -> Option<Vec<u8>> {
        let begin = self.ends + index.saturating_sub(1) as u64 * NUMBER;
        let numbers = self.file.read(begin..self.ends + (index as u64 + 1) * NUMBER).ok()?;
        let (start, end) = match index {
            0 => (MARK.len() as u64, number(&numbers)?),
            _ => (number(&numbers)?, number(&numbers[NUMBER as usize..])?),
        };
        let mut item = self.file.read(start..end).ok()?;
        let checksum = item.split_off(item.len().checked_sub(CHECKSUM)?);
        (crc32fast::hash(&item).to_le_bytes()[..] == checksum[..]).then_some(item)
    }
}

/// Position of the table of item ends, number of items, and key.
fn parts(file: &StoredFile) -> Option<(u64, usize, Vec<u8>)> {
    let body = file.len.checked_sub(CHECKSUM as u64)?;
    let numbers = body.checked_sub(2 * NUMBER)?;
    let last = file.read(numbers..file.len).ok()?;
    let (key, len) = (number(&last)?, number(&last[NUMBER as usize..])?);
    let ends = numbers.checked_sub(len.checked_mul(NUMBER)?)?;
    let start = ends.checked_sub(key).filter(|start| *start >= MARK.len() as u64)?;
    let is_whole = file.crc32(start..body).ok()?.to_le_bytes()[..] == last[2 * NUMBER as usize..];
    let is_ours = file.read(0..MARK.len() as u64).ok()? == MARK;
    let found = file.read(start..ends).ok()?;
    (is_whole && is_ours).then_some((ends, usize::try_from(len).ok()?, found))
}

/// The first number of `bytes`.
fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.first_chunk()?))
}

/// Writes the file, or leaves the one that is there.
pub(super) fn write(
    path: &Path,
    key: &str,
    chunks: impl Iterator<Item = Result<Vec<Vec<u8>>, CacheError>>,
    failed: impl Fn(io::Error) -> CacheError,
) -> Result<(), CacheError> {
    let mut draft = Draft::new(path).map_err(&failed)?;
    let mut file = BufWriter::new(draft.file());
    let mut end = MARK.len();
    let mut ends = Vec::new();
    file.write_all(MARK).map_err(&failed)?;
    for chunk in chunks {
        for item in chunk? {
            let checksum = crc32fast::hash(&item).to_le_bytes();
            file.write_all(&item).and_then(|()| file.write_all(&checksum)).map_err(&failed)?;
            end += item.len() + CHECKSUM;
            ends.extend((end as u64).to_le_bytes());
        }
    }
    file.write_all(&tail(key, &ends)).and_then(|()| file.flush()).map_err(&failed)?;
    drop(file);
    draft.commit().map_err(failed)
}

/// The key and what follows it.
fn tail(key: &str, ends: &[u8]) -> Vec<u8> {
    let items = ends.len() / NUMBER as usize;
    let mut tail = [key.as_bytes(), ends].concat();
    tail.extend([key.len(), items].map(|number| (number as u64).to_le_bytes()).as_flattened());
    let checksum = crc32fast::hash(&tail);
    tail.extend(checksum.to_le_bytes());
    tail
}
