use super::memory::{MemoryModel, largest_batch_in_one_piece};
use super::pools::Pools;
use super::split::{self, Split};
use super::time::StepTime;
use super::{MemoryEstimate, PlanError, Reason, Schedule};
use crate::device::DeviceFacts;
use crate::measured::Mode;
use crate::workload::Workload;
use crate::{Goal, Precision, Provenance, Setting, three_digits};

/// A gain that is worth telling the user about.
const WORTHWHILE_GAIN: f64 = 1.05;

/// One way to run an optimizer step.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub batch: u64,
    pub micro_steps: u64,
    pub checkpointing: bool,
    pub memory: MemoryEstimate,
    pub samples_per_s: f64,
    /// What counts in comparisons: the same, less what such estimates were found to err by.
    pub counted_per_s: f64,
    /// What stands behind the throughput.
    pub provenance: Provenance,
    /// Predicted share of the time in which the device computes.
    pub utilization: f64,
    /// Whether the micro-batches of a step are all of this size; where no global batch is asked for, whether this one is a
    /// power of two.
    pub even: bool,
}

/// The way that was taken, and what it was taken over.
pub(super) struct Choice {
    pub best: Candidate,
    /// The highest predicted throughput among what fits, estimates counted for less by what they were found to err by.
    pub fastest: Candidate,
    /// All that fits.
    pub fitting: Vec<Candidate>,
    /// Whether checkpointing was considered.
    recomputes: bool,
    /// The largest micro-batch that fits, and whether a larger one was asked about.
    largest: u64,
    memory_limits: bool,
    /// Where the times were measured, if not here.
    transfer: Option<String>,
}

impl Choice {
    /// The choice, or `None` when nothing fits.
    pub(super) fn find(
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        precision: Precision,
    ) -> Result<Option<Self>, PlanError> {
        let splits = split::splits(device, workload, goal)?;
        let in_one_piece = largest_batch_in_one_piece(device, workload, precision);
        let mut fitting = Vec::with_capacity(2 * splits.len());
        let mut transfer = None;
        let modes = modes(device, workload, goal, precision);
        for &mode in &modes {
            let time = StepTime::of(device, workload, mode);
            let memory = MemoryModel::of(device, workload, goal, mode);
            transfer = time.transfer(workload);
            if any_fits(&splits, &memory, in_one_piece) {
                fitting.extend(all_that_fit(&splits, goal.global_batch.is_some(), |split| {
                    let memory = memory.at(split.batch, split.micro_steps() > 1);
                    let fits = memory.fits() && split.batch <= in_one_piece;
                    fits.then(|| Candidate::new(goal, mode.checkpointing, split, memory, &time))
                }));
            }
        }
        let Some((fastest, best)) = best(&fitting, goal, |candidate| candidate.counted_per_s) else { return Ok(None) };
        let (fastest, best) = (fastest.clone(), best.clone());
        let largest = fitting.iter().map(|candidate| candidate.batch).max().unwrap_or(fastest.batch);
        let memory_limits = splits.first().is_some_and(|asked| largest < asked.batch);
        let recomputes = modes.iter().any(|mode| mode.checkpointing);
        Ok(Some(Self { best, fastest, fitting, recomputes, largest, memory_limits, transfer }))
    }

    /// Whether [`find`](Self::find) would find one.
    pub(super) fn exists(device: &DeviceFacts, workload: &Workload, goal: &Goal, precision: Precision) -> bool {
        let Ok(splits) = split::splits(device, workload, goal) else { return false };
        let in_one_piece = largest_batch_in_one_piece(device, workload, precision);
        modes(device, workload, goal, precision).into_iter().any(|mode| {
            let memory = MemoryModel::of(device, workload, goal, mode);
            any_fits(&splits, &memory, in_one_piece)
        })
    }

    pub(super) fn schedule(&self, goal: &Goal) -> Schedule {
        let free = self.best.batch.saturating_mul(self.best.micro_steps).saturating_mul(goal.world_size);
        Schedule {
            global_batch: goal.global_batch.unwrap_or(free),
            world_size: goal.world_size,
            micro_batch: self.best.batch,
            drop_last: goal.drop_last,
        }
    }

