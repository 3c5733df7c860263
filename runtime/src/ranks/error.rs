use gpu_tuned_ranks::{Ended, JoinError, LaunchError};
use thiserror::Error;

/// Why this process cannot train with the other ranks.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RanksError {
    /// The launcher's variables are incomplete or wrong.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The process was not launched as a rank.
    #[error(
        "no launcher has set the rank of this process: start the program with `cargo gpu-tuned launch`, torchrun, mpirun or \
         srun, or make the ranks optional with `Options::distributed_if_launched`"
    )]
    NotLaunched,
    /// The ranks did not come together.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// There is no GPU for this rank.
    #[error(
        "LOCAL_RANK is {local_rank}, and the process sees {gpus} GPUs: start at most {gpus} ranks on this host, or let each \
         rank see its own GPU only (CUDA_VISIBLE_DEVICES)"
    )]
    NoGpu {
        /// Number of the process among those of its host.
        local_rank: usize,
        /// GPUs that the process can use.
        gpus: usize,
    },
    /// The GPU of this rank does not work, and the other ranks count on it.
    #[error("the GPU of this rank cannot be used: {because}")]
    Device {
        /// Reason: one sentence.
        because: String,
    },
    /// Gradients cannot be exchanged between GPUs.
    #[error(
        "gradients cannot be exchanged: Burn does it through NCCL, and found no `libnccl.so`; install NCCL 2 with its \
         development files, or link `libnccl.so` to the `libnccl.so.2` that is there, in a folder of `LD_LIBRARY_PATH`"
    )]
    NoCollectives,
    /// A message of another rank cannot be read.
    #[error("a message of another rank cannot be read: {message}; start the same program on all ranks")]
    Message {
        /// Reason.
        message: String,
    },
    /// The ranks were ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

impl RanksError {
    #[expect(clippy::needless_pass_by_value, reason = "the argument of `map_err`")]
    pub(super) fn from_json(error: serde_json::Error) -> Self {
        Self::Message { message: error.to_string() }
    }
}
