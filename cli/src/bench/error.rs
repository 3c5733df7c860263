//! Errors of `bench`.

use std::path::PathBuf;

use thiserror::Error;

use crate::error::Error as SharedError;
use crate::output::Code;

#[derive(Debug, Error)]
pub(crate) enum BenchError {
    #[error(transparent)]
    Shared(#[from] SharedError),
    #[error(
        "`{}` exists and has no results of a bench\n  help: move it elsewhere: results are kept under this name",
        path.display()
    )]
    NoResults { path: PathBuf },
    #[error("interrupted: {how}\n  help: results are kept in {file}; the same command continues")]
    Interrupted { how: String, file: &'static str },
    #[error("`{}` has changed meanwhile and lacks results of this run\n  help: run the command again", path.display())]
    Lost { path: PathBuf },
}

impl BenchError {
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::Shared(error) => error.code(),
            Self::NoResults { .. } | Self::Lost { .. } => Code::Input,
            Self::Interrupted { .. } => Code::ProgramFailed,
        }
    }
}
