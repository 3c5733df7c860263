use super::memory::{Mode, largest_batch_in_one_piece};
use super::time::StepTime;
use super::{MemoryEstimate, PlanError, Reason, Schedule};
use crate::device::DeviceFacts;
use crate::workload::Workload;
use crate::{Goal, Precision, Provenance, Setting};

/// The largest micro-batch considered when no global batch bounds it.
const LARGEST_FREE_BATCH: u64 = 1 << 16;
/// Up to this many micro-batches every split is considered, beyond it every doubling.
const EVERY_SPLIT: u64 = 64;
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
    /// Predicted share of the time in which the device computes.
    utilization: f64,
    even: bool,
}

/// The way that was taken, and what it was taken over.
pub(super) struct Choice {
    pub best: Candidate,
    /// The highest predicted throughput among what fits.
    fastest: Candidate,
    /// The largest micro-batch that fits, and whether a larger one was asked about.
    largest: u64,
    memory_limits: bool,
}

impl Choice {
    /// The choice, or `None` when nothing fits.
    pub(super) fn find(
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        precision: Precision,
    ) -> Result<Option<Self>, PlanError> {
        let splits = splits(goal)?;
        let mut fitting = Vec::new();
        let mut memory_limits = false;
        for checkpointing in checkpointing_modes(workload, goal) {
            let time = StepTime::of(device, workload, precision, checkpointing);
            for &(batch, samples) in &splits {
                let candidate =
                    Candidate::new(device, workload, goal, precision, checkpointing, (batch, samples), &time);
                if candidate.memory.fits() && batch <= largest_batch_in_one_piece(device, workload, precision) {
                    fitting.push(candidate);
                } else {
                    memory_limits = true;
                }
            }
        }
        let fastest = fitting.iter().max_by(|a, b| a.samples_per_s.total_cmp(&b.samples_per_s)).cloned();
        let Some(fastest) = fastest else { return Ok(None) };
        let largest = fitting.iter().map(|candidate| candidate.batch).max().unwrap_or(fastest.batch);
        let is_enough = |candidate: &Candidate| match goal.target_utilization {
            Some(target) => candidate.utilization >= target,
            None => candidate.samples_per_s >= fastest.samples_per_s * (1.0 - goal.throughput_tolerance),
        };
        let best = fitting
            .into_iter()
            .filter(is_enough)
            .min_by_key(|candidate| (candidate.checkpointing, !candidate.even, candidate.batch))
            .unwrap_or_else(|| fastest.clone());
        Ok(Some(Self { best, fastest, largest, memory_limits }))
    }

    pub(super) fn schedule(&self, goal: &Goal) -> Schedule {
        let free = self.best.batch * self.best.micro_steps * goal.world_size;
        Schedule {
            global_batch: goal.global_batch.unwrap_or(free),
            world_size: goal.world_size,
            micro_batch: self.best.batch,
            drop_last: goal.drop_last,
        }
    }

    pub(super) fn batch_reason(&self, workload: &Workload, goal: &Goal) -> Reason {
        if goal.pins.batch_size.is_some() {
            return declared(Setting::BatchSize);
        }
        let tolerance = goal.throughput_tolerance * 100.0;
        let mut why = if let Some(target) = goal.target_utilization {
            let busy = self.best.utilization * 100.0;
            let found = if self.best.utilization < target { "the fastest" } else { "the smallest" };
            format!("{found} to keep the device busy {:.0}% of the time: {busy:.0}% predicted", target * 100.0)
        } else if self.best.batch == self.fastest.batch {
            format!("the fastest predicted ({:.0} samples/s)", self.fastest.samples_per_s)
        } else {
            format!(
                "the smallest within {tolerance:.0}% of the fastest predicted ({:.0} samples/s at {})",
                self.fastest.samples_per_s, self.fastest.batch
            )
        };
        if self.memory_limits && self.best.batch == self.largest {
            why.push_str("; a larger one does not fit");
        } else if goal.global_batch.is_some() && self.best.micro_steps == 1 {
            why.push_str("; the whole global batch at once");
        }
        Reason { setting: Setting::BatchSize, provenance: workload.provenance, why }
    }

    pub(super) fn accumulation_reason(&self, goal: &Goal) -> Reason {
        let setting = Setting::GradientAccumulation;
        if goal.pins.gradient_accumulation.is_some() {
            return declared(setting);
        }
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
        Reason { setting, provenance: Provenance::Derived, why }
    }

    pub(super) fn checkpointing_reason(&self, workload: &Workload, goal: &Goal) -> Reason {
        let setting = Setting::GradientCheckpointing;
        if goal.pins.gradient_checkpointing.is_some() {
            return declared(setting);
        }
        let why = if self.best.checkpointing {
            "without it nothing as fast fits into the memory"
        } else if workload.sample.checkpointed_activations.is_none() {
            "what it would save is not known"
        } else if !saves(workload) {
            "it would keep more than it saves: Burn cannot recompute dropout"
        } else {
            "the activations fit; recomputing them would cost about 4%"
        };
        Reason { setting, provenance: Provenance::Derived, why: why.to_owned() }
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
             (derived). It is left as it is, because it is part of what the run means",
            device.name
        )]
    }
}

