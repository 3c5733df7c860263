use std::io;
use std::path::PathBuf;

use thiserror::Error;

use super::SavedRun;

/// Why a run could not be saved. The run that was saved there before, if any, is as it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The directory does not exist and cannot be created.
    #[error("cannot create the directory `{}`: {cause}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The file cannot be written: most often a read-only or full disk.
    #[error("cannot write `{}`: {cause}; make room or save elsewhere", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
}

/// Why what is saved could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is there and cannot be read.
    #[error("cannot read `{}`: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The file is cut short, is no saved run, or has values out of range.
    #[error(
        "{}:{line}:{column}: not a saved run: {message}; put back a copy of the file, or delete it and start a new run",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counting from 1.
        line: usize,
        /// The column, counting from 1.
        column: usize,
        /// Problem of the file.
        message: String,
    },
    /// The file was written in another format.
    #[error(
        "`{}` has format {found}{}, this program reads format {}; build it with the version of gpu-tuned that wrote the file",
        path.display(),
        wrote.as_ref().map(|version| format!(" (gpu-tuned {version})")).unwrap_or_default(),
        SavedRun::FORMAT
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: u64,
        /// Version of gpu-tuned that wrote the file, if named.
        wrote: Option<String>,
    },
}
