//! The search: every way to run an optimizer step that is considered, its costs, and the verdict on it.

use core::fmt;

use serde::Serialize;

use super::memory::{MemoryEstimate, MemoryModel, largest_at_full_depth, largest_batch_in_one_piece};
use super::problem::{PlanError, Problem};
use super::time::{SpeedError, StepTime};
use super::{measured, precision};
use crate::device::{DeviceFacts, DeviceKind};
use crate::exchange::with_exchange;
use crate::measured::Mode;
use crate::{Bytes, Goal, Kernels, Precision, Provenance};

/// Samples of a micro-batch below which the error of BatchNorm grows. Source: Wu and He, "Group Normalization", 2018,
/// table 2: ResNet-50 errs on `ImageNet` by 23.6% with 32 samples on a GPU, 23.7% with 16, 24.8% with 8, 27.3% with 4.
pub const STATISTICS_FLOOR: u64 = 16;
/// Samples of a micro-batch above which the error of BatchNorm does not fall, from the same source.
pub const STATISTICS_ENOUGH: u64 = 32;

/// Smallest gain in throughput for which CUDA graphs are worth their memory, as a fraction.
pub(super) const WORTHWHILE_GAIN: f64 = 0.05;

/// The largest micro-batch considered when no global batch bounds it.
const LARGEST_FREE_BATCH: u64 = 1 << 16;

/// Micro-batches considered from one power of two up to the next, when no global batch bounds them.
const STEPS: u64 = 8;

/// The most samples of an optimizer step over all ranks.
const LARGEST_STEP: u64 = 1 << 40;

/// Every number of micro-batches up to this is considered, every micro-batch of up to as many samples, and every doubling
/// between them.
const EVERY: u64 = 64;

/// Result of the search: the candidates of each precision, and the chosen precision.
pub(super) struct Search<'a> {
    /// The problem, with the goal in samples.
    pub problem: Problem<'a>,
    /// Candidates of each precision, f32 before a 16-bit one.
    pub precisions: Vec<Candidates>,
    /// Index of the chosen precision.
    taken: usize,
    /// Reason for the precision where two were compared.
    pub comparison: Option<(Provenance, String)>,
}

impl<'a> Search<'a> {
    /// Searches all precisions that the goal allows on the device. The goal is in samples.
    pub(super) fn new(problem: Problem<'a>) -> Result<Self, PlanError> {
        let precisions = supported(problem)?;
        let found = precisions.into_iter().map(|precision| Candidates::find(problem, precision));
        let precisions = found.collect::<Result<Vec<_>, _>>()?;
        let comparison = if let [f32, mixed] = &precisions[..] {
            Some(precision::compare(f32, mixed).unwrap_or_else(|| {
                let precision = least(&precisions).mode.precision;
                (precision, Provenance::Derived, "nothing fits".to_owned())
            }))
        } else {
            None
        };
        let is_taken = |found: &Candidates| comparison.as_ref().is_none_or(|(taken, ..)| found.precision == *taken);
        let taken = precisions.iter().position(is_taken).unwrap_or_default();
        Ok(Self { problem, precisions, taken, comparison: comparison.map(|(_, provenance, why)| (provenance, why)) })
    }

    /// Returns the candidates in the chosen precision.
    pub(super) fn taken(&self) -> &Candidates {
        &self.precisions[self.taken]
    }
}

impl Goal {
    /// Precisions that the planner compares on a device: the requested one, or under [`Auto`](crate::PrecisionPolicy::Auto)
    /// fp32 and the 16-bit mixed precision of the tensor cores.
    pub fn precisions(&self, device: &DeviceFacts) -> Vec<Precision> {
        let policy = self.precision.unwrap_or(Precision::F32.into());
        match self.pins.precision.or(policy.fixed()) {
            Some(fixed) => vec![fixed],
            None => core::iter::once(Precision::F32).chain(device.mixed_precision()).collect(),
        }
    }

