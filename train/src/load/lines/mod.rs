//! Text files as datasets of lines.

mod index;

use std::path::{Path, PathBuf};

use burn::data::dataset::{Dataset, DatasetError};

use index::Index;

use super::stored::StoredFile;

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

#[cfg(test)]
mod tests;
