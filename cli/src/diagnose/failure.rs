use std::io;
use std::path::PathBuf;

use gpu_tuned::monitor::MonitorError;
use gpu_tuned::recording::RecordingError;
use thiserror::Error;

use crate::Code;

const HOW_TO_RECORD: &str = "a program of gpu-tuned records its steps with GPU_TUNED_RECORD=FILE, and `cargo gpu-tuned \
                             monitor --record FILE` what the GPUs do";

/// Why nothing can be diagnosed.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error("{0}\n  help: {HOW_TO_RECORD}")]
    Recording(#[from] RecordingError),
    #[error("`{}` has no records\n  help: {HOW_TO_RECORD}", path.display())]
    Empty { path: PathBuf },
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    #[error("there is no process {pid}\n  help: `nvidia-smi` and `ps` list those that are there")]
    NoProcess { pid: u32 },
    #[error(
        "cannot run `{program}`: {source}\n  help: it is a program with its arguments, such as `-- target/release/train`"
    )]
    Start { program: String, source: io::Error },
    #[error(
        "--try runs a program again, and none is named\n  help: name it with its arguments: --try -- target/release/train"
    )]
    NothingToTry,
    #[error("cannot listen to signals: {0}")]
    Signals(#[source] io::Error),
    #[error("cannot write `{}`: {source}\n  help: name a file that is not there yet", path.display())]
    Record { path: PathBuf, source: io::Error },
    #[error("cannot make a temporary file: {0}")]
    Temporary(#[source] io::Error),
}

impl Failure {
    /// The exit code.
    pub(crate) const fn code(&self) -> Code {
        match self {
            Self::Start { .. } => Code::ProgramFailed,
            _ => Code::Input,
        }
    }
}
