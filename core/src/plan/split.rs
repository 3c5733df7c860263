//! Splits of one rank's share of an optimizer step into micro-batches.

use super::error::PlanError;
use super::{baseline, prefetch};
use crate::Goal;
use crate::device::DeviceFacts;
use crate::workload::Workload;

/// The largest micro-batch considered when no global batch bounds it.
const LARGEST_FREE_BATCH: u64 = 1 << 16;

/// Micro-batches considered from one power of two up to the next, when no global batch bounds them.
const STEPS: u64 = 8;

/// The most samples of an optimizer step over all ranks.
const LARGEST_STEP: u64 = 1 << 40;

/// Every number of micro-batches up to this is considered, every micro-batch of up to as many samples, and every doubling
/// between them.
const EVERY: u64 = 64;

/// A split of `samples` into micro-batches of `batch`, the last of which may be smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Split {
    pub batch: u64,
    pub samples: u64,
}

impl Split {
    pub(super) const fn micro_steps(self) -> u64 {
        self.samples.div_ceil(self.batch)
    }

    /// Samples of the smallest micro-batch: the last, unless all have one size.
    pub(super) const fn least(self) -> u64 {
        match self.samples % self.batch {
            0 => self.batch,
            rest => rest,
        }
    }

    /// The smallest micro-batch that takes no more micro-batches than this one: a larger one takes more memory for the same
    /// number of launches.
    const fn tight(self) -> Self {
        Self { batch: self.samples.div_ceil(self.micro_steps()), ..self }
    }

    /// Returns the result of `at` for the largest micro-batch between this one and a larger one for which it is `Some`.
    pub(super) fn largest_below<T>(self, larger: Self, at: impl Fn(Self) -> Option<T>) -> Option<T> {
        let (mut fits, mut misfit) = (self.batch, larger.batch);
        let mut found = None;
        while misfit - fits > 1 {
            let middle = Self { batch: fits.midpoint(misfit), ..self };
            match at(middle) {
                Some(fitting) => (fits, found) = (middle.batch, Some(fitting)),
                None => misfit = middle.batch,
            }
        }
        let tight = Self { batch: fits, ..self }.tight();
        found.filter(|_| tight.micro_steps() < self.micro_steps()).and_then(|fitting| at(tight).or(Some(fitting)))
    }
}

