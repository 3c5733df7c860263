//! Errors of `monitor`.

use std::io;

use gpu_tuned_observe::monitor::MonitorError;
use thiserror::Error;

use crate::error::Error as SharedError;

#[derive(Debug, Error)]
pub(crate) enum WatchError {
    #[error(transparent)]
    Shared(#[from] SharedError),
    #[error(transparent)]
    Monitor(#[from] MonitorError),
    #[error("there is no GPU {wanted}\n  help: the {whose} {}", listed(there))]
    NoGpu { wanted: u32, whose: &'static str, there: Vec<u32> },
    #[error("cannot use the terminal: {0}\n  help: --plain prints lines instead")]
    Terminal(io::Error),
}

fn listed(there: &[u32]) -> String {
    if there.is_empty() { "none".to_owned() } else { there.iter().map(u32::to_string).collect::<Vec<_>>().join(", ") }
}
