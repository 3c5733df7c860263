use std::{
    io,
    path::{Path, PathBuf},
};

use burn::store::RecordError;

use crate::text::Fingerprint;

/// Errors of writing and reading checkpoints.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file or directory cannot be read or written.
    #[error("cannot read or write {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file with parameters or moments is damaged.
    #[error("{} is damaged", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// The reader's error.
        source: RecordError,
    },
    /// The file about the run is damaged.
    #[error("{} is damaged", path.display())]
    Run {
        /// The file.
        path: PathBuf,
        /// The parser's error.
        source: serde_json::Error,
    },
    /// The run was interrupted while it wrote this checkpoint.
    #[error("{} is unfinished", path.display())]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// The directory has no checkpoint to resume from.
    #[error("there is no complete checkpoint in {}", directory.display())]
    None {
        /// The searched directory.
        directory: PathBuf,
    },
    /// The directory has checkpoints of another run.
    #[error("{} has checkpoints of another run; resume with --resume, or use another directory", directory.display())]
    Occupied {
        /// The directory.
        directory: PathBuf,
    },
    /// The run was started with another text.
    #[error("the run was started with another text, of {} bytes; pass that text with --text", saved.bytes)]
    OtherText {
        /// Fingerprint of the original text.
        saved: Fingerprint,
    },
    /// The run was started with another global batch.
    #[error("the run was started with a global batch of {saved}, but this program plans {planned}")]
    OtherGlobalBatch {
        /// Windows in an optimizer step before.
        saved: usize,
        /// Windows in an optimizer step now.
        planned: usize,
    },
}

pub(super) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_owned();
    |source| CheckpointError::Io { path, source }
}

pub(super) fn record_error(path: &Path) -> impl FnOnce(RecordError) -> CheckpointError {
    let path = path.to_owned();
    |source| CheckpointError::Record { path, source }
}
