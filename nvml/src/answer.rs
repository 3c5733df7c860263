//! Classifies a driver's answer: a figure, no figure, or a GPU that is gone.

use nvml_wrapper::error::NvmlError;

use crate::Trouble;

/// Returns the figure, or `None` if the driver does not report one. Only a GPU that is gone for good is an error.
pub(crate) fn optional<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, Trouble> {
    match answer {
        Ok(figure) => Ok(Some(figure)),
        Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(Trouble::from_nvml(&error)),
        Err(_) => Ok(None),
    }
}

/// Like [`optional`], for a count or a rate. Drivers report zero for an unavailable figure.
pub(crate) fn nonzero(answer: Result<u32, NvmlError>) -> Result<Option<u32>, Trouble> {
    Ok(optional(answer)?.filter(|figure| *figure != 0))
}

/// Like [`optional`], for a text. Drivers report an empty text for an unavailable one.
pub(crate) fn text(answer: Result<String, NvmlError>) -> Result<Option<String>, Trouble> {
    Ok(optional(answer)?.filter(|text| !text.is_empty()))
}
