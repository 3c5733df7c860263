//! Errors of `diagnose`.

use std::io;
use std::path::PathBuf;

use gpu_tuned_observe::monitor::MonitorError;
use thiserror::Error;

use crate::error::Error as SharedError;

#[derive(Debug, Error)]
pub(crate) enum DiagnoseError {
    #[error(transparent)]
    Shared(#[from] SharedError),
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    #[error(
        "cannot run `{program}`: {source}\n  help: name a program with its arguments, such as `-- target/release/train`"
    )]
    Start { program: String, source: io::Error },
    #[error("--try needs a program\n  help: name it with its arguments: --try -- target/release/train")]
    NothingToTry,
    #[error("cannot write `{}`: {source}\n  help: name a file that does not exist", path.display())]
    Record { path: PathBuf, source: io::Error },
    #[error("cannot make a temporary file: {0}")]
    Temporary(#[source] io::Error),
}