/// Returns the splits that the goal and the model allow, from the largest micro-batch to the smallest.
pub(super) fn splits(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<Vec<Split>, PlanError> {
    let mut all = splits_of_goal(device, workload, goal)?;
    all.retain(|split| split.least() >= workload.least_micro_batch());
    if all.is_empty() { Err(PlanError::Goal { message: ONE_VALUE.to_owned() }) } else { Ok(all) }
}

/// Message for micro-batches of one sample, where batch statistics need two.
const ONE_VALUE: &str = "a micro-batch of 1 sample leaves batch statistics with 1 value a channel, because the model shrinks its \
                         image to 1 x 1: give each micro-batch 2 samples or more, or use group norm";

/// Returns the splits that the goal allows, from the largest micro-batch to the smallest.
fn splits_of_goal(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<Vec<Split>, PlanError> {
    let pins = &goal.pins;
    let Some(samples) = rank_share(goal)? else {
        let micro_steps = pins.gradient_accumulation.unwrap_or(1);
        if micro_steps == 0 || pins.batch_size == Some(0) {
            let message = "batch_size and gradient_accumulation are at least 1: leave them to the planner, or set them";
            return Err(PlanError::Goal { message: message.to_owned() });
        }
        let batches = pins.batch_size.map_or_else(|| free_batches(device, workload), |batch| vec![batch]);
        let is_step = |split: &Split| split.samples.saturating_mul(goal.world_size) <= LARGEST_STEP;
        let cut = |batch: u64| Split { batch, samples: batch.saturating_mul(micro_steps) };
        let splits: Vec<_> = batches.into_iter().map(cut).filter(is_step).collect();
        if splits.is_empty() {
            let message =
                "batch_size x gradient_accumulation x world_size make more than 2^40 samples: leave one to the planner";
            return Err(PlanError::Goal { message: message.to_owned() });
        }
        return Ok(splits);
    };
    let conflict =
        || PlanError::Pins { batch_size: pins.batch_size, gradient_accumulation: pins.gradient_accumulation, samples };
    match (pins.batch_size, pins.gradient_accumulation) {
        (Some(batch), steps) => {
            let agrees = (1..=samples).contains(&batch) && steps.is_none_or(|steps| steps == samples.div_ceil(batch));
            if agrees { Ok(vec![Split { batch, samples }]) } else { Err(conflict()) }
        }
        (None, Some(steps)) => {
            let agrees = (1..=samples).contains(&steps) && samples.div_ceil(samples.div_ceil(steps)) == steps;
            if agrees { Ok(vec![Split { batch: samples.div_ceil(steps), samples }]) } else { Err(conflict()) }
        }
        (None, None) if goal.whole_batch_loss => Ok(vec![Split { batch: samples, samples }]),
        (None, None) => {
            let queued_once = prefetch::largest_at_full_depth(workload, goal).map(|batch| batch.saturating_add(1));
            let others = queued_once.into_iter().chain(baseline::batches(device, workload));
            Ok(all_splits(samples, others))
        }
    }
}

/// Micro-batches without a global batch, the largest first: powers of two with seven steps between them, and measured
/// sizes.
fn free_batches(device: &DeviceFacts, workload: &Workload) -> Vec<u64> {
    let power = |power: u32| 1_u64 << power;
    let steps = |from: u64| (0..STEPS).map(move |step| from + from * step / STEPS);
    let all = (0..=LARGEST_FREE_BATCH.ilog2()).flat_map(|exponent| steps(power(exponent)));
    let mut all: Vec<u64> = all.chain(baseline::batches(device, workload)).collect();
    all.retain(|batch| *batch <= LARGEST_FREE_BATCH);
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
    all
}

/// Splits into the considered numbers of micro-batches, each with its smallest micro-batch, and into other sizes: the
/// smallest with a shorter prefetch queue, which may take less memory than a smaller one, and measured sizes.
fn all_splits(samples: u64, others: impl Iterator<Item = u64>) -> Vec<Split> {
    let few = 1..=EVERY.min(samples);
    let small = few.clone().map(|batch| samples.div_ceil(batch));
    let doublings = core::iter::successors(Some(EVERY * 2), |steps| steps.checked_mul(2));
    let counts = few.chain(doublings.take_while(|steps| *steps < samples / EVERY)).chain(small);
    let batches = counts.map(|steps| samples.div_ceil(steps)).chain(others.filter(|batch| *batch < samples));
    let mut all: Vec<_> = batches.map(|batch| Split { batch, samples }).collect();
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
    all
}

/// Samples of an optimizer step on one rank, when a global batch is asked for; on the rank with the most, if shares are unequal
/// and not decided.
pub(super) fn rank_share(goal: &Goal) -> Result<Option<u64>, PlanError> {
    let Some(global_batch) = goal.global_batch else { return Ok(None) };
    if let Some(share) = goal.share {
        return Ok(Some(share.samples));
    }
    if global_batch.is_multiple_of(goal.world_size) || goal.unequal && global_batch > goal.world_size {
        return Ok(Some(global_batch.div_ceil(goal.world_size)));
    }
    let small = (1..=global_batch.isqrt()).filter(|ranks| global_batch.is_multiple_of(*ranks));
    let all: Vec<u64> = small.flat_map(|ranks| [ranks, global_batch / ranks]).collect();
    let below = all.iter().copied().filter(|ranks| *ranks < goal.world_size).max();
    let above = all.iter().copied().filter(|ranks| *ranks > goal.world_size).min();
    let would_do = below.into_iter().chain(above).collect();
    Err(PlanError::WorldSize { global_batch, world_size: goal.world_size, would_do })
}