    /// Returns true if a GPU may replay steps as CUDA graphs: those of one rank, unless the setting is pinned to false.
    pub fn may_use_graphs(&self) -> bool {
        self.world_size == 1 && self.pins.cuda_graphs != Some(false)
    }

    /// Number of ranks with `samples` of a step each that make up the global batch.
    fn ranks_for(&self, samples: u64) -> f64 {
        self.global_batch.map_or(self.world_size as f64, |global_batch| global_batch as f64 / samples as f64)
    }
}

/// Returns precision and kernels of the plan, without a search if only one of each is possible. The goal is in samples.
pub(super) fn precision_and_kernels(problem: Problem<'_>) -> Result<(Precision, Kernels), PlanError> {
    if let [precision] = supported(problem)?[..]
        && let [kernels] = kernels(problem, precision)[..]
    {
        return Ok((precision, kernels));
    }
    let search = Search::new(problem)?;
    let taken = search.taken();
    let Mode { precision, kernels, .. } = taken.best().unwrap_or_else(|| taken.least()).mode;
    Ok((precision, kernels))
}

/// Returns the precisions to compare. A single requested one must be supported by the device.
fn supported(problem: Problem<'_>) -> Result<Vec<Precision>, PlanError> {
    let Problem { device, goal, .. } = problem;
    let all = goal.precisions(device);
    match all.iter().find(|precision| !device.has_units_for(**precision)) {
        Some(&precision) => Err(PlanError::precision_unsupported(precision, device)),
        None => Ok(all),
    }
}

/// Returns true if any candidate fits. The goal is in samples.
pub(super) fn any_fits(problem: Problem<'_>) -> bool {
    let Ok(splits) = splits(problem) else { return false };
    let precisions = supported(problem).unwrap_or_default().into_iter();
    let mut modes = precisions.flat_map(|precision| modes(problem, precision));
    modes.any(|mode| ModeModel::new(problem, mode).any_fits(&splits))
}

/// Returns the candidate that needs the least memory on the device, whichever sizes were measured. The goal is in samples.
pub(super) fn least_memory(problem: Problem<'_>) -> Result<Candidate, PlanError> {
    let precisions = supported(problem)?.into_iter();
    let found = precisions.map(|precision| Candidates::of_all_sizes(problem, precision));
    found.collect::<Result<Vec<_>, _>>().map(|all| least(&all).clone())
}

/// Returns the candidate that needs the least memory, preferably one whose tensors are allocated in one piece each.
fn least(precisions: &[Candidates]) -> &Candidate {
    let least =
        precisions.iter().map(Candidates::least).min_by_key(|least| (least.beyond_one_piece, least.memory.total()));
    least.expect("BUG: there is always a precision")
}

/// Candidates of one precision, each with its verdict, and the best of them.
pub(super) struct Candidates {
    pub precision: Precision,
    /// True if steps in this precision were timed on this device, without CUDA graphs unless they are pinned.
    pub is_measured: bool,
    /// Modes that were considered.
    pub modes: Vec<Mode>,
    /// All candidates by mode, the largest micro-batch first.
    pub all: Vec<Candidate>,
    /// The best way with CUDA graphs, against the best one without.
    pub graphs: Graphs,
    /// The chosen candidate; `None` when nothing fits.
    pub choice: Option<Choice>,
}

/// The chosen candidate, and figures of those that it was compared with.
pub(super) struct Choice {
    pub best: Candidate,
    /// Candidate with the highest throughput in comparisons.
    pub fastest: Candidate,
    /// Fewest samples of a micro-batch that the choice was made from, for batch statistics.
    pub least_samples: Option<u64>,
    /// Largest micro-batch that fits.
    pub largest: u64,
}

/// The best way to run a step with CUDA graphs, against the best one without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Graphs {
    /// No step with CUDA graphs was timed on this device, or the device has none.
    NotMeasured,
    /// No timed micro-batch fits the memory and the goal.
    DoNotFit,
    /// Gain in throughput, as a fraction.
    Measured { gain: f64 },
}

