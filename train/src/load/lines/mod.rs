//! Text files as datasets of lines.

mod index;

use std::path::{Path, PathBuf};

use burn::data::dataset::{Dataset, DatasetError};

use index::Index;

use super::map::Map;

/// The lines of a text file, which need not fit the memory.
///
/// The file is mapped. The index of its lines is stored beside it, as `NAME.lines`, and created again when the size or
/// modification time changes. Lines are those of [`str::lines`]: they end with `\n` or `\r\n`, the last may end
/// without, and an empty file has none.
///
/// The file must not be changed in place while the dataset lives; it may be replaced by another.
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
/// A line that is not UTF-8 is a [`LineError`] with its number, within a [`DatasetError`].
#[derive(Debug)]
pub struct LineDataset {
    path: PathBuf,
    text: Map,
    index: Index,
}

impl LineDataset {
    /// Maps the file, and reads or makes its index. One that cannot be written is made at each start.
    ///
    /// # Errors
    ///
    /// [`LinesError`], when the file cannot be read.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, LinesError> {
        let path = path.into();
        let text = Map::open(&path).map_err(|source| LinesError { path: path.clone(), source })?;
        let index = Index::open(&path, &text);
        Ok(Self { path, text, index })
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Dataset<String> for LineDataset {
    fn get(&self, index: usize) -> Result<String, DatasetError> {
        let lines = self.index.len();
        assert!(index < lines, "line {index} of a file of {lines}");
        let range = self.index.line(index, self.text.len());
        let line = self.text.get(range).unwrap_or_default();
        let line = line.strip_suffix(b"\n").map_or(line, |line| line.strip_suffix(b"\r").unwrap_or(line));
        let error = |source: std::string::FromUtf8Error| {
            DatasetError::new(LineError { path: self.path.clone(), line: index + 1, source: source.utf8_error() })
        };
        String::from_utf8(line.to_vec()).map_err(error)
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

/// A line that is no text.
#[derive(Debug, thiserror::Error)]
#[error("line {line} of {} is not UTF-8", path.display())]
#[non_exhaustive]
pub struct LineError {
    /// The file.
    pub path: PathBuf,
    /// The line, counted from 1.
    pub line: usize,
    /// Parser's error with the byte in the line.
    #[source]
    pub source: std::str::Utf8Error,
}

#[cfg(test)]
mod tests;
