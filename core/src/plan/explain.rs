//! Results of a search beside the plan: every item as a formula with its numbers, and the candidates that were not chosen.
//! Expected speed and memory of micro-batches, whichever is chosen.

use serde::{Deserialize, Deserializer, Serialize};

use super::Plan;
use super::memory::{self, Item, MemoryEstimate, prefetch_depth};
use super::misfit::{self, Misfit};
use super::precision::{self, ConsideredPrecision};
use super::problem::{PlanError, Problem};
use super::search::{Candidate, ModeModel, Search, Split, Verdict};
use super::search::{modes, precision_and_kernels, rank_share, splits};
use super::time::{SpeedError, StepTime, TimeTerm, speed_interval};
use crate::device::DeviceFacts;
use crate::exchange::with_exchange;
use crate::measured::Mode;
use crate::sparse::Sparse;
use crate::workload::Workload;
use crate::{Bytes, Goal, Kernels, Pins, Provenance};

/// Arithmetic of a plan, or of a workload that does not fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// Facts of the device.
    pub device: DeviceFacts,
    /// Costs of the training step.
    #[serde(rename = "costs")]
    pub workload: Workload,
    /// The goal, in samples.
    pub goal: Goal,
    /// Memory, item by item: of the plan, or where nothing fits, of the micro-batch that needs the least.
    pub memory: Vec<Item>,
    /// The sum of the items.
    pub needed: Bytes,
    /// Bytes that training may take: the available memory less the headroom.
    pub budget: Bytes,
    /// The predicted time of an optimizer step, term by term; empty where nothing fits.
    pub time: Vec<TimeTerm>,
    /// The precisions that were compared.
    pub precisions: Vec<ConsideredPrecision>,
    /// The chosen micro-batch among its neighbours, largest first.
    pub considered: Vec<Considered>,
    /// Result of planning.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Result of planning.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The workload fits.
    Plan(Box<Plan>),
    /// The workload does not fit.
    Misfit(Box<Misfit>),
}

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
    /// Kernels of the modules in `gpu_tuned::nn`; left out for Burn's.
    #[serde(skip_serializing_if = "Sparse::is_absent")]
    pub kernels: Kernels,
    /// Predicted memory.
    pub memory: Bytes,
    /// Predicted samples per second over all ranks; `None` where it does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s: Option<f64>,
    /// Lowest and highest samples per second within the error of predictions; `None` for a measured speed or a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s_interval: Option<[f64; 2]>,
    /// What the interval is the error of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_per_s_error: Option<SpeedError>,
    /// Provenance of the throughput; `None` where it does not fit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
    /// Why it was chosen or not.
    pub verdict: Verdict,
}