impl Graphs {
    /// Returns true if their gain is worth their memory.
    pub(super) fn are_worthwhile(self) -> bool {
        matches!(self, Self::Measured { gain } if gain >= WORTHWHILE_GAIN)
    }
}

/// Micro-batch sizes among which a plan is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sizes {
    /// Only measured ones, in modes that were measured on this device; all in other modes.
    Measured,
    /// All, with interpolated costs where they were not measured.
    All,
}

impl Candidates {
    /// Chooses with CUDA graphs where the goal allows them and they gain enough, else without.
    fn find(problem: Problem<'_>, precision: Precision) -> Result<Self, PlanError> {
        let mut plain = Self::without_graphs(problem, precision)?;
        let Some(best_plain) = &plain.choice else { return Ok(plain) };
        let modes = recorded_modes(problem, precision);
        if modes.is_empty() {
            return Ok(plain);
        }
        let recorded = Self::among(problem, precision, Sizes::Measured, modes)?;
        let Some(best_recorded) = &recorded.choice else {
            plain.graphs = Graphs::DoNotFit;
            return Ok(plain);
        };
        let graphs = Graphs::Measured { gain: best_recorded.best.counted_per_s / best_plain.best.counted_per_s - 1.0 };
        let keeps_statistics = best_recorded.least_samples >= best_plain.least_samples;
        let is_taken = problem.goal.allow_cuda_graphs == Some(true) && graphs.are_worthwhile() && keeps_statistics;
        let is_measured = plain.is_measured;
        let taken = if is_taken { recorded } else { plain };
        Ok(Self { is_measured, graphs, ..taken })
    }

    /// Chooses among the measured micro-batches, or among all sizes where this device was not measured or none of the
    /// measured ones fits.
    fn without_graphs(problem: Problem<'_>, precision: Precision) -> Result<Self, PlanError> {
        let modes = modes(problem, precision);
        let is_measured = |mode: &Mode| measured::batches_here(problem.device, problem.workload, *mode).is_some();
        if modes.iter().any(is_measured) {
            let found = Self::among(problem, precision, Sizes::Measured, modes.clone())?;
            let fits_measured = found.fitting().any(|candidate| is_measured(&candidate.mode));
            if let Some(choice) = found.choice.as_ref().filter(|_| fits_measured) {
                // No measured size may have enough samples for batch statistics.
                if choice.least_samples.is_none_or(|least| least >= STATISTICS_FLOOR) {
                    return Ok(found);
                }
                let other = Self::among(problem, precision, Sizes::All, modes)?;
                let has_more = |other: &Choice| other.least_samples > choice.least_samples;
                return Ok(if other.choice.as_ref().is_some_and(has_more) { other } else { found });
            }
        }
        Self::among(problem, precision, Sizes::All, modes)
    }

    /// Chooses among all sizes, without CUDA graphs unless they are pinned.
    pub(super) fn of_all_sizes(problem: Problem<'_>, precision: Precision) -> Result<Self, PlanError> {
        Self::among(problem, precision, Sizes::All, modes(problem, precision))
    }

