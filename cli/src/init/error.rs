//! Errors of `init`.

use std::path::PathBuf;

use thiserror::Error;

use crate::error::Error as SharedError;

#[derive(Debug, Error)]
pub(crate) enum InitError {
    #[error(transparent)]
    Shared(#[from] SharedError),
    #[error("`{}` is not a checkout of gpu-tuned: it has no `{missing}`", path.display())]
    NotACheckout { path: PathBuf, missing: &'static str },
}
