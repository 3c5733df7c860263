//! Candidates around the chosen one, with the reason why each was chosen or not.

use core::fmt;

use serde::Serialize;

use super::Asked;
use crate::measured::Mode;
use crate::plan::candidates::{self, Candidate, Sizes};
use crate::plan::choice::Choice;
use crate::plan::limits::largest_batch_in_one_piece;
use crate::plan::memory::MemoryModel;
use crate::plan::split::Split;
use crate::plan::{PlanError, speed_interval};
use crate::{Bytes, Provenance};

/// A candidate, and why it was chosen or not.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Considered {
    /// Samples in a micro-batch.
    pub batch_size: u64,
    /// Micro-batches in a step.
    pub micro_steps: u64,
    /// True if activations are recomputed.
    pub gradient_checkpointing: bool,
    /// True if micro-steps are replayed as CUDA graphs.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub cuda_graphs: bool,
    /// Predicted memory.
    pub memory: Bytes,
    /// Predicted samples per second over all ranks; `None` where it does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s: Option<f64>,
    /// Lowest and highest samples per second within the error of predictions; `None` for a measured speed or a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s_interval: Option<[f64; 2]>,
    /// Provenance of the throughput; `None` where it does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Why it was chosen or not.
    pub verdict: Verdict,
}

/// Why a candidate was chosen or not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// It is the plan.
    Taken,
    /// It takes more memory than the budget.
    DoesNotFit {
        /// Missing bytes.
        missing: Bytes,
    },
    /// Its largest tensor exceeds the device's largest allocation in one piece.
    TensorTooLarge,
    /// It is slower than the fastest by more than the goal's tolerance.
    Slower {
        /// Difference, as a fraction of the fastest.
        by: f64,
    },
    /// Its estimated speed is high enough, but not once the error of such estimates is deducted.
    Uncertain {
        /// Error of the estimates, as a fraction.
        by: f64,
    },
    /// The device would wait for launches more than the goal allows.
    Idle {
        /// Predicted fraction of the time in which the device computes.
        utilization: f64,
    },
    /// It recomputes activations, and the chosen one does not.
    Checkpointed,
    /// Its last micro-batch is smaller than the others.
    Uneven,
    /// It is no power of two, and one does as well.
    NoPowerOfTwo,
    /// It is slower than the larger one that was chosen, and takes more memory.
    Outdone,
    /// Its batch statistics come from fewer samples than those of the chosen one.
    FewerSamples,
    /// It gains nothing over the smaller one that was chosen.
    Larger,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Taken => f.write_str("taken"),
            Self::DoesNotFit { missing } => write!(f, "does not fit: {missing} too much"),
            Self::TensorTooLarge => f.write_str("its largest tensor cannot be allocated in one piece"),
            Self::Slower { by } => write!(f, "{:.1}% slower than the fastest", by * 100.0),
            Self::Uncertain { by } => write!(f, "estimated, and estimates err by up to {:.1}%", by * 100.0),
            Self::Idle { utilization } => write!(f, "keeps the device busy {:.0}% of the time", utilization * 100.0),
            Self::Checkpointed => f.write_str("recomputes activations that fit"),
            Self::Uneven => f.write_str("does not divide the step evenly"),
            Self::NoPowerOfTwo => f.write_str("no power of two, and one does as well"),
            Self::Outdone => f.write_str("slower than the chosen one, and takes more memory"),
            Self::FewerSamples => f.write_str("batch statistics from fewer samples"),
            Self::Larger => f.write_str("larger, and hardly faster"),
        }
    }
}

/// Neighbours that are shown on each side of the chosen candidate.
const NEIGHBOURS: usize = 3;