    /// Chooses among these sizes and modes. With CUDA graphs that are not pinned, only sizes that were timed are considered.
    fn among(problem: Problem<'_>, precision: Precision, sizes: Sizes, modes: Vec<Mode>) -> Result<Self, PlanError> {
        let Problem { device, workload, goal } = problem;
        let splits = splits(problem)?;
        let is_free = goal.pins.batch_size.is_none() && goal.pins.gradient_accumulation.is_none();
        let (mut all, mut largest) = (Vec::with_capacity(modes.len() * splits.len()), 0);
        for &mode in &modes {
            // A measured micro-batch may leave a smaller last one. Its memory is never more: it is served from pages that the
            // larger one has reserved.
            let is_bound = sizes == Sizes::Measured && is_free;
            let measured = measured::batches_here(device, workload, mode).filter(|_| is_bound);
            let is_considered = |split: &&Split| measured.as_ref().is_none_or(|batches| batches.contains(&split.batch));
            let between = goal.global_batch.is_some() && measured.is_none();
            let model = ModeModel::new(problem, mode);
            let mut candidates = model.candidates(splits.iter().filter(is_considered), between);
            let fitting = candidates.iter().filter(|candidate| candidate.fits());
            largest = fitting.map(|candidate| candidate.split.batch).max().unwrap_or(0).max(largest);
            let is_timed = |candidate: &Candidate| candidate.provenance == Provenance::Measured || !candidate.fits();
            candidates.retain(|candidate| !mode.cuda_graphs || goal.pins.cuda_graphs.is_some() || is_timed(candidate));
            all.extend(candidates);
        }
        let most = all.iter().filter(|candidate| candidate.fits()).map(|candidate| candidate.split.least()).max();
        let least_samples = most.filter(|_| workload.batch_statistics).map(|most| most.min(STATISTICS_FLOOR));
        let choice = best(&all, least_samples, goal, |candidate| candidate.counted_per_s)
            .map(|(fastest, best)| Choice { best: best.clone(), fastest: fastest.clone(), least_samples, largest });
        if let Some(choice) = &choice {
            for candidate in &mut all {
                candidate.verdict = candidate.verdict.or_else(|| Some(choice.verdict(candidate, goal)));
            }
        }
        Ok(Self {
            precision,
            is_measured: modes.iter().any(|mode| measured::is_timed_here(device, workload, *mode)),
            modes,
            all,
            graphs: Graphs::NotMeasured,
            choice,
        })
    }

    /// The chosen candidate.
    pub(super) fn best(&self) -> Option<&Candidate> {
        self.choice.as_ref().map(|choice| &choice.best)
    }

    /// The candidates that fit.
    pub(super) fn fitting(&self) -> impl Iterator<Item = &Candidate> {
        self.all.iter().filter(|candidate| candidate.fits())
    }

    /// Returns the candidate that needs the least memory, preferably one whose tensors are allocated in one piece each.
    pub(super) fn least(&self) -> &Candidate {
        let key = |candidate: &&Candidate| {
            let Candidate { beyond_one_piece, mode, split, .. } = candidate;
            (*beyond_one_piece, candidate.memory.total(), mode.checkpointing, split.batch)
        };
        self.all.iter().min_by_key(key).expect("BUG: there is always a mode, and a split")
    }

    /// Largest error that was deducted from estimates, if without it another micro-batch would be chosen.
    pub(super) fn decisive_doubt(&self, choice: &Choice, goal: &Goal) -> Option<f64> {
        let doubt = |candidate: &Candidate| 1.0 - candidate.counted_per_s / candidate.samples_per_s;
        let most = self.fitting().map(doubt).fold(0.0, f64::max);
        if most <= 0.0 {
            return None;
        }
        let (_, taken) = best(&self.all, choice.least_samples, goal, |candidate| candidate.samples_per_s)?;
        (!taken.is_same(&choice.best)).then_some(most)
    }
}

