//! Candidates: the ways to run an optimizer step that the planner compares.

use super::baseline;
use super::error::PlanError;
use super::estimate::MemoryEstimate;
use super::limits::largest_batch_in_one_piece;
use super::memory::MemoryModel;
use super::pools::Pools;
use super::split::{self, Split};
use super::time::StepTime;
use crate::device::{DeviceFacts, DeviceKind};
use crate::measured::Mode;
use crate::workload::Workload;
use crate::{Goal, Precision, Provenance};

/// One way to run an optimizer step.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub batch: u64,
    pub micro_steps: u64,
    /// Samples of the smallest micro-batch of a step.
    pub least: u64,
    pub mode: Mode,
    pub memory: MemoryEstimate,
    pub samples_per_s: f64,
    /// Throughput that comparisons use: less by the error of an estimate.
    pub counted_per_s: f64,
    /// Provenance of the throughput.
    pub provenance: Provenance,
    /// Predicted fraction of the time in which the device computes.
    pub utilization: f64,
    /// True if the micro-batches of a step are all of this size; without a global batch, if this one is a power of two.
    pub even: bool,
}

/// Micro-batch sizes among which a plan is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sizes {
    /// Only measured ones, in modes that were measured on this device; all in other modes.
    Measured,
    /// All, with interpolated costs where they were not measured.
    All,
}

/// Returns the splits to consider in a mode, from the largest micro-batch to the smallest.
///
/// A measured micro-batch may leave a smaller last one. Its memory is never more: it is served from pages that the
/// larger one has reserved.
pub(super) fn splits(
    device: &DeviceFacts,
    workload: &Workload,
    goal: &Goal,
    mode: Mode,
    sizes: Sizes,
) -> Result<Vec<Split>, PlanError> {
    let mut all = split::splits(device, workload, goal)?;
    if let Some(measured) = measured_sizes(device, workload, goal, mode, sizes) {
        all.retain(|split| measured.contains(&split.batch));
    }
    Ok(all)
}

/// Returns the sizes to choose among where only measured ones are considered, and the goal fixes none.
fn measured_sizes(
    device: &DeviceFacts,
    workload: &Workload,
    goal: &Goal,
    mode: Mode,
    sizes: Sizes,
) -> Option<Vec<u64>> {
    let is_free = goal.pins.batch_size.is_none() && goal.pins.gradient_accumulation.is_none();
    (sizes == Sizes::Measured && is_free).then(|| baseline::batches_here(device, workload, mode))?
}

/// Returns the candidates in a mode that fit the device.
pub(super) fn fitting(
    device: &DeviceFacts,
    workload: &Workload,
    goal: &Goal,
    mode: Mode,
    sizes: Sizes,
) -> Result<Vec<Candidate>, PlanError> {
    let splits = splits(device, workload, goal, mode, sizes)?;
    let time = StepTime::new(device, workload, mode);
    let memory = MemoryModel::new(device, workload, goal, mode);
    let in_one_piece = largest_batch_in_one_piece(device, workload, mode.precision);
    if !any_fits(&splits, &memory, in_one_piece) {
        return Ok(Vec::new());
    }
    let candidate = |split: Split| {
        let memory = memory.at(split.batch, split.micro_steps() > 1);
        let fits = memory.fits() && split.batch <= in_one_piece;
        fits.then(|| Candidate::new(goal, mode, split, memory, &time))
    };
    let is_measured = measured_sizes(device, workload, goal, mode, sizes).is_some();
    let between = goal.global_batch.is_some() && !is_measured;
    Ok(all_that_fit(&splits, between, candidate))
}

impl Candidate {
    fn new(goal: &Goal, mode: Mode, split: Split, memory: MemoryEstimate, time: &StepTime<'_>) -> Self {
        let Split { batch, samples } = split;
        let samples_per_s = time.samples_per_s(split) * goal.ranks_for(samples);
        Self {
            batch,
            micro_steps: split.micro_steps(),
            least: split.least(),
            mode,
            memory,
            samples_per_s,
            counted_per_s: samples_per_s * (1.0 - time.doubt(batch)),
            provenance: time.provenance(batch),
            utilization: time.utilization(split),
            even: if goal.global_batch.is_some() { samples.is_multiple_of(batch) } else { batch.is_power_of_two() },
        }
    }
}

