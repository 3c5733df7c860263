//! The schedule of a step on each rank, and the plans of all ranks of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::search::Split;
use super::{Plan, PlanError, plan};
use crate::device::DeviceFacts;
use crate::exchange::{Share, shares};
use crate::workload::Workload;
use crate::{Bytes, Goal};

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
    /// Samples in a micro-batch on one rank; the last of a step may have fewer.
    pub micro_batch: u64,
    /// True if an epoch leaves out a last step with fewer samples.
    #[serde(default)]
    pub drop_last: bool,
}

impl Schedule {
    /// Returns the schedule of a rank that splits its samples of a step in this way.
    pub(super) fn new(goal: &Goal, split: Split) -> Self {
        let global_batch = goal.global_batch.unwrap_or_else(|| split.samples.saturating_mul(goal.world_size));
        let largest = || Share { first: 0, samples: global_batch.div_ceil(goal.world_size) };
        let is_uneven = !global_batch.is_multiple_of(goal.world_size);
        Self {
            global_batch,
            world_size: goal.world_size,
            share: goal.share.or_else(|| is_uneven.then(largest)),
            micro_batch: split.batch,
            drop_last: goal.drop_last,
        }
    }

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

    /// Optimizer steps in an epoch over `samples`. The last has the rest, which may be fewer than the global batch; with
    /// `drop_last` there is no such step.
    pub const fn steps_per_epoch(&self, samples: u64) -> u64 {
        if self.drop_last { samples / self.global_batch } else { samples.div_ceil(self.global_batch) }
    }
}

/// Free memory of devices is compared in such parts of the total.
const MEMORY_PARTS: u64 = 100;

/// Plans each rank of a run on its device, in the order of ranks.
///
/// Ranks with equal shares have one plan, from the facts that all devices have in common. With
/// [`unequal`](Goal::unequal) shares each rank has a plan for its own device, in the precision of all. The shares are
/// proportional to the speeds predicted at equal shares. The throughput is that of the slowest rank's step.
///
/// # Errors
///
/// As [`plan()`], if a rank has no plan.
pub fn plan_ranks(devices: &[DeviceFacts], workload: &Workload, goal: &Goal) -> Result<Vec<Plan>, PlanError> {
    let Some(common) = DeviceFacts::common(devices) else { return Ok(Vec::new()) };
    let goal = Goal { world_size: devices.len() as u64, share: None, ..goal.clone() }.in_samples(workload)?;
    let equal = plan(&common, workload, &goal)?;
    if !goal.unequal {
        return Ok(vec![equal; devices.len()]);
    }
    let global_batch = equal.schedule.global_batch;
    let precision = Some(equal.settings.precision.into());
    let goal = Goal { global_batch: Some(global_batch), precision, ..goal };
    let (kinds, kind_of) = kinds(devices, common.has_tf32);
    let speed = |kind: &DeviceFacts| {
        let plan = plan(kind, workload, &goal)?;
        Ok(plan.samples_per_s * plan.schedule.part_of_rank())
    };
    let speeds = kinds.iter().map(speed).collect::<Result<Vec<_>, PlanError>>()?;
    let speeds: Vec<_> = kind_of.iter().map(|kind| speeds[*kind]).collect();
    let shares = shares(global_batch, &speeds).expect("BUG: an equal share has at least one sample");
    let mut planned: BTreeMap<_, Plan> = BTreeMap::new();
    let mut all = Vec::with_capacity(devices.len());
    for ((kind, share), device) in kind_of.into_iter().zip(shares).zip(devices) {
        let known = planned.get(&(kind, share.samples)).cloned();
        let new = || plan(&kinds[kind], workload, &Goal { share: Some(share), ..goal.clone() });
        let mut own = known.map_or_else(new, Ok)?;
        planned.entry((kind, share.samples)).or_insert_with(|| own.clone());
        own.schedule.share = Some(share);
        own.device.clone_from(&device.name);
        all.push(own);
    }
    let slowest = planned.into_values().min_by(|a, b| a.samples_per_s.total_cmp(&b.samples_per_s));
    for (own, slowest) in all.iter_mut().zip(slowest.iter().cycle()) {
        own.samples_per_s = slowest.samples_per_s;
        own.samples_per_s_interval = slowest.samples_per_s_interval;
        own.samples_per_s_error = slowest.samples_per_s_error;
        own.samples_per_s_provenance = slowest.samples_per_s_provenance;
    }
    Ok(all)
}

/// The different devices, and the position of each rank's device among them. Free memory counts in whole hundredths, so that
/// many equal GPUs are planned once.
fn kinds(devices: &[DeviceFacts], has_tf32: bool) -> (Vec<DeviceFacts>, Vec<usize>) {
    let mut kinds: Vec<DeviceFacts> = Vec::new();
    let kind_of = devices.iter().map(|device| {
        let part = (device.memory_total.0 / MEMORY_PARTS).max(1);
        let memory_available = Bytes(device.memory_available.0 / part * part);
        let kind = DeviceFacts { memory_available, has_tf32, ..device.clone() };
        kinds.iter().position(|other| *other == kind).unwrap_or_else(|| {
            kinds.push(kind);
            kinds.len() - 1
        })
    });
    let kind_of = kind_of.collect();
    (kinds, kind_of)
}