/// Returns the fastest candidate by `speed`, and the best: the smallest that is fast enough for the goal, preferably without
/// checkpointing, with Burn's kernels and even. A part of a step is never best where the whole step takes less time and memory.
///
/// With `least_samples`, for batch statistics, only micro-batches of so many samples count. Where the step is given, the
/// largest is best, up to [`STATISTICS_ENOUGH`] samples.
fn best<'c>(
    all: &'c [Candidate],
    least_samples: Option<u64>,
    goal: &Goal,
    speed: impl Fn(&Candidate) -> f64,
) -> Option<(&'c Candidate, &'c Candidate)> {
    let counts = |candidate: &&Candidate| candidate.fits() && candidate.split.least() >= least_samples.unwrap_or(0);
    let fastest = all.iter().filter(counts).max_by(|a, b| speed(a).total_cmp(&speed(b)))?;
    let is_enough = |candidate: &&Candidate| match goal.target_utilization {
        Some(target) => candidate.utilization >= target,
        None => speed(candidate) >= speed(fastest) * (1.0 - goal.throughput_tolerance),
    };
    let enough = || all.iter().filter(counts).filter(is_enough);
    // A single micro-batch accumulates no gradients: the whole step at once may take less memory than its parts.
    let is_outdone = |part: &&Candidate| {
        let outdoes = |whole: &Candidate| {
            let is_less =
                whole.memory.total() < part.memory.total() && whole.mode.checkpointing <= part.mode.checkpointing;
            whole.split.micro_steps() == 1 && is_less && speed(whole) >= speed(part)
        };
        part.split.micro_steps() > 1 && enough().any(outdoes)
    };
    let prefers_large = least_samples.is_some() && goal.global_batch.is_some();
    let size = |split: Split| {
        let missing = if prefers_large { STATISTICS_ENOUGH.saturating_sub(split.least()) } else { 0 };
        (missing, split.batch)
    };
    let best = enough().filter(|candidate| !is_outdone(candidate));
    let best = best.min_by_key(|candidate| {
        let Mode { checkpointing, kernels, .. } = candidate.mode;
        (checkpointing, kernels, !candidate.even, size(candidate.split))
    });
    Some((fastest, best.unwrap_or(fastest)))
}

impl Choice {
    /// Returns why a candidate that fits was chosen or not.
    fn verdict(&self, candidate: &Candidate, goal: &Goal) -> Verdict {
        let Self { best, fastest, .. } = self;
        if candidate.is_same(best) {
            return Verdict::Taken;
        }
        if self.least_samples.is_some_and(|least| candidate.split.least() < least) {
            return Verdict::FewerSamples;
        }
        let by = 1.0 - candidate.samples_per_s / fastest.samples_per_s;
        let counted = 1.0 - candidate.counted_per_s / fastest.counted_per_s;
        match goal.target_utilization {
            Some(target) if candidate.utilization < target => Verdict::Idle { utilization: candidate.utilization },
            None if counted > goal.throughput_tolerance && by <= goal.throughput_tolerance => {
                Verdict::Uncertain { by: 1.0 - candidate.counted_per_s / candidate.samples_per_s }
            }
            None if counted > goal.throughput_tolerance => Verdict::Slower { by },
            _ if candidate.mode.checkpointing && !best.mode.checkpointing => Verdict::Checkpointed,
            _ if candidate.mode.kernels > best.mode.kernels => Verdict::Library,
            _ if best.even && !candidate.even && goal.global_batch.is_none() => Verdict::NoPowerOfTwo,
            _ if best.even && !candidate.even => Verdict::Uneven,
            _ if self.least_samples.is_some() && candidate.split.least() < best.split.least() => Verdict::FewerSamples,
            _ if candidate.split.batch < best.split.batch => Verdict::Outdone,
            _ => Verdict::Larger,
        }
    }
}

/// A way to run an optimizer step, with its costs.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub split: Split,
    pub mode: Mode,
    pub memory: MemoryEstimate,
    /// Samples of a micro-batch beyond the largest whose tensors are allocated in one piece each.
    pub beyond_one_piece: u64,
    /// Samples per second of one rank.
    pub rank_samples_per_s: f64,
    /// Samples per second over all ranks.
    pub samples_per_s: f64,
    /// Throughput that comparisons use: less by the error of an estimate.
    pub counted_per_s: f64,
    /// Provenance of the throughput.
    pub provenance: Provenance,
    /// Predicted fraction of the time in which the device computes.
    pub utilization: f64,
    /// True if the micro-batches of a step are all of this size; without a global batch, if this one is a power of two.
    pub even: bool,
    /// Why it was chosen or not. `None` until those that fit are compared.
    pub verdict: Option<Verdict>,
}

impl Candidate {
    /// Returns true if it may be chosen.
    pub(super) const fn fits(&self) -> bool {
        !matches!(self.verdict, Some(Verdict::DoesNotFit { .. } | Verdict::TensorTooLarge))
    }