/// Explains the result of [`plan()`](super::plan()).
///
/// # Errors
///
/// When the goal contradicts itself, or asks for an unsupported precision. A workload that does not fit is explained.
pub fn explain(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<Explanation, PlanError> {
    let asked = Problem { device, workload, goal };
    let goal = asked.goal_in_samples()?;
    let problem = Problem { goal: &goal, ..asked };
    let search = Search::new(problem)?;
    let (taken, outcome) = (search.taken(), Outcome::new(asked, &search));
    let best = taken.best();
    let Candidate { split, mode, memory, .. } = best.unwrap_or_else(|| taken.least());
    let time = best.map(|best| StepTime::new(device, workload, best.mode).terms(best.split));
    let exchange = best.and_then(|_| TimeTerm::exchange(&goal, goal.exchange_s));
    Ok(Explanation {
        memory: memory::items(problem, *mode, split.batch, split.micro_steps() > 1),
        needed: memory.total(),
        budget: memory.budget(),
        time: time.unwrap_or_default().into_iter().chain(exchange).collect(),
        precisions: precision::considered(&search),
        considered: considered(&search),
        outcome,
        device: device.clone(),
        workload: workload.clone(),
        goal: goal.clone(),
    })
}

impl Explanation {
    /// Counts an exchange of gradients of so many seconds a step in every speed.
    pub fn count_exchange(&mut self, exchange_s: f64) {
        let Outcome::Plan(plan) = &mut self.outcome else { return };
        plan.count_exchange(exchange_s);
        self.time.extend(TimeTerm::exchange(&self.goal, exchange_s));
        let ranks = self.goal.world_size.max(1);
        let global_batch = self.goal.global_batch;
        let count = |speed: &mut Option<f64>, interval: &mut Option<[f64; 2]>, samples: u64| {
            let Some(before) = *speed else { return };
            let after = with_exchange(before, global_batch.unwrap_or(samples * ranks) as f64, exchange_s);
            *speed = Some(after);
            *interval = interval.map(|interval| interval.map(|limit| limit * after / before));
        };
        for one in &mut self.considered {
            count(&mut one.samples_per_s, &mut one.samples_per_s_interval, one.batch_size * one.micro_steps);
        }
        for one in &mut self.precisions {
            count(&mut one.samples_per_s, &mut one.samples_per_s_interval, one.batch_size.unwrap_or(1));
        }
    }
}

impl Outcome {
    /// Returns the plan that a search found, or what is missing where nothing fits. The goal of `asked` is as the user gave
    /// it.
    pub(super) fn new(asked: Problem<'_>, search: &Search<'_>) -> Self {
        match Plan::new(search) {
            Some(plan) => Self::Plan(Box::new(plan)),
            None => Self::Misfit(Box::new(misfit::explain(asked, search.taken().least()))),
        }
    }

    /// Memory of the plan, or where nothing fits, of the micro-batch that needs the least.
    pub fn memory(&self) -> &MemoryEstimate {
        match self {
            Self::Plan(plan) => &plan.memory,
            Self::Misfit(misfit) => &misfit.memory,
        }
    }
}

/// Neighbours that are shown on each side of the chosen candidate.
const NEIGHBOURS: usize = 3;

/// Returns the chosen candidate with its neighbours, the fastest, and the smallest that does not fit; without a choice the
/// smallest ones. Largest first, those without checkpointing before those with.
fn considered(search: &Search<'_>) -> Vec<Considered> {
    let taken = search.taken();
    let choice = taken.choice.as_ref();
    let mut shown = Vec::new();
    for mode in &taken.modes {
        let all: Vec<_> = taken.all.iter().filter(|candidate| candidate.mode == *mode).collect();
        let near = choice.map_or(1, |choice| choice.best.split.batch);
        let at = all.iter().position(|one| one.split.batch <= near).unwrap_or(all.len().saturating_sub(1));
        let least_misfit = all.iter().rposition(|one| !one.fits());
        let fastest =
            choice.and_then(|choice| all.iter().position(|one| one.split.batch == choice.fastest.split.batch));
        let is_shown =
            |index: &usize| index.abs_diff(at) <= NEIGHBOURS || Some(*index) == least_misfit || Some(*index) == fastest;
        let near = all.into_iter().enumerate().filter(|(index, _)| is_shown(index));
        shown.extend(near.filter_map(|(_, candidate)| Considered::new(candidate, search.problem.device)));
    }
    shown
}

impl Considered {
    /// Returns a candidate with its verdict; `None` if it has none.
    fn new(candidate: &Candidate, device: &DeviceFacts) -> Option<Self> {
        let Candidate { split, mode, samples_per_s, provenance, .. } = *candidate;
        let error = candidate.speed_error(device).filter(|_| candidate.fits());
        Some(Self {
            batch_size: split.batch,
            micro_steps: split.micro_steps(),
            gradient_checkpointing: mode.checkpointing,
            cuda_graphs: mode.cuda_graphs,
            kernels: mode.kernels,
            memory: candidate.memory.total(),
            samples_per_s: candidate.fits().then_some(samples_per_s),
            samples_per_s_interval: speed_interval(device, samples_per_s, error),
            samples_per_s_error: error,
            provenance: candidate.fits().then_some(provenance),
            verdict: candidate.verdict?,
        })
    }
}

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

/// Returns expected speed and memory of micro-batches on `device` with precision and kernels of the plan, smallest first,
/// without checkpointing before with it. A pinned micro-batch of the goal is ignored.
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
    let (precision, kernels) = precision_and_kernels(Problem { device, workload, goal: &goal })?;
    let Pins { prefetch_depth, allow_tf32, .. } = goal.pins;
    goal.pins = Pins { kernels: Some(kernels), prefetch_depth, allow_tf32, ..Pins::default() };
    goal.pins.precision = Some(precision);
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
