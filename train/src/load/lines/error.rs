use std::path::PathBuf;

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
