//! Optimizer steps.

use serde::{Deserialize, Serialize};

use crate::stats::median;

gpu_tuned_core::sparse! {
    /// An optimizer step of the program, by the host's clock.
    ///
    /// `seconds` is the time from the end of the last step to the end of this one: `waited_s` (for the loader), `outside_s`
    /// (in the program's own loop), and the rest in the trainer: `loss_s` in the program's loss function, `backward_s`,
    /// `update_s`, and `drain_s` waiting for the device at the end. The device works beside the host: work that the host
    /// launches quickly may take the device long, and shows in `drain_s`.
    ///
    /// In Burn's training loop, the program's training step calls `backward` itself: both are in `loss_s`, and there is
    /// no `backward_s`.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct StepRecord {
        /// Time of the end.
        pub at: f64,
        /// Number of the step, from 1.
        pub step: u64,
        /// Rank that took the step.
        #[serde(skip_serializing_if = "is_zero")]
        pub rank: u64,
        /// ID of the process that took the step; `None` in recordings of older versions.
        pub pid: Option<u32>,
        /// Seconds from the end of the last step to the end of this one.
        pub seconds: f64,
        /// Samples over all ranks.
        pub samples: u64,
        /// Micro-batches of this rank.
        pub micro_batches: u64,
        /// Samples of a micro-batch; the last may have fewer.
        pub micro_batch: u64,
        /// Seconds waiting for the loader's next batch.
        pub waited_s: Option<f64>,
        /// Seconds uploading batches that the loader left on the host.
        pub upload_s: Option<f64>,
        /// Seconds in the program's loss function.
        pub loss_s: Option<f64>,
        /// CPU seconds of this thread in the loss function: far less than `loss_s` if it waits for the device.
        pub loss_cpu_s: Option<f64>,
        /// Seconds in the backward pass.
        pub backward_s: Option<f64>,
        /// Seconds in the optimizer.
        pub update_s: Option<f64>,
        /// Seconds waiting for other ranks and exchanging gradients. On GPUs, with the update on the device.
        pub exchange_s: Option<f64>,
        /// Seconds waiting for the device at the end of the step.
        pub drain_s: Option<f64>,
        /// Seconds between the trainer's return and its next call, without waiting for the loader.
        pub outside_s: Option<f64>,
        /// Batches that were ready when the trainer asked for one.
        pub queued: Option<u64>,
        /// Batches that the loader's workers prepared since the last step.
        pub prepared: Option<u64>,
        /// Seconds of all workers for these batches: fetching and batching, without waiting for room in the queue.
        pub prepared_s: Option<f64>,
        /// CPU seconds of the workers in `prepared_s`: far less if they wait for storage.
        pub prepared_cpu_s: Option<f64>,
        /// Bytes in use in Burn's pools after the step.
        pub in_use_bytes: Option<u64>,
        /// Bytes reserved by Burn's pools after the step.
        pub reserved_bytes: Option<u64>,
        /// Mean loss.
        pub loss: Option<f64>,
        /// Norm of all gradients.
        pub gradient_norm: Option<f64>,
        /// Factor of the loss for fp16.
        pub loss_scale: Option<f64>,
        /// The parameters were updated.
        pub applied: bool,
        /// Number of times that the step ran out of memory and recovered.
        #[serde(skip_serializing_if = "is_zero")]
        pub rescues: u64,
        /// Slowest of several ranks, in steps of the first one.
        pub slowest_rank: Option<SlowestRank>,
    }
}

/// Slowest of several ranks, by the last steps that they reported.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SlowestRank {
    /// Rank.
    pub rank: u64,
    /// Host of the rank.
    pub host: String,
    /// Seconds from the end of a step to the exchange of the next one, with all that the program does between.
    pub seconds: f64,
    /// Median seconds of the other ranks.
    pub others_s: f64,
}

impl SlowestRank {
    /// Seconds of a rank over those of the others. For a rank that is not the slowest, as if it was as fast as the others.
    pub(crate) fn slowness_of(&self, rank: u64) -> f64 {
        if rank == self.rank { self.seconds / self.others_s } else { self.others_s / self.seconds }
    }

    /// Finds the slowest of ranks, given with host and seconds; `None` for less than two.
    pub fn of<'a>(ranks: impl IntoIterator<Item = (u64, &'a str, f64)>) -> Option<Self> {
        let mut ranks: Vec<_> = ranks.into_iter().collect();
        ranks.sort_by(|one, other| one.2.total_cmp(&other.2));
        let (rank, host, seconds) = ranks.pop()?;
        let others_s = median(ranks.into_iter().map(|(_, _, seconds)| seconds))?;
        Some(Self { rank, host: host.to_owned(), seconds, others_s })
    }
}

impl StepRecord {
    /// Creates a step without figures.
    pub fn new(at: f64, step: u64) -> Self {
        Self { at, step, applied: true, ..Self::default() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
