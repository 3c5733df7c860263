//! One answer of the driver, judged: a figure, nothing, or the end of this GPU.

use nvml_wrapper::error::NvmlError;

use crate::Trouble;

/// The figure, or `None` where the driver does not have it; only a GPU that is gone for good is an error.
pub(crate) fn known<T>(answer: Result<T, NvmlError>) -> Result<Option<T>, Trouble> {
    match answer {
        Ok(figure) => Ok(Some(figure)),
        Err(error @ (NvmlError::GpuLost | NvmlError::ResetRequired)) => Err(Trouble::of(&error)),
        Err(_) => Ok(None),
    }
}

/// Like [`known`], for a count or a rate, where zero means that the driver does not know.
pub(crate) fn nonzero(answer: Result<u32, NvmlError>) -> Result<Option<u32>, Trouble> {
    Ok(known(answer)?.filter(|figure| *figure != 0))
}

/// Like [`known`], for a text, where an empty one means that the driver does not know.
pub(crate) fn text(answer: Result<String, NvmlError>) -> Result<Option<String>, Trouble> {
    Ok(known(answer)?.filter(|text| !text.is_empty()))
}
