//! Choice of one candidate, and its reasons.

use super::baseline;
use super::candidates::{self, Candidate, Sizes};
use super::error::PlanError;
use super::graphs::Graphs;
use super::limits::largest_batch_in_one_piece;
use super::memory::MemoryModel;
use super::reason::Reason;
use super::schedule::Schedule;
use super::split;
use super::statistics::{self, STATISTICS_ENOUGH, STATISTICS_FLOOR};
use super::time::StepTime;
use super::{speed_interval, with_interval};
use crate::device::DeviceFacts;
use crate::exchange::Share;
use crate::measured::Mode;
use crate::workload::Workload;
use crate::{Goal, Precision, Provenance, Setting};

/// The chosen candidate, and those that it was compared with.
pub(super) struct Choice {
    pub best: Candidate,
    /// Candidate with the highest throughput in comparisons.
    pub fastest: Candidate,
    /// All candidates that fit.
    pub fitting: Vec<Candidate>,
    /// Sizes that were considered.
    pub sizes: Sizes,
    /// Modes that were considered.
    pub modes: Vec<Mode>,
    /// The best way with CUDA graphs, against the best one without.
    pub graphs: Graphs,
    /// Fewest samples of a micro-batch that the choice was made from, for batch statistics.
    pub least_samples: Option<u64>,
    /// Largest micro-batch that fits.
    largest: u64,
    /// True if a larger micro-batch was considered and does not fit.
    memory_limits: bool,
    /// Source of the times, where another device was measured.
    transfer: Option<String>,
}

impl Choice {
    /// Chooses with CUDA graphs where the goal allows them and they gain enough, else without; `None` when nothing fits.
    pub(super) fn find(
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        precision: Precision,
    ) -> Result<Option<Self>, PlanError> {
        let Some(mut plain) = Self::find_plain(device, workload, goal, precision)? else { return Ok(None) };
        let modes = candidates::recorded_modes(device, workload, goal, precision);
        if modes.is_empty() {
            return Ok(Some(plain));
        }
        let Some(recorded) = Self::among(Sizes::Measured, device, workload, goal, modes)? else {
            plain.graphs = Graphs::DoNotFit;
            return Ok(Some(plain));
        };
        let graphs = Graphs::Measured { gain: recorded.best.counted_per_s / plain.best.counted_per_s - 1.0 };
        let keeps_statistics = recorded.least_samples >= plain.least_samples;
        let is_taken = goal.allows_graphs() && graphs.are_worthwhile() && keeps_statistics;
        let taken = if is_taken { recorded } else { plain };
        Ok(Some(Self { graphs, ..taken }))
    }

    /// Chooses among the measured micro-batches, or among all sizes where this device was not measured or none of the
    /// measured ones fits; `None` when nothing fits.
    fn find_plain(
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        precision: Precision,
    ) -> Result<Option<Self>, PlanError> {
        let modes = candidates::modes(device, workload, goal, precision);
        let is_measured = |checkpointing: bool| {
            let mut same = modes.iter().filter(|mode| mode.checkpointing == checkpointing);
            same.any(|mode| baseline::batches_here(device, workload, *mode).is_some())
        };
        let all = |modes| Self::among(Sizes::All, device, workload, goal, modes);
        if is_measured(false) || is_measured(true) {
            let choice = Self::among(Sizes::Measured, device, workload, goal, modes.clone())?;
            let fits_measured =
                |choice: &Self| choice.fitting.iter().any(|candidate| is_measured(candidate.mode.checkpointing));
            if let Some(measured) = choice.filter(fits_measured) {
                // No measured size may have enough samples for batch statistics.
                let is_short = measured.least_samples.is_some_and(|least| least < STATISTICS_FLOOR);
                let other = if is_short { all(modes)? } else { None };
                return Ok(other.filter(|other| other.least_samples > measured.least_samples).or(Some(measured)));
            }
        }
        all(modes)
    }

    /// Chooses among these sizes and modes; `None` when nothing fits. With CUDA graphs that are not pinned, only sizes that
    /// were timed are considered.
    pub(super) fn among(
        sizes: Sizes,
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        modes: Vec<Mode>,
    ) -> Result<Option<Self>, PlanError> {
        let (mut fitting, mut considered, mut largest, mut transfer) = (Vec::new(), 0, 0, None);
        for &mode in &modes {
            let splits = candidates::splits(device, workload, goal, mode, sizes)?;
            considered = splits.first().map_or(0, |split| split.batch).max(considered);
            transfer = StepTime::new(device, workload, mode).transfer(device, workload);
            let is_estimate = |candidate: &Candidate| candidate.provenance != Provenance::Measured;
            let mut all = candidates::fitting(device, workload, goal, mode, sizes)?;
            largest = all.iter().map(|candidate| candidate.batch).max().unwrap_or(0).max(largest);
            all.retain(|candidate| !mode.cuda_graphs || goal.pins.cuda_graphs.is_some() || !is_estimate(candidate));
            fitting.extend(all);
        }
        let least_samples = statistics::least_samples(workload, &fitting);
        let counted = |candidate: &Candidate| candidate.counted_per_s;
        let Some((fastest, best)) = best(&fitting, least_samples, goal, counted) else { return Ok(None) };
        let (fastest, best) = (fastest.clone(), best.clone());
        let memory_limits = largest < considered;
        Ok(Some(Self {
            best,
            fastest,
            fitting,
            sizes,
            modes,
            graphs: Graphs::NotMeasured,
            least_samples,
            largest,
            memory_limits,
            transfer,
        }))
    }

