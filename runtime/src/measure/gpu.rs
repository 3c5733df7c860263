//! Measuring on a GPU: memory by dry runs, of steps beyond its memory too; time by running what fits with much to spare.

use std::collections::BTreeMap;
use std::time::Duration;

use gpu_tuned_core::measured::select::{ladder, select};
use gpu_tuned_core::measured::{Measured, MeasuredMode, Mode, Way};
use gpu_tuned_core::{Bytes, Precision};

use super::bench::Tried;
use super::timed::Run;
use super::{MeasureError, Memory, Step};

/// The part of the free memory that may be reserved by steps that are run: the device must never run out of it.
const SHARE: f64 = 0.85;
/// How far beyond the device's memory dry runs go, for GPUs with more.
const BEYOND: f64 = 1.5;
/// What timing the steps of a mode may take, without compiling and tuning.
const BUDGET: Duration = Duration::from_secs(60);
/// What the repeats of a batch may take.
const SPEND: Duration = Duration::from_secs(4);

/// Steps on a GPU.
pub(super) trait Trial {
    /// What steps would reserve.
    fn dry(&self, step: Step) -> Result<Memory, MeasureError>;

    /// Runs steps, with one micro-batch and with several.
    fn run(&self, step: Step, spend: Duration) -> Result<Run, MeasureError>;

    /// Memory that is free now.
    fn free(&self) -> Result<Bytes, MeasureError>;

    /// What the memory pools hold now.
    fn held(&self) -> Bytes;
}

/// What is measured.
#[derive(Clone, Copy)]
pub(super) struct Plan<'p> {
    pub(super) precision: Precision,
    /// No micro-batch is larger than a rank's part of the global batch.
    pub(super) largest_batch: u64,
    /// The GPU's memory.
    pub(super) total: Bytes,
    /// What was free when the GPU was opened, before anything was allocated.
    pub(super) at_open: Bytes,
    /// Told of every batch that was measured.
    pub(super) progress: &'p dyn Fn(Mode, &Tried),
}

/// What was measured.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) modes: BTreeMap<Mode, MeasuredMode>,
    /// Beyond the memory pools and the context, once steps of one batch had run.
    pub(super) kernels: Bytes,
}

/// Measures steps with and without checkpointing.
pub(super) fn modes(trial: &dyn Trial, plan: Plan<'_>) -> Result<Found, MeasureError> {
    let most = (trial.free()? + trial.held()).scaled(SHARE);
    let smallest = Step::single(1, false);
    if trial.dry(smallest)?.reserved_bytes <= most && trial.dry(Step::accumulating(1, false))?.reserved_bytes <= most {
        trial.run(smallest, Duration::ZERO)?;
    }
    let kernels = plan.at_open - trial.free()? - trial.held();
    let mut climbs = [false, true].map(|checkpointing| {
        let mode = Mode { precision: plan.precision, checkpointing };
        Climb { trial, plan, mode, tried: Vec::new(), missed: 0.0 }
    });
    for climb in &mut climbs {
        climb.up_to(most)?;
        climb.time(most)?;
    }
    // Tuning does run, and without enough memory it chooses badly for good: only when all that fits is tuned.
    for climb in &mut climbs {
        climb.up_to(plan.total.scaled(BEYOND))?;
    }
    let modes = climbs.into_iter().map(|climb| Ok((climb.mode, climb.kept()?)));
    Ok(Found { modes: modes.collect::<Result<_, MeasureError>>()?, kernels })
}

/// A mode, batch by batch upwards.
struct Climb<'c> {
    trial: &'c dyn Trial,
    plan: Plan<'c>,
    mode: Mode,
    tried: Vec<Tried>,
    /// How far steps went beyond their dry runs, as a share of these.
    missed: f64,
}

