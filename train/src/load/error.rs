use burn::data::dataset::DatasetError;

/// Why a batch could not be prepared, other than that its dataset failed; it arrives within a [`DatasetError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LoaderError {
    /// The dataset, the batch strategy, the batcher or the batch panicked in a thread of the loader.
    #[error("a loader thread panicked: {message}")]
    Panicked {
        /// Message of the panic.
        message: String,
    },
}

impl From<LoaderError> for DatasetError {
    fn from(error: LoaderError) -> Self {
        Self::new(error)
    }
}
