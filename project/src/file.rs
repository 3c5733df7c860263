//! Reading one file of a package.

use std::io;
use std::path::{Path, PathBuf};

use gpu_tuned_core::regular_file;
use gpu_tuned_core::source::{FileError, Source, utf8};
use thiserror::Error;

/// Number of mistakes after which no more of a file are collected: each takes time and memory.
pub(crate) const MOST_MISTAKES: usize = 100;

/// A file that exists and cannot be used.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The system cannot read the file.
    #[error("cannot read `{}`: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The file has mistakes.
    #[error("{}", mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes {
        /// The file's text.
        text: String,
        /// The first mistakes, in the file's order.
        mistakes: Vec<FileError>,
    },
}

/// Reads and parses the file `name` in the folder `root`. Returns `None` if there is no such file. `remedy` is the advice
/// for a file that is not UTF-8.
///
/// # Errors
///
/// When the file cannot be read, is not UTF-8, or has mistakes.
pub fn read<T>(
    root: &Path,
    name: &Path,
    remedy: &str,
    parse: impl FnOnce(Source<'_>) -> Result<T, Vec<FileError>>,
) -> Result<Option<T>, ReadError> {
    let path = root.join(name);
    let bytes = match regular_file::read(&path, regular_file::LARGEST) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(ReadError::Io { path, cause }),
    };
    let name = name.display().to_string();
    let text =
        utf8(&name, bytes, remedy).map_err(|(mistake, text)| ReadError::Mistakes { text, mistakes: vec![mistake] })?;
    let parsed = parse(Source { file: &name, text: &text });
    parsed.map(Some).map_err(|mistakes| ReadError::Mistakes { text, mistakes })
}

#[cfg(test)]
#[test]
fn a_file_that_is_not_there_is_no_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let length = |name: &str| read(folder.path(), Path::new(name), "", |source| Ok(source.text.len()));
    std::fs::write(folder.path().join("three"), "abc").expect("it is written");
    assert_eq!(length("three").expect("a file"), Some(3));
    assert_eq!(length("none").expect("no file"), None);
    assert!(matches!(length("."), Err(ReadError::Io { .. })));
}
