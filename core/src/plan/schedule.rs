use serde::{Deserialize, Serialize};

use crate::exchange::Share;

/// Split of optimizer steps into micro-batches, on each of `world_size` ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schedule {
    /// Samples in one optimizer step, over all ranks.
    pub global_batch: u64,
    /// Ranks that train together.
    pub world_size: u64,
    /// This rank's samples of a step, where ranks have unequal shares. Otherwise each rank has an equal share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<Share>,
    /// Samples in a micro-batch on one rank; the last of a step may hold fewer.
    pub micro_batch: u64,
    /// True if an epoch leaves out a last step with fewer samples.
    #[serde(default)]
    pub drop_last: bool,
}

impl Schedule {
    /// Samples of one optimizer step on this rank.
    pub const fn samples_per_rank(&self) -> u64 {
        match self.share {
            Some(share) => share.samples,
            None => self.global_batch / self.world_size,
        }
    }

    /// The part of a step's samples on this rank, 0 to 1.
    pub fn part_of_rank(&self) -> f64 {
        self.samples_per_rank() as f64 / self.global_batch as f64
    }

    /// Micro-batches of one full optimizer step on one rank.
    pub const fn micro_steps(&self) -> u64 {
        self.samples_per_rank().div_ceil(self.micro_batch)
    }

    /// The sizes of the micro-batches that make up `samples`: full ones, then the rest. They add up exactly.
    pub fn split(&self, samples: u64) -> impl Iterator<Item = u64> + use<> {
        let micro_batch = self.micro_batch;
        (0..samples.div_ceil(micro_batch)).map(move |index| micro_batch.min(samples - index * micro_batch))
    }

    /// The sizes of the micro-batches of one full optimizer step on one rank.
    pub fn micro_batches(&self) -> impl Iterator<Item = u64> + use<> {
        self.split(self.samples_per_rank())
    }

    /// Writes the micro-batches of a step: `2 ranks x (3 x 64 + 8)`; with unequal shares, those of this rank.
    pub fn sum(&self) -> String {
        let own = self.sum_on_rank();
        match (self.world_size, self.share) {
            (1, _) => own,
            (ranks, None) => format!("{ranks} ranks x ({own})"),
            (ranks, Some(share)) => format!("{} samples on this rank of {ranks}: {own}", share.samples),
        }
    }

    /// Writes the micro-batches of a step on one rank: `3 x 64 + 8`.
    pub(super) fn sum_on_rank(&self) -> String {
        let (full, rest) = (self.samples_per_rank() / self.micro_batch, self.samples_per_rank() % self.micro_batch);
        let rest = if rest > 0 { format!(" + {rest}") } else { String::new() };
        format!("{full} x {}{rest}", self.micro_batch)
    }

    /// Optimizer steps in an epoch over `samples`. The last holds the rest, which may be fewer than the global batch; with
    /// `drop_last` there is no such step.
    pub const fn steps_per_epoch(&self, samples: u64) -> u64 {
        if self.drop_last { samples / self.global_batch } else { samples.div_ceil(self.global_batch) }
    }
}
