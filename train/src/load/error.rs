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

impl LoaderError {
    pub(super) fn panicked(payload: &(dyn std::any::Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Self::Panicked { message: message.unwrap_or_else(|| "of a type that is no text".to_owned()) }
    }
}

impl From<LoaderError> for DatasetError {
    fn from(error: LoaderError) -> Self {
        Self::new(error)
    }
}