    pub(super) fn batch_reason(&self, workload: &Workload, goal: &Goal) -> Reason {
        let tolerance = goal.throughput_tolerance * 100.0;
        let mut why = if let Some(target) = goal.target_utilization {
            let busy = self.best.utilization * 100.0;
            let found = if self.best.utilization < target { "the fastest" } else { "the smallest" };
            format!("{found} to keep the device busy {:.0}% of the time: {busy:.0}% predicted", target * 100.0)
        } else if self.best.batch == self.fastest.batch {
            format!("the fastest predicted ({} samples/s)", three_digits(self.fastest.samples_per_s))
        } else {
            format!(
                "the smallest within {tolerance:.0}% of the fastest predicted ({} samples/s at {})",
                three_digits(self.fastest.samples_per_s),
                self.fastest.batch
            )
        };
        if self.memory_limits && self.best.batch == self.largest {
            why.push_str("; a larger one does not fit");
        } else if goal.global_batch.is_some() && self.best.micro_steps == 1 {
            why.push_str("; the whole global batch at once");
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

    /// By what share estimates were counted for less, if another micro-batch would have been taken without.
    fn decided_by_doubt(&self, goal: &Goal) -> Option<f64> {
        let doubt = |candidate: &Candidate| 1.0 - candidate.counted_per_s / candidate.samples_per_s;
        let most = self.fitting.iter().map(doubt).fold(0.0, f64::max);
        let at_face_value = |candidate: &Candidate| candidate.samples_per_s;
        let (_, taken) = best(&self.fitting, goal, at_face_value)?;
        let is_other = (taken.batch, taken.checkpointing) != (self.best.batch, self.best.checkpointing);
        (most > 0.0 && is_other).then_some(most)
    }

    pub(super) fn accumulation_reason(&self, goal: &Goal) -> Reason {
        let schedule = self.schedule(goal);
        let mut why = match goal.global_batch {
            None => "no global batch is asked for".to_owned(),
            Some(global) if goal.world_size > 1 => format!("global batch {global} on {} ranks", goal.world_size),
            Some(global) => format!("global batch {global}"),
        };
        let rest = schedule.samples_per_rank() % self.best.batch;
        if rest > 0 {
            why = format!("{why} = {} x {} + {rest}", self.best.micro_steps - 1, self.best.batch);
        } else if goal.global_batch.is_some() {
            why = format!("{why} = {} x {}", self.best.micro_steps, self.best.batch);
        }
        Reason { setting: Setting::GradientAccumulation, provenance: Provenance::Derived, why }
    }

    pub(super) fn checkpointing_reason(&self, workload: &Workload) -> Reason {
        let (provenance, why) = if self.best.checkpointing {
            self.gain_of_recomputing()
        } else if self.recomputes {
            self.cost_of_recomputing()
        } else if workload.sample.checkpointed_activations.is_none() {
            (Provenance::Derived, "what it would save is neither declared nor measured".to_owned())
        } else {
            (Provenance::Derived, "it would keep more than it saves: Burn cannot recompute dropout".to_owned())
        };
        Reason { setting: Setting::GradientCheckpointing, provenance, why }
    }

    /// Why checkpointing is taken: for the memory, or because it was found to be faster, which it should not be.
    fn gain_of_recomputing(&self) -> (Provenance, String) {
        let plain = |candidate: &&Candidate| !candidate.checkpointing && candidate.batch == self.best.batch;
        match self.fitting.iter().find(plain) {
            Some(plain) => {
                let gain = (self.best.samples_per_s / plain.samples_per_s - 1.0) * 100.0;
                let why = if gain >= 0.5 {
                    format!(
                        "{gain:.0}% faster than without it, though it computes more: if something else ran while it was \
                         measured, measure it again"
                    )
                } else if self.best.counted_per_s > plain.counted_per_s {
                    "its speed is better known than that without it, which may be less than is estimated".to_owned()
                } else {
                    "with it the device is as busy as is asked for".to_owned()
                };
                (self.best.provenance, why)
            }
            None => (Provenance::Derived, "without it nothing as fast fits into the memory".to_owned()),
        }
    }

    /// What checkpointing is expected to cost where it is not needed, and what stands behind that.
    fn cost_of_recomputing(&self) -> (Provenance, String) {
        let fits = "the activations fit";
        let same = |candidate: &&Candidate| candidate.checkpointing && candidate.batch == self.best.batch;
        let Some(checkpointed) = self.fitting.iter().find(same) else { return (Provenance::Derived, fits.to_owned()) };
        let lost = (1.0 - checkpointed.samples_per_s / self.best.samples_per_s) * 100.0;
        let why = if lost < 0.5 {
            format!("{fits}; recomputing them would bring nothing")
        } else {
            format!("{fits}; recomputing them would cost about {lost:.0}%")
        };
        (checkpointed.provenance, why)
    }

    /// What a larger global batch would bring, when this one is too small to fill the device.
    pub(super) fn advice(
        &self,
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        precision: Precision,
    ) -> Vec<String> {
        let (Some(global), true) = (goal.global_batch, self.best.micro_steps == 1 && goal.pins.is_empty()) else {
            return Vec::new();
        };
        let free = Goal { global_batch: None, ..goal.clone() };
        let Ok(Some(unbound)) = Self::find(device, workload, &free, precision) else { return Vec::new() };
        let gain = unbound.best.samples_per_s / self.best.samples_per_s;
        let larger = unbound.best.batch * goal.world_size;
        if larger <= global || gain < WORTHWHILE_GAIN {
            return Vec::new();
        }
        vec![format!(
            "a global batch of {global} does not fill {}: {larger} would run about {gain:.1}x as many samples per second \
             ({}). It is left as it is, because it is part of what the run means",
            device.name, unbound.best.provenance
        )]
    }
}

impl Candidate {
    fn new(goal: &Goal, checkpointing: bool, split: Split, memory: MemoryEstimate, time: &StepTime) -> Self {
        let Split { batch, samples } = split;
        let samples_per_s = time.samples_per_s(split) * goal.world_size as f64;
        Self {
            batch,
            micro_steps: split.micro_steps(),
            checkpointing,
            memory,
            samples_per_s,
            counted_per_s: samples_per_s * (1.0 - time.doubt(batch)),
            provenance: time.provenance(batch),
            utilization: time.utilization(split),
            even: if goal.global_batch.is_some() { samples.is_multiple_of(batch) } else { batch.is_power_of_two() },
        }
    }
}

/// The fastest by `speed`, and what is taken: the smallest that is enough for the goal, rather without checkpointing, and
/// rather even; no part of a step that the whole step outdoes in both time and memory.
fn best<'c>(
    fitting: &'c [Candidate],
    goal: &Goal,
    speed: impl Fn(&Candidate) -> f64,
) -> Option<(&'c Candidate, &'c Candidate)> {
    let fastest = fitting.iter().max_by(|a, b| speed(a).total_cmp(&speed(b)))?;
    let is_enough = |candidate: &&Candidate| match goal.target_utilization {
        Some(target) => candidate.utilization >= target,
        None => speed(candidate) >= speed(fastest) * (1.0 - goal.throughput_tolerance),
    };
    let enough = || fitting.iter().filter(is_enough);
    // Gradients of one micro-batch are not added up: the whole step at once may take less than parts of it.
    let is_outdone = |part: &&Candidate| {
        let outdoes = |whole: &Candidate| {
            let is_less = whole.memory.total() < part.memory.total() && whole.checkpointing <= part.checkpointing;
            whole.micro_steps == 1 && is_less && speed(whole) >= speed(part)
        };
        part.micro_steps > 1 && enough().any(outdoes)
    };
    let best = enough().filter(|candidate| !is_outdone(candidate));
    let best = best.min_by_key(|candidate| (candidate.checkpointing, !candidate.even, candidate.batch));
    Some((fastest, best.unwrap_or(fastest)))
}

/// The candidates of the splits, largest first, that `fitting` lets pass; with `between` also the largest that fits
/// between one that does and one that does not.
fn all_that_fit(splits: &[Split], between: bool, fitting: impl Fn(Split) -> Option<Candidate>) -> Vec<Candidate> {
    let mut found = Vec::with_capacity(splits.len());
    let mut misfit = None;
    for &split in splits {
        match fitting(split) {
            Some(candidate) => {
                let larger = misfit.take().filter(|_| between);
                found.extend(larger.and_then(|larger| split.largest_below(larger, &fitting)));
                found.push(candidate);
            }
            None => misfit = Some(split),
        }
    }
    found
}

/// Whether any of the splits, largest first, fits.
pub(super) fn any_fits(splits: &[Split], memory: &MemoryModel<'_>, in_one_piece: u64) -> bool {
    let fits = |split: &Split| split.batch <= in_one_piece && memory.at(split.batch, split.micro_steps() > 1).fits();
    frugal(splits, memory).any(fits)
}

/// Those of the splits, largest first, of which one needs the least memory. By costs the smallest micro-batch takes the least,
/// but for a whole step at once, which needs no second set of gradients. Where memory was measured it may be any: pages change
/// in jumps, and what lies between points is raised by what lines err by.
pub(super) fn frugal<'s>(splits: &'s [Split], memory: &MemoryModel<'_>) -> impl Iterator<Item = &'s Split> + use<'s> {
    let step = if memory.is_measured() { 1 } else { splits.len().saturating_sub(1).max(1) };
    // The smallest first: it is the likeliest to fit.
    splits.iter().rev().step_by(step)
}

/// Without checkpointing, and with it where it keeps less by what is known, or its memory was measured; or what the user fixed.
pub(super) fn modes(device: &DeviceFacts, workload: &Workload, goal: &Goal, precision: Precision) -> Vec<Mode> {
    let mode = |checkpointing| Mode::new(precision, checkpointing).allowing(goal.pins.allow_tf32(), device);
    let is_measured = || Pools::of(device, workload, goal, mode(true)).is_some();
    match goal.pins.gradient_checkpointing {
        Some(fixed) => vec![mode(fixed)],
        None if saves(workload) || is_measured() => vec![mode(false), mode(true)],
        None => vec![mode(false)],
    }
}

/// Whether checkpointing keeps less: with dropout Burn's keeps more, because its random masks cannot be recomputed.
fn saves(workload: &Workload) -> bool {
    let checkpointed = workload.sample.checkpointed_activations;
    checkpointed.is_some_and(|checkpointed| checkpointed < workload.sample.activations)
}