    /// Returns true if [`find`](Self::find) would find a choice.
    pub(super) fn exists(device: &DeviceFacts, workload: &Workload, goal: &Goal, precision: Precision) -> bool {
        let Ok(splits) = split::splits(device, workload, goal) else { return false };
        let in_one_piece = largest_batch_in_one_piece(device, workload, precision);
        candidates::modes(device, workload, goal, precision).into_iter().any(|mode| {
            let memory = MemoryModel::new(device, workload, goal, mode);
            candidates::any_fits(&splits, &memory, in_one_piece)
        })
    }

    /// Split of the optimizer step by the best candidate.
    pub(super) fn schedule(&self, goal: &Goal) -> Schedule {
        let free = self.best.batch.saturating_mul(self.best.micro_steps).saturating_mul(goal.world_size);
        let global_batch = goal.global_batch.unwrap_or(free);
        let largest = || Share { first: 0, samples: global_batch.div_ceil(goal.world_size) };
        let is_uneven = !global_batch.is_multiple_of(goal.world_size);
        Schedule {
            global_batch,
            world_size: goal.world_size,
            share: goal.share.or_else(|| is_uneven.then(largest)),
            micro_batch: self.best.batch,
            drop_last: goal.drop_last,
        }
    }

    pub(super) fn batch_reason(&self, device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Reason {
        let Candidate { samples_per_s, provenance, .. } = self.fastest;
        let fastest = with_interval(samples_per_s, speed_interval(device, samples_per_s, provenance));
        let tolerance = goal.throughput_tolerance * 100.0;
        let mut why = if goal.whole_batch_loss && goal.global_batch.is_some() {
            "the whole global batch, because the loss couples its samples".to_owned()
        } else if let Some(target) = goal.target_utilization {
            let busy = self.best.utilization * 100.0;
            let found = if self.best.utilization < target { "fastest" } else { self.found(goal) };
            format!("the {found} to keep the device busy {:.0}% of the time: {busy:.0}% predicted", target * 100.0)
        } else if self.best.batch == self.fastest.batch {
            format!("the fastest predicted ({fastest} samples/s)")
        } else {
            let found = self.found(goal);
            format!(
                "the {found} within {tolerance:.0}% of the fastest predicted ({fastest} samples/s at {})",
                self.fastest.batch
            )
        };
        if self.memory_limits && self.best.batch == self.largest {
            why.push_str("; a larger one does not fit");
        } else if goal.global_batch.is_some() && self.best.micro_steps == 1 && !goal.whole_batch_loss {
            why.push_str("; the whole global batch at once");
        }
        if workload.batch_statistics {
            why.push_str("; batch statistics: another one changes the results");
        }
        if let Some(doubt) = self.decided_by_doubt(goal) {
            why =
                format!("{why}; estimates, which err by up to {:.1}%, are counted as that much slower", doubt * 100.0);
        }
        if let Some(transfer) = &self.transfer {
            why = format!("{why}; {transfer}");
        }
        let provenance = match self.best.provenance {
            Provenance::Derived => workload.provenance,
            measured => measured,
        };
        Reason { setting: Setting::BatchSize, provenance, why }
    }

    /// Which of the micro-batches that are fast enough is taken.
    fn found(&self, goal: &Goal) -> &'static str {
        let prefers_large = self.least_samples.is_some() && goal.global_batch.is_some();
        match self.best.least {
            _ if !prefers_large => "smallest",
            0..STATISTICS_ENOUGH => "largest",
            _ => "smallest from 32 samples on",
        }
    }

    /// Largest error that was deducted from estimates, if without it another micro-batch would be chosen.
    fn decided_by_doubt(&self, goal: &Goal) -> Option<f64> {
        let doubt = |candidate: &Candidate| 1.0 - candidate.counted_per_s / candidate.samples_per_s;
        let most = self.fitting.iter().map(doubt).fold(0.0, f64::max);
        let at_face_value = |candidate: &Candidate| candidate.samples_per_s;
        let (_, taken) = best(&self.fitting, self.least_samples, goal, at_face_value)?;
        let is_other = (taken.batch, taken.mode) != (self.best.batch, self.best.mode);
        (most > 0.0 && is_other).then_some(most)
    }

