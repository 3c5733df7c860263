use std::path::PathBuf;

use burn::data::dataset::DatasetError;

/// Why there is no cache of prepared items.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CacheError {
    /// The dataset failed to prepare an item.
    #[error("item {item} could not be prepared")]
    Prepare {
        /// Its index.
        item: usize,
        /// Why.
        #[source]
        source: DatasetError,
    },
    /// An item cannot be written in the cache's format.
    #[error("item {item} cannot be kept")]
    Encode {
        /// Its index.
        item: usize,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The file cannot be written, or read when it is.
    #[error("the cache {} cannot be written", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file was replaced as soon as it was written: give each dataset a file of its own.
    #[error("the cache {} was replaced by another process: {reason}", path.display())]
    Replaced {
        /// The file.
        path: PathBuf,
        /// Problem of the existing file.
        reason: String,
    },
}
