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
    /// A field of the config has another value than on rank 0.
    #[error(
        "`{field}` of the config is {value} on rank {rank} ({host}), but {expected} on rank 0: start all ranks with one value, \
         or mark the field `#[tuned(per_rank)]` if it may differ"
    )]
    Field {
        /// The field.
        field: String,
        /// Rank that differs.
        rank: usize,
        /// Its host.
        host: String,
        /// `Debug` text of the value on that rank; for a long one its beginning, and a hash.
        value: String,
        /// The same on rank 0.
        expected: String,
    },
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