    /// What the predicted speed may be off by; `None` for a measured speed or a CPU.
    pub(super) fn speed_error(&self, device: &DeviceFacts) -> Option<SpeedError> {
        SpeedError::new(device, self.provenance, self.utilization)
    }

    fn is_same(&self, other: &Self) -> bool {
        (self.split.batch, self.mode) == (other.split.batch, other.mode)
    }
}

/// Why a candidate was chosen or not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Verdict {
    /// The plan.
    Taken,
    /// More memory than the budget.
    DoesNotFit {
        /// Missing bytes.
        missing: Bytes,
    },
    /// Its largest tensor exceeds the device's largest allocation in one piece.
    TensorTooLarge,
    /// Slower than the fastest by more than the goal's tolerance.
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
    /// Recomputes activations, and the chosen candidate does not.
    Checkpointed,
    /// Has kernels of the library, and Burn's are fast enough.
    Library,
    /// Its last micro-batch is smaller than the others.
    Uneven,
    /// No power of two, and a power of two does as well.
    NoPowerOfTwo,
    /// Slower than the larger candidate that was chosen, and takes more memory.
    Outdone,
    /// Its batch statistics come from fewer samples than those of the chosen one.
    FewerSamples,
    /// No gain over the smaller candidate that was chosen.
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
            Self::Library => f.write_str("the library's kernels are hardly faster"),
            Self::Uneven => f.write_str("does not divide the step evenly"),
            Self::NoPowerOfTwo => f.write_str("no power of two, and one does as well"),
            Self::Outdone => f.write_str("slower than the chosen one, and takes more memory"),
            Self::FewerSamples => f.write_str("batch statistics from fewer samples"),
            Self::Larger => f.write_str("larger, and hardly faster"),
        }
    }
}

/// Costs of a step in one mode: a precision, kernels, with or without checkpointing and CUDA graphs.
pub(super) struct ModeModel<'a> {
    goal: &'a Goal,
    mode: Mode,
    time: StepTime<'a>,
    memory: MemoryModel<'a>,
    /// Largest micro-batch whose tensors are allocated in one piece each.
    in_one_piece: u64,
}

impl<'a> ModeModel<'a> {
    pub(super) fn new(problem: Problem<'a>, mode: Mode) -> Self {
        let Problem { device, workload, goal } = problem;
        Self {
            goal,
            mode,
            time: StepTime::new(device, workload, mode),
            memory: MemoryModel::new(problem, mode),
            in_one_piece: largest_batch_in_one_piece(device, workload, mode.precision),
        }
    }

    /// Returns the memory of a split, and the reason if it does not fit.
    fn fit(&self, split: Split) -> (MemoryEstimate, Option<Verdict>) {
        let memory = self.memory.at(split.batch, split.micro_steps() > 1);
        let misfit = match (memory.fits(), split.batch <= self.in_one_piece) {
            (true, true) => None,
            (true, false) => Some(Verdict::TensorTooLarge),
            (false, _) => Some(Verdict::DoesNotFit { missing: memory.total() - memory.budget() }),
        };
        (memory, misfit)
    }

    /// Returns the costs of a split.
    pub(super) fn candidate(&self, split: Split) -> Candidate {
        let (memory, misfit) = self.fit(split);
        self.with_time(split, memory, misfit)
    }

    /// Returns the costs of a split that fits.
    fn fitting(&self, split: Split) -> Option<Candidate> {
        let (memory, misfit) = self.fit(split);
        misfit.is_none().then(|| self.with_time(split, memory, None))
    }

    fn with_time(&self, split: Split, memory: MemoryEstimate, verdict: Option<Verdict>) -> Candidate {
        let Split { batch, samples } = split;
        let rank_samples_per_s = with_exchange(self.time.samples_per_s(split), samples as f64, self.goal.exchange_s);
        let samples_per_s = rank_samples_per_s * self.goal.ranks_for(samples);
        let is_free = self.goal.global_batch.is_none();
        Candidate {
            split,
            mode: self.mode,
            memory,
            beyond_one_piece: batch.saturating_sub(self.in_one_piece),
            rank_samples_per_s,
            samples_per_s,
            counted_per_s: samples_per_s * (1.0 - self.time.doubt(batch)),
            provenance: self.time.provenance(batch),
            utilization: self.time.utilization(split),
            even: if is_free { batch.is_power_of_two() } else { samples.is_multiple_of(batch) },
            verdict,
        }
    }

