//! Costs of single splits.

use crate::device::DeviceFacts;
use crate::measured::Mode;
use crate::plan::PlanError;
use crate::plan::problem::Problem;
use crate::plan::search::{ModeModel, Split, modes, precision_and_kernels};
use crate::workload::Workload;
use crate::{Bytes, Goal, Precision};

/// Costs of one way to run an optimizer step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// Samples of a micro-batch.
    pub batch: u64,
    /// Samples of the step on one rank.
    pub samples: u64,
    /// Precision of the step.
    pub precision: Precision,
    /// Activation checkpointing.
    pub checkpointing: bool,
    /// Memory of training, in bytes.
    pub memory: Bytes,
    /// Predicted samples per second over all ranks.
    pub samples_per_s: f64,
    /// Predicted fraction of the time in which the device computes.
    pub utilization: f64,
    /// The memory is available, and no tensor is larger than the largest allocation.
    pub fits: bool,
}

/// Returns the costs by which [`plan`](crate::plan()) compares splits, given as samples of a micro-batch and of the step, in
/// each mode that it considers.
///
/// # Errors
///
/// When the goal is contradictory, or the device does not support its precision.
pub(super) fn costs(
    device: &DeviceFacts,
    workload: &Workload,
    goal: &Goal,
    splits: &[(u64, u64)],
) -> Result<Vec<Costs>, PlanError> {
    let goal = &goal.in_samples(workload)?;
    let problem = Problem { device, workload, goal };
    let (precision, _) = precision_and_kernels(problem)?;
    let of_mode = |mode: Mode| {
        let model = ModeModel::new(problem, mode);
        let costs = |&(batch, samples): &(u64, u64)| {
            let candidate = model.candidate(Split { batch, samples });
            Costs {
                batch,
                samples,
                precision,
                checkpointing: mode.checkpointing,
                memory: candidate.memory.total(),
                samples_per_s: candidate.samples_per_s,
                utilization: candidate.utilization,
                fits: candidate.fits(),
            }
        };
        splits.iter().map(costs).collect::<Vec<_>>()
    };
    Ok(modes(problem, precision).into_iter().flat_map(of_mode).collect())
}