impl Climb<'_> {
    /// Dry runs of the batches after the last one that was tried, until they would reserve more than `most`.
    fn up_to(&mut self, most: Bytes) -> Result<(), MeasureError> {
        let begin = self.tried.last().map_or(0, |tried| tried.batch);
        for batch in ladder(self.plan.largest_batch).into_iter().filter(|batch| *batch > begin) {
            if self.expected(batch).is_some_and(|expected| expected > most) {
                break;
            }
            let memory = match self.trial.dry(Step::single(batch, self.mode.checkpointing)) {
                Ok(memory) => memory,
                Err(error) if self.tried.is_empty() => return Err(error),
                // A tensor of it is larger than the device takes: larger batches fail as well.
                Err(error) => {
                    tracing::info!("no larger batch: {error}");
                    break;
                }
            };
            let tried = Tried { batch, memory: Some(memory), ..Tried::default() };
            (self.plan.progress)(self.mode, &tried);
            self.tried.push(tried);
        }
        Ok(())
    }

    /// What a batch will reserve, on the line through the last two; at least what the last one does.
    fn expected(&self, batch: u64) -> Option<Bytes> {
        let last = self.tried.last()?.sample()?;
        let slope = self
            .tried
            .iter()
            .rev()
            .nth(1)
            .and_then(Tried::sample)
            .map_or(0.0, |before| (last.reserved - before.reserved).0 as f64 / (last.batch - before.batch) as f64);
        Some(last.reserved + Bytes((slope * (batch - last.batch) as f64) as u64))
    }

    /// Runs the steps that reserve at most `most`: the smallest batch and the largest first, should the budget end.
    fn time(&mut self, most: Bytes) -> Result<(), MeasureError> {
        let fits = |tried: &Tried| tried.reserved().is_some_and(|reserved| reserved <= most);
        let Some(largest) = self.tried.iter().rposition(fits) else { return Ok(()) };
        let between = (1..largest).filter(|at| self.tried[*at].batch.is_power_of_two());
        let mut order: Vec<usize> = [0, largest].into_iter().chain(between).collect();
        order.dedup();
        let mut left = BUDGET;
        for at in order {
            if !left.is_zero() {
                left = left.saturating_sub(self.time_at(at, most, SPEND.min(left))?);
            }
        }
        Ok(())
    }

    /// Runs the steps of a batch, if they fit with gradients added up too, and says what it took.
    fn time_at(&mut self, at: usize, most: Bytes, spend: Duration) -> Result<Duration, MeasureError> {
        let Self { trial, mode: Mode { checkpointing, .. }, .. } = *self;
        let tried = &mut self.tried[at];
        let accumulating = trial.dry(Step::accumulating(tried.batch, checkpointing))?;
        tried.accumulating = Some(accumulating);
        if accumulating.reserved_bytes > most {
            return Ok(Duration::ZERO);
        }
        let Run { times, took, reserved } = trial.run(Step::single(tried.batch, checkpointing), spend)?;
        tried.times = Some(times);
        (self.plan.progress)(self.mode, tried);
        // Gradients were added up there as well.
        let beyond = reserved.unwrap_or_default() - accumulating.reserved_bytes;
        self.missed = self.missed.max(beyond.0 as f64 / accumulating.reserved_bytes.0.max(1) as f64);
        Ok(took)
    }

    fn kept(self) -> Result<MeasuredMode, MeasureError> {
        let samples: Vec<_> = self.tried.iter().filter_map(Tried::sample).collect();
        let kept = select(&samples, Measured::MOST_POINTS);
        let mut batch = BTreeMap::new();
        for mut tried in self.tried.into_iter().filter(|tried| kept.batches.contains(&tried.batch)) {
            if tried.accumulating.is_none() {
                tried.accumulating = Some(self.trial.dry(Step::accumulating(tried.batch, self.mode.checkpointing))?);
            }
            batch.insert(tried.batch, tried.point());
        }
        Ok(MeasuredMode { way: Way::DryRun, residual: Some(kept.residual.max(self.missed).min(1.0)), batch })
    }
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
