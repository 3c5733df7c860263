use std::path::PathBuf;

use thiserror::Error;

use crate::Code;

/// Why nothing was timed, or not all of it.
#[derive(Debug, Error)]
pub(crate) enum BenchError {
    #[error(
        "`{}` is there and has no results of a bench\n  help: move it elsewhere: results are kept under this name",
        path.display()
    )]
    NoResults { path: PathBuf },
    #[error("interrupted: {how}\n  help: what has run is kept in {file}; the same command goes on after it")]
    Interrupted { how: String, file: &'static str },
    #[error("`{}` was changed meanwhile, and does not say what was run\n  help: run the command again", path.display())]
    Lost { path: PathBuf },
}

impl BenchError {
    /// The exit code.
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::NoResults { .. } | Self::Lost { .. } => Code::Input,
            Self::Interrupted { .. } => Code::ProgramFailed,
        }
    }
}