/// Returns the chosen candidate with its neighbours, the fastest, and the smallest that does not fit; without a choice the
/// smallest ones. Largest first, those without checkpointing before those with.
pub(super) fn around(asked: &Asked<'_>, choice: Option<&Choice>) -> Result<Vec<Considered>, PlanError> {
    let mut shown = Vec::new();
    let sizes = choice.map_or(Sizes::All, |choice| choice.sizes);
    let modes = || candidates::modes(asked.device, asked.workload, asked.goal, asked.precision);
    for mode in choice.map_or_else(modes, |choice| choice.modes.clone()) {
        let mut all = misfits(asked, mode, sizes)?;
        let fitting = choice.map_or(&[][..], |choice| &choice.fitting);
        let fitting = fitting.iter().filter(|candidate| candidate.mode == mode);
        all.extend(choice.into_iter().flat_map(|choice| fitting.clone().map(|one| judged(one, choice, asked))));
        all.sort_by_key(|one| core::cmp::Reverse(one.batch_size));
        all.dedup_by_key(|one| one.batch_size);
        let near = choice.map_or(1, |choice| choice.best.batch);
        let at = all.iter().position(|one| one.batch_size <= near).unwrap_or(all.len().saturating_sub(1));
        let least_misfit = all.iter().rposition(|one| one.samples_per_s.is_none());
        let fastest = choice.and_then(|choice| all.iter().position(|one| one.batch_size == choice.fastest.batch));
        let is_shown =
            |index: &usize| index.abs_diff(at) <= NEIGHBOURS || Some(*index) == least_misfit || Some(*index) == fastest;
        shown.extend(all.into_iter().enumerate().filter(|(index, _)| is_shown(index)).map(|(_, one)| one));
    }
    Ok(shown)
}

/// Returns the candidates that do not fit.
fn misfits(asked: &Asked<'_>, mode: Mode, sizes: Sizes) -> Result<Vec<Considered>, PlanError> {
    let Asked { device, workload, goal, precision } = *asked;
    let model = MemoryModel::new(device, workload, goal, mode);
    let in_one_piece = largest_batch_in_one_piece(device, workload, precision);
    let misfit = |split: Split| {
        let memory = model.at(split.batch, split.micro_steps() > 1);
        let verdict = match (memory.fits(), split.batch <= in_one_piece) {
            (true, true) => return None,
            (true, false) => Verdict::TensorTooLarge,
            (false, _) => Verdict::DoesNotFit { missing: memory.total() - memory.budget() },
        };
        Some(Considered {
            batch_size: split.batch,
            micro_steps: split.micro_steps(),
            gradient_checkpointing: mode.checkpointing,
            cuda_graphs: mode.cuda_graphs,
            memory: memory.total(),
            samples_per_s: None,
            samples_per_s_interval: None,
            provenance: None,
            verdict,
        })
    };
    Ok(candidates::splits(device, workload, goal, mode, sizes)?.into_iter().filter_map(misfit).collect())
}

fn judged(candidate: &Candidate, choice: &Choice, asked: &Asked<'_>) -> Considered {
    Considered {
        batch_size: candidate.batch,
        micro_steps: candidate.micro_steps,
        gradient_checkpointing: candidate.mode.checkpointing,
        cuda_graphs: candidate.mode.cuda_graphs,
        memory: candidate.memory.total(),
        samples_per_s: Some(candidate.samples_per_s),
        samples_per_s_interval: speed_interval(asked.device, candidate.samples_per_s, candidate.provenance),
        provenance: Some(candidate.provenance),
        verdict: verdict(candidate, choice, asked),
    }
}

fn verdict(candidate: &Candidate, choice: &Choice, asked: &Asked<'_>) -> Verdict {
    let (best, goal) = (&choice.best, asked.goal);
    if (candidate.batch, candidate.mode) == (best.batch, best.mode) {
        return Verdict::Taken;
    }
    if choice.least_samples.is_some_and(|least| candidate.least < least) {
        return Verdict::FewerSamples;
    }
    let by = 1.0 - candidate.samples_per_s / choice.fastest.samples_per_s;
    let counted = 1.0 - candidate.counted_per_s / choice.fastest.counted_per_s;
    match goal.target_utilization {
        Some(target) if candidate.utilization < target => Verdict::Idle { utilization: candidate.utilization },
        None if counted > goal.throughput_tolerance && by <= goal.throughput_tolerance => {
            Verdict::Uncertain { by: 1.0 - candidate.counted_per_s / candidate.samples_per_s }
        }
        None if counted > goal.throughput_tolerance => Verdict::Slower { by },
        _ if candidate.mode.checkpointing && !best.mode.checkpointing => Verdict::Checkpointed,
        _ if best.even && !candidate.even && goal.global_batch.is_none() => Verdict::NoPowerOfTwo,
        _ if best.even && !candidate.even => Verdict::Uneven,
        _ if choice.least_samples.is_some() && candidate.least < best.least => Verdict::FewerSamples,
        _ if candidate.batch < best.batch => Verdict::Outdone,
        _ => Verdict::Larger,
    }
}