    /// Returns the candidates of splits with the largest micro-batch first. With `between`, also the largest that fits
    /// between two neighbours of which only the smaller fits.
    fn candidates<'s>(&self, splits: impl Iterator<Item = &'s Split>, between: bool) -> Vec<Candidate> {
        let mut found = Vec::with_capacity(splits.size_hint().1.unwrap_or_default());
        let mut misfit = None;
        for &split in splits {
            let candidate = self.candidate(split);
            if candidate.fits() {
                let larger = misfit.take().filter(|_| between);
                found.extend(larger.and_then(|larger| split.largest_below(larger, |split| self.fitting(split))));
            } else {
                misfit = Some(split);
            }
            found.push(candidate);
        }
        found
    }

    /// Returns true if any of the splits, largest first, fits.
    ///
    /// Without measurements the smallest micro-batch needs the least, or the whole step at once, which accumulates no
    /// gradients. Measured memory may be least anywhere, because page counts jump.
    fn any_fits(&self, splits: &[Split]) -> bool {
        let step = if self.memory.is_measured() { 1 } else { splits.len().saturating_sub(1).max(1) };
        // The smallest is the likeliest to fit.
        splits.iter().rev().step_by(step).any(|split| self.fit(*split).1.is_none())
    }
}

/// Returns the modes to compare, with each of the [`kernels`]: without checkpointing, and with it where it saves memory or
/// was measured; or the pinned one. With CUDA graphs only if they are pinned.
pub(super) fn modes(problem: Problem<'_>, precision: Precision) -> Vec<Mode> {
    let Problem { device, workload, goal } = problem;
    let has_graphs = goal.pins.cuda_graphs == Some(true) && can_use_graphs(problem);
    // With dropout Burn's checkpointing keeps more, because it cannot recompute random masks.
    let kept = workload.sample.checkpointed_activations;
    let saves = kept.is_some_and(|kept| kept < workload.sample.activations);
    let with = |kernels: Kernels| {
        let mode = |checkpointing| {
            let mode = device.mode_of(precision, checkpointing, goal.pins.allow_tf32());
            mode.with_graphs(has_graphs).with_library(kernels.is_library())
        };
        let is_measured = || measured::has_memory(device, workload, mode(true));
        match goal.pins.gradient_checkpointing {
            Some(fixed) => vec![mode(fixed)],
            None if saves || is_measured() => vec![mode(false), mode(true)],
            None => vec![mode(false)],
        }
    };
    kernels(problem, precision).into_iter().flat_map(with).collect()
}

/// Returns the kernels to compare: the requested ones, else those that were timed on this device. Burn's where neither
/// were, and on a CPU.
fn kernels(Problem { device, workload, goal }: Problem<'_>, precision: Precision) -> Vec<Kernels> {
    if device.kind == DeviceKind::Cpu {
        return vec![Kernels::Burn];
    }
    if let Some(asked) = goal.pins.kernels.or(goal.kernels) {
        return vec![asked];
    }
    let timed = measured::kernels_timed_here(device, workload, precision);
    if timed.is_empty() { vec![Kernels::Burn] } else { timed }
}

/// Returns those of the [`modes`] that were timed with CUDA graphs on this device, unless the goal pins the setting.
fn recorded_modes(problem: Problem<'_>, precision: Precision) -> Vec<Mode> {
    if problem.goal.pins.cuda_graphs.is_some() || !can_use_graphs(problem) {
        return Vec::new();
    }
    let recorded = modes(problem, precision).into_iter().map(|mode| mode.with_graphs(true));
    recorded.filter(|mode| measured::is_timed_here(problem.device, problem.workload, *mode)).collect()
}