impl Candidate {
    fn new(
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        precision: Precision,
        checkpointing: bool,
        (batch, samples): (u64, u64),
        time: &StepTime,
    ) -> Self {
        let micro_steps = samples.div_ceil(batch);
        let mode = Mode { precision, checkpointing, accumulates: micro_steps > 1 };
        Self {
            batch,
            micro_steps,
            checkpointing,
            memory: MemoryEstimate::at(device, workload, goal, mode, batch),
            samples_per_s: time.samples_per_s(samples, micro_steps) * goal.world_size as f64,
            utilization: time.utilization(batch),
            even: samples.is_multiple_of(batch),
        }
    }
}

fn declared(setting: Setting) -> Reason {
    Reason { setting, provenance: Provenance::Declared, why: "set in the config".to_owned() }
}

/// Checkpointing off, and on where its cost is known; or what the user fixed.
pub(super) fn checkpointing_modes(workload: &Workload, goal: &Goal) -> Vec<bool> {
    match goal.pins.gradient_checkpointing {
        Some(fixed) => vec![fixed],
        None if saves(workload) => vec![false, true],
        None => vec![false],
    }
}

/// Whether checkpointing keeps less: with dropout Burn's keeps more, because its random masks cannot be recomputed.
fn saves(workload: &Workload) -> bool {
    let checkpointed = workload.sample.checkpointed_activations;
    checkpointed.is_some_and(|checkpointed| checkpointed < workload.sample.activations)
}

/// The ways to cut one rank's share of an optimizer step: `(micro-batch, samples of the step)`.
pub(super) fn splits(goal: &Goal) -> Result<Vec<(u64, u64)>, PlanError> {
    let pins = &goal.pins;
    let Some(samples) = rank_share(goal)? else {
        let micro_steps = pins.gradient_accumulation.unwrap_or(1);
        let powers = (0..).map(|power| 1 << power).take_while(|batch| *batch <= LARGEST_FREE_BATCH);
        let batches: Vec<u64> = pins.batch_size.map_or_else(|| powers.collect(), |batch| vec![batch]);
        let on_all_ranks = |samples: u64| samples.checked_mul(goal.world_size).filter(|samples| *samples > 0);
        let samples = |batch: u64| batch.checked_mul(micro_steps).filter(|samples| on_all_ranks(*samples).is_some());
        let splits: Vec<_> = batches.into_iter().filter_map(|batch| Some((batch, samples(batch)?))).collect();
        return if splits.is_empty() { Err(no_step(goal)) } else { Ok(splits) };
    };
    let conflict =
        || PlanError::Pins { batch_size: pins.batch_size, gradient_accumulation: pins.gradient_accumulation, samples };
    match (pins.batch_size, pins.gradient_accumulation) {
        (Some(batch), steps) => {
            let agrees = (1..=samples).contains(&batch) && steps.is_none_or(|steps| steps == samples.div_ceil(batch));
            if agrees { Ok(vec![(batch, samples)]) } else { Err(conflict()) }
        }
        (None, Some(steps)) => {
            let agrees = (1..=samples).contains(&steps) && samples.div_ceil(samples.div_ceil(steps)) == steps;
            if agrees { Ok(vec![(samples.div_ceil(steps), samples)]) } else { Err(conflict()) }
        }
        (None, None) => Ok(all_splits(samples)),
    }
}

fn no_step(goal: &Goal) -> PlanError {
    let ranks = goal.world_size;
    let message = format!(
        "batch_size x gradient_accumulation on {ranks} ranks must make between 1 and 2^64 samples: leave one to the planner"
    );
    PlanError::Goal { message }
}

/// For each number of micro-batches the smallest micro-batch that gets there: a larger one takes more memory for the
/// same number of launches.
fn all_splits(samples: u64) -> Vec<(u64, u64)> {
    let doublings = core::iter::successors(Some(EVERY_SPLIT * 2), |steps| steps.checked_mul(2));
    let counts = (1..=EVERY_SPLIT).chain(doublings).take_while(|steps| *steps < samples).chain([samples]);
    let mut all: Vec<_> = counts.map(|steps| (samples.div_ceil(steps), samples)).collect();
    all.dedup();
    all
}

/// Samples of an optimizer step on one rank, when a global batch is asked for.
fn rank_share(goal: &Goal) -> Result<Option<u64>, PlanError> {
    let Some(global_batch) = goal.global_batch else { return Ok(None) };
    if global_batch.is_multiple_of(goal.world_size) {
        return Ok(Some(global_batch / goal.world_size));
    }
    let small = (1..=global_batch.isqrt()).filter(|ranks| global_batch.is_multiple_of(*ranks));
    let divisors: Vec<u64> = small.flat_map(|ranks| [ranks, global_batch / ranks]).collect();
    let below = divisors.iter().copied().filter(|ranks| *ranks < goal.world_size).max();
    let above = divisors.iter().copied().filter(|ranks| *ranks > goal.world_size).min();
    let would_do = below.into_iter().chain(above).collect();
    Err(PlanError::WorldSize { global_batch, world_size: goal.world_size, would_do })
}
