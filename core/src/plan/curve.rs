//! Expected speed and memory of micro-batches on a device, whichever is chosen.

use serde::{Deserialize, Deserializer, Serialize};

use super::memory::prefetch_depth;
use super::problem::{PlanError, Problem};
use super::search::{Candidate, ModeModel, Split, chosen_precision, modes, rank_share, splits};
use crate::device::DeviceFacts;
use crate::measured::Mode;
use crate::workload::Workload;
use crate::{Goal, Pins, Provenance};

/// Predicted speed and memory of one micro-batch on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Expected {
    /// Samples in the micro-batch.
    pub batch: u64,
    /// Activation checkpointing is on.
    pub checkpointing: bool,
    /// Samples per second on one rank.
    #[serde(deserialize_with = "number_or_nan")]
    pub samples_per_s: f64,
    /// Memory needed, in bytes.
    pub memory_bytes: u64,
    /// The micro-batch fits the memory that is available.
    pub fits: bool,
    /// No free memory would make the micro-batch fit: one of its tensors exceeds the largest possible allocation.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub in_no_piece: bool,
    /// Micro-batches that would be prefetched to the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch_depth: Option<u64>,
    /// Source of the speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

/// Reads `null`, which JSON has in place of infinities and NaN, as NaN.
fn number_or_nan<'de, D: Deserializer<'de>>(number: D) -> Result<f64, D::Error> {
    Option::deserialize(number).map(|number| number.unwrap_or(f64::NAN))
}

/// Returns expected speed and memory of micro-batches on `device` in the goal's precision, smallest first, without
/// checkpointing before with it. A pinned micro-batch of the goal is ignored.
///
/// Sizes up to a rank's share of the global batch split the goal's steps. Larger ones are steps of a larger global batch,
/// and show where the device would be filled. Powers of two are returned, measured sizes, sizes that split the step evenly,
/// and the two sizes around the memory limit. The list ends with the first size that exceeds the device's total memory:
/// other processes may release theirs.
///
/// # Errors
///
/// As [`plan()`](super::plan()), except that a workload that does not fit is no error.
pub fn curve(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<Vec<Expected>, PlanError> {
    let mut goal = goal.in_samples(workload)?;
    let precision = chosen_precision(Problem { device, workload, goal: &goal })?;
    let Pins { prefetch_depth, allow_tf32, .. } = goal.pins;
    goal.pins = Pins { precision: Some(precision), prefetch_depth, allow_tf32, ..Pins::default() };
    let free = Goal { global_batch: None, ..goal.clone() };
    let share = rank_share(&goal)?.unwrap_or(0);
    let problem = Problem { device, workload, goal: &goal };
    let mut all = Vec::new();
    for mode in modes(problem, precision) {
        let mut of_mode = Vec::new();
        if goal.global_batch.is_some() {
            of_mode.extend(expected(problem, mode, |split| share.is_multiple_of(split.batch))?);
        }
        let larger = expected(Problem { goal: &free, ..problem }, mode, |_| false)?;
        of_mode.extend(larger.into_iter().filter(|expected| expected.batch > share));
        of_mode.sort_by_key(|expected| expected.batch);
        of_mode.dedup_by_key(|expected| expected.batch);
        let is_larger = |expected: &Expected| {
            expected.in_no_piece || !expected.fits && expected.memory_bytes > device.memory_total.0
        };
        let misfit = of_mode.iter().position(is_larger).unwrap_or(of_mode.len());
        of_mode.truncate(misfit + 1);
        all.extend(of_mode);
    }
    all.sort_by_key(|expected| (expected.batch, expected.checkpointing));
    Ok(all)
}

/// Returns the expectations for a goal; `keeps` selects further sizes.
fn expected(problem: Problem<'_>, mode: Mode, keeps: impl Fn(Split) -> bool) -> Result<Vec<Expected>, PlanError> {
    let model = ModeModel::new(problem, mode);
    // Largest first.
    let all: Vec<_> = splits(problem)?.into_iter().map(|split| model.candidate(split)).collect();
    let edge = all.iter().position(Candidate::fits).unwrap_or(all.len());
    let is_kept = |(index, candidate): &(usize, &Candidate)| {
        let is_near = *index == edge || index + 1 == edge;
        let is_measured = candidate.provenance == Provenance::Measured;
        is_near || is_measured || candidate.split.batch.is_power_of_two() || keeps(candidate.split)
    };
    let expected = |(_, candidate): (usize, &Candidate)| Expected {
        batch: candidate.split.batch,
        checkpointing: mode.checkpointing,
        samples_per_s: candidate.rank_samples_per_s,
        memory_bytes: candidate.memory.total().0,
        fits: candidate.fits(),
        in_no_piece: candidate.beyond_one_piece > 0,
        prefetch_depth: Some(prefetch_depth(problem, candidate.split.batch)),
        provenance: Some(candidate.provenance),
    };
    Ok(all.iter().enumerate().filter(is_kept).map(expected).collect())
}