fn can_use_graphs(problem: Problem<'_>) -> bool {
    problem.device.kind == DeviceKind::Gpu && problem.goal.may_use_graphs()
}

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

/// Message for micro-batches of one sample, where batch statistics need two.
const ONE_VALUE: &str = "a micro-batch of 1 sample leaves batch statistics with 1 value a channel, because the model shrinks its \
                         image to 1 x 1: give each micro-batch 2 samples or more, or use group norm";

/// Returns the splits that the goal and the model allow, from the largest micro-batch to the smallest.
pub(super) fn splits(problem: Problem<'_>) -> Result<Vec<Split>, PlanError> {
    let mut all = match rank_share(problem.goal)? {
        Some(samples) => splits_of_share(problem, samples)?,
        None => free_splits(problem)?,
    };
    all.retain(|split| split.least() >= problem.workload.least_micro_batch());
    if all.is_empty() { Err(PlanError::Goal { message: ONE_VALUE.to_owned() }) } else { Ok(all) }
}

/// Returns the splits of a rank's share of a global batch.
fn splits_of_share(problem: Problem<'_>, samples: u64) -> Result<Vec<Split>, PlanError> {
    let Problem { device, workload, goal } = problem;
    let pins = &goal.pins;
    let (batch, agrees) = match (pins.batch_size, pins.gradient_accumulation) {
        (Some(batch), steps) => {
            let is_part = (1..=samples).contains(&batch);
            (batch, is_part && steps.is_none_or(|steps| steps == samples.div_ceil(batch)))
        }
        (None, Some(steps)) if (1..=samples).contains(&steps) => {
            let batch = samples.div_ceil(steps);
            (batch, samples.div_ceil(batch) == steps)
        }
        (None, Some(_)) => (0, false),
        (None, None) if goal.whole_batch_loss => (samples, true),
        (None, None) => {
            let queued_once = largest_at_full_depth(problem).map(|batch| batch.saturating_add(1));
            let others = queued_once.into_iter().chain(measured::batches(device, workload));
            return Ok(all_splits(samples, others));
        }
    };
    let (batch_size, gradient_accumulation) = (pins.batch_size, pins.gradient_accumulation);
    let conflict = PlanError::Pins { batch_size, gradient_accumulation, samples };
    if agrees { Ok(vec![Split { batch, samples }]) } else { Err(conflict) }
}

/// Returns the splits without a global batch: powers of two with seven steps between them, and measured sizes.
fn free_splits(problem: Problem<'_>) -> Result<Vec<Split>, PlanError> {
    let Problem { device, workload, goal } = problem;
    let micro_steps = goal.pins.gradient_accumulation.unwrap_or(1);
    let error = |message: &str| Err(PlanError::Goal { message: message.to_owned() });
    if micro_steps == 0 || goal.pins.batch_size == Some(0) {
        return error("batch_size and gradient_accumulation are at least 1: leave them to the planner, or set them");
    }
    let mut batches: Vec<u64> = if let Some(batch) = goal.pins.batch_size {
        vec![batch]
    } else {
        let steps = |from: u64| (0..STEPS).map(move |step| from + from * step / STEPS);
        let all = (0..=LARGEST_FREE_BATCH.ilog2()).flat_map(|exponent| steps(1 << exponent));
        all.chain(measured::batches(device, workload)).filter(|batch| *batch <= LARGEST_FREE_BATCH).collect()
    };
    batches.sort_unstable_by(|a, b| b.cmp(a));
    batches.dedup();
    let is_step = |split: &Split| split.samples.saturating_mul(goal.world_size) <= LARGEST_STEP;
    let cut = |batch: u64| Split { batch, samples: batch.saturating_mul(micro_steps) };
    let splits: Vec<_> = batches.into_iter().map(cut).filter(is_step).collect();
    if splits.is_empty() {
        return error(
            "batch_size x gradient_accumulation x world_size make more than 2^40 samples: leave one to the planner",
        );
    }
    Ok(splits)
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
