//! Text files as datasets of lines.

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use burn::data::dataset::{Dataset, DatasetError};
use gpu_tuned_core::atomic_file;

/// The lines of a text file, which need not fit the memory.
///
/// A line is read when it is asked for. The index of lines is stored beside the file, as `NAME.lines`, and created again when
/// the size or modification time changes. Lines are those of [`str::lines`]: they end with `\n` or `\r\n`, the last may end
/// without, and an empty file has none.
///
/// The file may be replaced by another while the dataset lives. If it is changed in place, a line that no longer is where the
/// index has it is an error.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::data::dataset::Dataset;
/// use gpu_tuned::load::LineDataset;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("corpus.txt");
/// std::fs::write(&path, "one\ntwo\r\nthree")?;
/// let lines = LineDataset::open(&path)?;
/// assert_eq!((lines.len(), lines.get(1)?.as_str()), (3, "two"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// A line that is not UTF-8, or cannot be read, is a [`LineError`] with its number, within a [`DatasetError`].
#[derive(Debug)]
pub struct LineDataset {
    path: PathBuf,
    text: StoredFile,
    index: Index,
}

impl LineDataset {
    /// Opens the file, and reads or makes its index. One that cannot be written is made at each start.
    ///
    /// # Errors
    ///
    /// [`LinesError`], when the file cannot be read.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, LinesError> {
        let path = path.into();
        let failed = |source| LinesError { path: path.clone(), source };
        let text = StoredFile::open(&path).map_err(failed)?;
        let index = Index::open(&path, &text).map_err(failed)?;
        Ok(Self { path, text, index })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn line(&self, index: usize) -> Result<String, LineFault> {
        let range = self.index.line(index, self.text.len)?;
        // With the end of the line before.
        let begin = range.start.saturating_sub(1);
        let is_elsewhere = index == 0 && range.start != 0;
        if is_elsewhere || range.start > range.end || range.end > self.text.len {
            return Err(LineFault::Moved);
        }
        let bytes = self.text.read(begin..range.end)?;
        let (before, line) = bytes.split_at((range.start - begin) as usize);
        let inner = line.strip_suffix(b"\n");
        let is_end = inner.is_some() || range.end == self.text.len;
        let inner = inner.unwrap_or(line);
        if !matches!(before, b"" | b"\n") || !is_end || inner.contains(&b'\n') {
            return Err(LineFault::Moved);
        }
        let line = if inner.len() < line.len() { inner.strip_suffix(b"\r").unwrap_or(inner) } else { inner };
        String::from_utf8(line.to_vec()).map_err(|error| LineFault::NotUtf8(error.utf8_error()))
    }
}

impl Dataset<String> for LineDataset {
    fn get(&self, index: usize) -> Result<String, DatasetError> {
        let lines = self.index.len();
        assert!(index < lines, "line {index} of a file of {lines}");
        let error = |fault| DatasetError::new(LineError { path: self.path.clone(), line: index + 1, fault });
        self.line(index).map_err(error)
    }

    fn len(&self) -> usize {
        self.index.len()
    }
}

/// A text file that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("{} cannot be read", path.display())]
#[non_exhaustive]
pub struct LinesError {
    /// The file.
    pub path: PathBuf,
    /// Why.
    #[source]
    pub source: std::io::Error,
}

/// A line that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of {} cannot be used", path.display())]
#[non_exhaustive]
pub struct LineError {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// The reason.
    #[source]
    pub fault: LineFault,
}

/// The reason why a line cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineFault {
    /// It is no text. The error has the byte in the line.
    #[error("it is not UTF-8")]
    NotUtf8(#[source] std::str::Utf8Error),
    /// The file was changed in place, or its index is of another file.
    #[error(
        "it is not where the index has it: the file was changed; open it again, and remove its `.lines` if that does not help"
    )]
    Moved,
    /// The file cannot be read, or was cut short.
    #[error("it cannot be read")]
    Read(#[from] std::io::Error),
}

/// Changes with the format.
const MARK: &[u8; 8] = b"gtlines\x01";
const NUMBER: usize = 8;
/// Bytes before the beginnings of lines.
const HEADER: usize = MARK.len() + 3 * NUMBER;
const CHECKSUM: usize = 4;

/// The beginnings of the lines, from memory or from a cache file.
///
/// The file has 8 bytes of mark and version, a header, the first byte of each line, and a CRC-32 of all that. The header
/// has the size and modification time of the text and the number of lines. Numbers are 8-byte and little-endian.
#[derive(Debug)]
struct Index {
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
    fn open(path: &Path, text: &StoredFile) -> io::Result<Self> {
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
    const fn len(&self) -> usize {
        self.lines
    }

    /// Range of a line in a text of `end` bytes, including its ending.
    fn line(&self, line: usize, end: u64) -> io::Result<Range<u64>> {
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
    modified: Option<SystemTime>,
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
    fn for_each_part(&self, range: Range<u64>, mut take: impl FnMut(&[u8])) -> io::Result<()> {
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

#[cfg(test)]
mod tests;