    pub(super) fn accumulation_reason(&self, goal: &Goal) -> Reason {
        let schedule = self.schedule(goal);
        let mut why = match goal.global_batch {
            None => "no global batch is asked for".to_owned(),
            Some(global) if schedule.share.is_some() => {
                format!("{} samples of global batch {global} on this rank", schedule.samples_per_rank())
            }
            Some(global) if goal.world_size > 1 => format!("global batch {global} on {} ranks", goal.world_size),
            Some(global) => format!("global batch {global}"),
        };
        let rest = schedule.samples_per_rank() % self.best.batch;
        if rest > 0 || goal.global_batch.is_some() {
            why = format!("{why} = {}", schedule.sum_on_rank());
        }
        Reason { setting: Setting::GradientAccumulation, provenance: Provenance::Derived, why }
    }

    pub(super) fn checkpointing_reason(&self, workload: &Workload) -> Reason {
        let (provenance, why) = if self.best.mode.checkpointing {
            self.gain_of_recomputing()
        } else if self.modes.iter().any(|mode| mode.checkpointing) {
            self.cost_of_recomputing()
        } else if self.best.mode.cuda_graphs {
            (Provenance::Derived, "the activations fit; recomputing was not timed with CUDA graphs".to_owned())
        } else if workload.sample.checkpointed_activations.is_none() {
            (Provenance::Derived, "its saving is neither declared nor measured".to_owned())
        } else {
            (Provenance::Derived, "it keeps more than it saves: Burn cannot recompute dropout".to_owned())
        };
        Reason { setting: Setting::GradientCheckpointing, provenance, why }
    }

    /// Reason for checkpointing: memory, or a higher measured speed, which hints at a disturbed measurement.
    fn gain_of_recomputing(&self) -> (Provenance, String) {
        let plain = |candidate: &&Candidate| !candidate.mode.checkpointing && candidate.batch == self.best.batch;
        match self.fitting.iter().find(plain) {
            Some(plain) => {
                let gain = (self.best.samples_per_s / plain.samples_per_s - 1.0) * 100.0;
                let why = if gain >= 0.5 {
                    format!("{gain:.0}% faster than without it, though it computes more: measure again on an idle GPU")
                } else if self.best.counted_per_s > plain.counted_per_s {
                    "its speed was measured, and the speed without it is estimated".to_owned()
                } else {
                    "with it the device is as busy as requested".to_owned()
                };
                (self.best.provenance, why)
            }
            None => (Provenance::Derived, "without it nothing as fast fits into the memory".to_owned()),
        }
    }

    /// Expected cost of checkpointing where it is not needed, with its provenance.
    fn cost_of_recomputing(&self) -> (Provenance, String) {
        let fits = "the activations fit";
        let same = |candidate: &&Candidate| candidate.mode.checkpointing && candidate.batch == self.best.batch;
        let Some(checkpointed) = self.fitting.iter().find(same) else { return (Provenance::Derived, fits.to_owned()) };
        let lost = (1.0 - checkpointed.samples_per_s / self.best.samples_per_s) * 100.0;
        let why = if lost < 0.5 {
            format!("{fits}; recomputing them would bring nothing")
        } else {
            format!("{fits}; recomputing them would cost about {lost:.0}%")
        };
        (checkpointed.provenance, why)
    }
}

/// Returns the fastest candidate by `speed`, and the best: the smallest that is fast enough for the goal, preferably without
/// checkpointing and even. A part of a step is never best where the whole step takes less time and memory.
///
/// With `least_samples`, for batch statistics, only micro-batches of so many samples count. Where the step is given, the
/// largest is best, up to [`STATISTICS_ENOUGH`] samples.
fn best<'c>(
    fitting: &'c [Candidate],
    least_samples: Option<u64>,
    goal: &Goal,
    speed: impl Fn(&Candidate) -> f64,
) -> Option<(&'c Candidate, &'c Candidate)> {
    let counts = |candidate: &&Candidate| candidate.least >= least_samples.unwrap_or(0);
    let fastest = fitting.iter().filter(counts).max_by(|a, b| speed(a).total_cmp(&speed(b)))?;
    let is_enough = |candidate: &&Candidate| match goal.target_utilization {
        Some(target) => candidate.utilization >= target,
        None => speed(candidate) >= speed(fastest) * (1.0 - goal.throughput_tolerance),
    };
    let enough = || fitting.iter().filter(counts).filter(is_enough);
    // A single micro-batch accumulates no gradients: the whole step at once may take less memory than its parts.
    let is_outdone = |part: &&Candidate| {
        let outdoes = |whole: &Candidate| {
            let is_less =
                whole.memory.total() < part.memory.total() && whole.mode.checkpointing <= part.mode.checkpointing;
            whole.micro_steps == 1 && is_less && speed(whole) >= speed(part)
        };
        part.micro_steps > 1 && enough().any(outdoes)
    };
    let prefers_large = least_samples.is_some() && goal.global_batch.is_some();
    let size = |&Candidate { batch, least, .. }: &Candidate| {
        let missing = if prefers_large { STATISTICS_ENOUGH.saturating_sub(least) } else { 0 };
        (missing, batch)
    };
    let best = enough().filter(|candidate| !is_outdone(candidate));
    let best = best.min_by_key(|candidate| (candidate.mode.checkpointing, !candidate.even, size(candidate)));
    Some((fastest, best.unwrap_or(fastest)))
}