/// Returns the candidates that `candidate` accepts, of splits with the largest micro-batch first. With `between`, also
/// the largest that fits between two neighbours of which only the smaller fits.
fn all_that_fit(splits: &[Split], between: bool, candidate: impl Fn(Split) -> Option<Candidate>) -> Vec<Candidate> {
    let mut found = Vec::with_capacity(splits.len());
    let mut misfit = None;
    for &split in splits {
        match candidate(split) {
            Some(fitting) => {
                let larger = misfit.take().filter(|_| between);
                found.extend(larger.and_then(|larger| split.largest_below(larger, &candidate)));
                found.push(fitting);
            }
            None => misfit = Some(split),
        }
    }
    found
}

/// Returns true if any of the splits, largest first, fits.
pub(super) fn any_fits(splits: &[Split], memory: &MemoryModel<'_>, in_one_piece: u64) -> bool {
    let fits = |split: &Split| split.batch <= in_one_piece && memory.at(split.batch, split.micro_steps() > 1).fits();
    frugal(splits, memory).any(fits)
}

/// Returns splits of which one needs the least memory, of splits with the largest micro-batch first.
///
/// Without measurements the smallest micro-batch needs the least, or the whole step at once, which accumulates no
/// gradients. Measured memory may be least anywhere, because page counts jump.
pub(super) fn frugal<'s>(splits: &'s [Split], memory: &MemoryModel<'_>) -> impl Iterator<Item = &'s Split> + use<'s> {
    let step = if memory.is_measured() { 1 } else { splits.len().saturating_sub(1).max(1) };
    // The smallest is the likeliest to fit.
    splits.iter().rev().step_by(step)
}

/// Returns the modes to compare: without checkpointing, and with it where it saves memory or was measured; or the
/// pinned one. With CUDA graphs only if they are pinned.
pub(super) fn modes(device: &DeviceFacts, workload: &Workload, goal: &Goal, precision: Precision) -> Vec<Mode> {
    let has_graphs = goal.pins.cuda_graphs == Some(true) && can_use_graphs(device, goal);
    let mode = |checkpointing| device.mode_of(precision, checkpointing, goal.pins.allow_tf32()).with_graphs(has_graphs);
    let is_measured = || Pools::new(device, workload, goal, mode(true)).is_some();
    match goal.pins.gradient_checkpointing {
        Some(fixed) => vec![mode(fixed)],
        None if saves(workload) || is_measured() => vec![mode(false), mode(true)],
        None => vec![mode(false)],
    }
}

/// Returns those of the [`modes`] that were timed with CUDA graphs on this device, unless the goal pins the setting.
pub(super) fn recorded_modes(
    device: &DeviceFacts,
    workload: &Workload,
    goal: &Goal,
    precision: Precision,
) -> Vec<Mode> {
    if goal.pins.cuda_graphs.is_some() || !can_use_graphs(device, goal) {
        return Vec::new();
    }
    let recorded = modes(device, workload, goal, precision).into_iter().map(|mode| mode.with_graphs(true));
    recorded.filter(|mode| baseline::is_timed_here(device, workload, *mode)).collect()
}

fn can_use_graphs(device: &DeviceFacts, goal: &Goal) -> bool {
    device.kind == DeviceKind::Gpu && goal.may_use_graphs()
}

/// Returns true if checkpointing keeps less: with dropout Burn's keeps more, because it cannot recompute random masks.
fn saves(workload: &Workload) -> bool {
    let checkpointed = workload.sample.checkpointed_activations;
    checkpointed.is_some_and(|checkpointed| checkpointed < workload.sample.activations)
}
