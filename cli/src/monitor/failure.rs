use std::io;
use std::path::PathBuf;

use gpu_tuned_observe::monitor::MonitorError;
use thiserror::Error;

/// Why nothing can be watched or shown.
#[derive(Debug, Error)]
pub(crate) enum Failure {
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    #[error("there is no process {pid}\n  help: `nvidia-smi` and `ps` list those that are there")]
    NoProcess { pid: u32 },
    #[error("there is no GPU {wanted}\n  help: the {whose} {}", in_words(there))]
    NoGpu { wanted: u32, whose: &'static str, there: Vec<u32> },
    #[error("cannot write `{}`: {source}", path.display())]
    Csv { path: PathBuf, source: io::Error },
    #[error("cannot use the terminal: {0}\n  help: with --plain, lines are printed instead")]
    Terminal(io::Error),
    #[error("cannot wait for signals: {0}")]
    Signals(io::Error),
    #[error("cannot print: {0}")]
    Print(io::Error),
}

fn in_words(there: &[u32]) -> String {
    if there.is_empty() { "none".to_owned() } else { there.iter().map(u32::to_string).collect::<Vec<_>>().join(", ") }
}
