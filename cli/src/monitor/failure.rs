use std::io;
use std::path::PathBuf;

use gpu_tuned::monitor::MonitorError;
use gpu_tuned::recording::RecordingError;
use thiserror::Error;

/// Why nothing can be watched or shown.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    #[error("{0}\n  help: a recording is written by `cargo gpu-tuned monitor --record FILE`")]
    Recording(#[from] RecordingError),
    #[error("`{}` has no records\n  help: a recording is written by `cargo gpu-tuned monitor --record FILE`", path.display())]
    EmptyRecording { path: PathBuf },
    #[error("there is no process {pid}\n  help: `nvidia-smi` and `ps` list those that are there")]
    NoProcess { pid: u32 },
    #[error("there is no GPU {wanted}\n  help: {}", there_are(there))]
    NoGpu { wanted: u32, there: Vec<u32> },
    #[error("cannot write `{}`: {source}", path.display())]
    Csv { path: PathBuf, source: io::Error },
    #[error("cannot use the terminal: {0}\n  help: with --plain, lines are printed instead")]
    Terminal(io::Error),
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    #[error("cannot print: {0}")]
    Print(io::Error),
}

fn there_are(there: &[u32]) -> String {
    let numbers: Vec<_> = there.iter().map(u32::to_string).collect();
    format!("the driver shows {}", numbers.join(", "))
}
