//! Prepared items that outlive the process.

use std::io::{self, BufWriter, Write};
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use burn::data::dataset::{Dataset, DatasetError};
use gpu_tuned_core::atomic_file::Draft;
use rayon::prelude::{IntoParallelIterator, ParallelIterator};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::lines::StoredFile;

/// Items that are prepared and encoded in parallel before they are written.
const CHUNK: usize = 256;

/// A dataset whose items are prepared once and kept in a file: what is slow to make (decoded images, tokenised text) is
/// slow in the first run only.
///
/// Opening the dataset for the first time creates the file, on all cores; later each item is read when it is asked for. The
/// file is created again if the fingerprint, the type of the items or their number changes, or if it is damaged. Everything that affects
/// items belongs into the fingerprint. A damaged item is prepared again on access. Both cases log a warning.
///
/// Items are stored as [postcard](https://docs.rs/postcard), which is not self-describing: no
/// `#[serde(untagged)]` or `#[serde(flatten)]`.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::data::dataset::transform::{Mapper, MapperDataset};
/// use burn::data::dataset::{Dataset, InMemDataset};
/// use gpu_tuned::load::CachedDataset;
///
/// struct Lengths;
///
/// impl Mapper<String, usize> for Lengths {
///     fn map(&self, item: &String) -> usize {
///         item.len()
///     }
/// }
///
/// # let folder = tempfile::tempdir()?;
/// # let cache = folder.path().join("lengths.items");
/// let words = InMemDataset::new(vec!["one".to_owned(), "three".to_owned()]);
/// let lengths = CachedDataset::open(MapperDataset::new(words, Lengths), &cache, "lengths of two words")?;
/// assert_eq!(lengths.get(1)?, 5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct CachedDataset<D, T> {
    source: D,
    path: PathBuf,
    items: Items,
    item: PhantomData<fn() -> T>,
}

impl<D, T> CachedDataset<D, T>
where
    D: Dataset<T>,
    T: Serialize + DeserializeOwned + Send,
{
    /// The items of `source`, which prepares them, kept in the file `path` under `fingerprint`.
    ///
    /// # Errors
    ///
    /// [`CacheError`], when items cannot be prepared or the file cannot be written. What was there before is then as it
    /// was.
    pub fn open(source: D, path: impl Into<PathBuf>, fingerprint: &str) -> Result<Self, CacheError> {
        let path = path.into();
        let key = format!("{}\n{}\n{fingerprint}", std::any::type_name::<T>(), source.len());
        let items = match kept(&path, &key) {
            Some(items) => items,
            None => make(&source, &path, &key)?,
        };
        Ok(Self { source, path, items, item: PhantomData })
    }

    /// Dataset that prepares the items.
    pub fn source(&self) -> &D {
        &self.source
    }

    fn prepare_again(&self, index: usize) -> Result<T, DatasetError> {
        tracing::warn!(path = %self.path.display(), index, "an item of the cache is damaged: it is prepared again");
        self.source.get(index)
    }
}

/// The items of the file, if it is one of these.
fn kept(path: &Path, key: &str) -> Option<Items> {
    let file = match StoredFile::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return None,
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "the cache of items cannot be read: they are prepared anew");
            return None;
        }
    };
    match Items::read(file, key) {
        Ok(items) => Some(items),
        Err(reason) => {
            tracing::warn!(path = %path.display(), %reason, "the cache of items cannot be used: they are prepared anew");
            None
        }
    }
}

fn make<D, T>(source: &D, path: &Path, key: &str) -> Result<Items, CacheError>
where
    D: Dataset<T>,
    T: Serialize + Send,
{
    let written = |error| CacheError::Write { path: path.to_owned(), source: error };
    let chunks = (0..source.len()).step_by(CHUNK).map(|start| {
        let end = source.len().min(start + CHUNK);
        (start..end).into_par_iter().map(|index| encoded(source, index)).collect::<Result<Vec<_>, _>>()
    });
    write(path, key, chunks, written)?;
    let file = StoredFile::open(path).map_err(written)?;
    // Another process may have replaced it meanwhile, with items of another fingerprint.
    Items::read(file, key).map_err(|reason| CacheError::Replaced { path: path.to_owned(), reason: reason.to_string() })
}

fn encoded<T: Serialize>(source: &impl Dataset<T>, item: usize) -> Result<Vec<u8>, CacheError> {
    let value = source.get(item).map_err(|source| CacheError::Prepare { item, source })?;
    postcard::to_stdvec(&value).map_err(|source| CacheError::Encode { item, source: source.into() })
}

impl<D, T> Dataset<T> for CachedDataset<D, T>
where
    D: Dataset<T>,
    T: Serialize + DeserializeOwned + Send,
{
    fn get(&self, index: usize) -> Result<T, DatasetError> {
        let items = self.items.len();
        assert!(index < items, "item {index} of {items}");
        let item = self.items.item(index).and_then(|bytes| postcard::from_bytes(&bytes).ok());
        item.map_or_else(|| self.prepare_again(index), Ok)
    }

    fn len(&self) -> usize {
        self.items.len()
    }
}

/// Why there is no cache of prepared items.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum CacheError {
    /// The dataset failed to prepare an item.
    #[error("item {item} could not be prepared")]
    Prepare {
        item: usize,
        #[source]
        source: DatasetError,
    },
    /// An item cannot be written in the cache's format.
    #[error("item {item} cannot be kept")]
    Encode {
        item: usize,
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file cannot be written, or read when it is.
    #[error("the cache {} cannot be written", path.display())]
    Write {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    /// The file was replaced as soon as it was written: give each dataset a file of its own.
    #[error("the cache {} was replaced by another process: {reason}", path.display())]
    Replaced { path: PathBuf, reason: String },
}

/// Changes with the format.
const MARK: &[u8; 8] = b"gtitems\x01";
const NUMBER: u64 = 8;
const CHECKSUM: usize = 4;

/// Problem of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum Unusable {
    #[error("it is not whole, or not a cache of items")]
    Broken,
    #[error("it holds items of another fingerprint, type or number")]
    OtherItems,
}

/// A whole file of items.
///
/// The file has 8 bytes of mark and version; then the items, each followed by its CRC-32; then the tail. The tail is
/// the key, the end of each item, the length of the key, the number of items, and a CRC-32 of the tail so far. Numbers
/// are 8-byte and little-endian, checksums 4-byte. The tail is written last, so a file that was cut short has none.
#[derive(Debug)]
struct Items {
    file: StoredFile,
    /// Position of the table of item ends.
    ends: u64,
    len: usize,
}

impl Items {
    /// The items of the file, if they have this key.
    fn read(file: StoredFile, key: &str) -> Result<Self, Unusable> {
        let (ends, len, found) = parts(&file).ok_or(Unusable::Broken)?;
        if found == key.as_bytes() { Ok(Self { file, ends, len }) } else { Err(Unusable::OtherItems) }
    }

    fn len(&self) -> usize {
        self.len
    }

    /// The bytes of an item; `None` if they are not those that were written.
    fn item(&self, index: usize) -> Option<Vec<u8>> {
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
fn write(
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

#[cfg(test)]
mod tests;
