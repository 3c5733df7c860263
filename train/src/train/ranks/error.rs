//! Why ranks end.

use std::error::Error;
use std::io;
use std::time::Duration;

use thiserror::Error;

/// Reason why all ranks of a process ended.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Ended {
    /// A rank failed.
    #[error("rank {rank} failed: {message}")]
    Rank {
        /// The rank.
        rank: usize,
        /// Its error.
        message: String,
    },
    /// Ranks took different numbers of steps.
    #[error("rank {done} is finished while rank {waiting} goes on: all ranks have to take equally many steps")]
    Uneven {
        /// A rank that is finished.
        done: usize,
        /// A rank that waits for it.
        waiting: usize,
    },
    /// Ranks did different things at the same time, such as a step and the making of a trainer.
    #[error("the ranks are out of step: all of them have to make trainers and to take steps in the same order")]
    OutOfStep,
    /// Ranks did not come back from an exchange of gradients.
    #[error("ranks {ranks:?} did not come back from the exchange of gradients within {} s", .waited.as_secs_f64())]
    Silent {
        /// The ranks.
        ranks: Vec<usize>,
        /// Time that was waited.
        waited: Duration,
    },
}

/// Why a run of several ranks did not end well.
///
/// `left` lists the ranks whose threads did not end within some seconds: they occupy their devices until the process
/// ends.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RanksError {
    /// A rank failed, and the others were ended.
    #[error("rank {rank} failed{}", still_busy(.left))]
    Rank {
        /// The rank.
        rank: usize,
        /// Its error.
        source: Box<dyn Error + Send + Sync>,
        /// Ranks whose threads were left.
        left: Vec<usize>,
    },
    /// A rank panicked, and the others were ended.
    #[error("rank {rank} panicked: {message}{}", still_busy(.left))]
    Panicked {
        /// The rank.
        rank: usize,
        /// The panic's words.
        message: String,
        /// Ranks whose threads were left.
        left: Vec<usize>,
    },
    /// No rank failed, but the ranks could not continue together.
    #[error("the ranks were ended{}", still_busy(.left))]
    Ended {
        /// Why.
        source: Ended,
        /// Ranks whose threads were left.
        left: Vec<usize>,
    },
    /// Some ranks are on the CPU and others are not.
    #[error("ranks are either all on GPUs or all on the CPU: gradients are not exchanged between the two")]
    Mixed,
    /// Two ranks have the same GPU.
    #[error("rank {rank} has the same GPU as one before it: NCCL joins different GPUs only")]
    SameDevice {
        /// The rank.
        rank: usize,
    },
    /// Burn has no collectives here.
    #[error(
        "gradients cannot be exchanged: Burn does it through NCCL, and found no `libnccl.so`; install NCCL 2 with its \
         development files, or link `libnccl.so` to the `libnccl.so.2` that is there, in a folder of `LD_LIBRARY_PATH`"
    )]
    NoCollectives,
    /// There was no thread for a rank.
    #[error("no thread for a rank")]
    Thread(#[source] io::Error),
}

fn still_busy(left: &[usize]) -> String {
    match left {
        [] => String::new(),
        left => format!("; the threads of ranks {left:?} did not end and were left"),
    }
}
