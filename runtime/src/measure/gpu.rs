//! Measuring on a GPU: memory by dry runs, time by running what fits with much to spare.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpu_tuned_core::measured::select::{Sample, ladder, refined, select};
use gpu_tuned_core::measured::{Measured, MeasuredMode, Mode, Way};
use gpu_tuned_core::{Bytes, Precision};

use super::bench::Tried;
use super::timed::Run;
use super::{MeasureError, Memory, Step};

/// The part of the free memory that may be reserved by steps that are run: the device must never run out of it.
const SHARE: f64 = 0.85;
/// What timing the steps of a mode may take, without compiling and tuning.
const BUDGET: Duration = Duration::from_secs(60);
/// What the repeats of a batch may take.
const SPEND: Duration = Duration::from_secs(2);
/// After this only powers of two are dry-run.
const CLIMBING: Duration = Duration::from_secs(10);
/// What dry runs between those of the ladder may take, in a mode.
const REFINING: Duration = Duration::from_secs(5);

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
    let (mut modes, mut kernels) = (BTreeMap::new(), Bytes::ZERO);
    for checkpointing in [false, true] {
        let mode = Mode { precision: plan.precision, checkpointing };
        let mut climb = Climb { trial, plan, mode, tried: Vec::new() };
        climb.up_to(most)?;
        climb.refine(most)?;
        climb.choose(most);
        climb.time(most)?;
        kernels = kernels.max(plan.at_open - trial.free()? - trial.held());
        modes.insert(mode, climb.kept()?);
    }
    Ok(Found { modes, kernels })
}

/// A mode, batch by batch upwards.
struct Climb<'c> {
    trial: &'c dyn Trial,
    plan: Plan<'c>,
    mode: Mode,
    /// In ascending order of the batches.
    tried: Vec<Tried>,
}

impl Climb<'_> {
    fn attempt(&mut self, batch: u64) -> Result<(), MeasureError> {
        let memory = self.trial.dry(Step::single(batch, self.mode.checkpointing))?;
        let tried = Tried { batch, memory: Some(memory), ..Tried::default() };
        (self.plan.progress)(self.mode, &tried);
        let at = self.tried.partition_point(|known| known.batch < batch);
        self.tried.insert(at, tried);
        Ok(())
    }

    /// Dry runs of larger and larger batches, until they would reserve more than `most`.
    fn up_to(&mut self, most: Bytes) -> Result<(), MeasureError> {
        let begin = Instant::now();
        for batch in ladder(self.plan.largest_batch) {
            // Each step of a recurrent network keeps the host busy for long.
            if begin.elapsed() > CLIMBING && !batch.is_power_of_two() {
                continue;
            }
            if self.expected(batch).is_some_and(|expected| expected > most) {
                break;
            }
            match self.attempt(batch) {
                Err(error) if self.tried.is_empty() => return Err(error),
                // A tensor of it is larger than the device takes: larger batches fail as well.
                Err(error) => {
                    tracing::info!("no larger batch: {error}");
                    break;
                }
                Ok(()) => {}
            }
        }
        Ok(())
    }

    /// Dry runs between those of the ladder, where the number of pages changes.
    fn refine(&mut self, most: Bytes) -> Result<(), MeasureError> {
        let begin = Instant::now();
        while begin.elapsed() < REFINING {
            let fitting = self.samples().into_iter().filter(|sample| sample.reserved <= most);
            let Some(batch) = refined(&fitting.collect::<Vec<_>>()) else { break };
            self.attempt(batch)?;
        }
        Ok(())
    }

    /// What a batch will reserve, on the line through the last two.
    fn expected(&self, batch: u64) -> Option<Bytes> {
        let [.., a, b] = self.tried.as_slice() else { return None };
        let bytes = |tried: &Tried| tried.reserved().unwrap_or_default().0 as f64;
        let slope = (bytes(b) - bytes(a)).max(0.0) / (b.batch - a.batch) as f64;
        Some(Bytes((bytes(b) + slope * (batch - b.batch) as f64) as u64))
    }

    fn samples(&self) -> Vec<Sample> {
        self.tried.iter().filter_map(Tried::sample).collect()
    }

    /// Chooses the points to keep; the largest that may be run is one of them, unless memory is told better without.
    fn choose(&mut self, most: Bytes) {
        let samples = self.samples();
        let largest = samples.iter().rfind(|sample| sample.reserved <= most).map(|sample| sample.batch);
        let pieces = select(&samples, Measured::MOST_POINTS, largest);
        for tried in &mut self.tried {
            tried.piece = pieces.iter().find(|piece| piece.batch == tried.batch).copied();
        }
    }

    /// Runs the steps of the points to keep that reserve at most `most`: the largest batch and the smallest first, should
    /// the budget end.
    fn time(&mut self, most: Bytes) -> Result<(), MeasureError> {
        let fits = |tried: &Tried| tried.reserved().is_some_and(|reserved| reserved <= most);
        let is_due = |at: &usize| self.tried[*at].piece.is_some() && fits(&self.tried[*at]);
        let mut order: Vec<usize> = (0..self.tried.len()).filter(is_due).collect();
        let largest = usize::from(!order.is_empty());
        order.rotate_right(largest);
        let mut left = BUDGET;
        for at in order {
            if !left.is_zero() {
                left = left.saturating_sub(self.time_at(at, most, SPEND.min(left))?);
            }
        }
        Ok(())
    }

    /// Runs the steps of a batch, if they fit with gradients added up too, and says how long it took.
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
        // Steps that were run added gradients up, too.
        tried.beyond = reserved.unwrap_or_default() - accumulating.reserved_bytes;
        Ok(took)
    }

    fn kept(mut self) -> Result<MeasuredMode, MeasureError> {
        let mut kept: Vec<Tried> = core::mem::take(&mut self.tried);
        kept.retain(|tried| tried.piece.is_some());
        let mut residual: f64 = 0.0;
        for tried in &mut kept {
            let accumulating = match tried.accumulating {
                Some(accumulating) => accumulating,
                None => self.trial.dry(Step::accumulating(tried.batch, self.mode.checkpointing))?,
            };
            tried.accumulating = Some(accumulating);
            if let Some(piece) = &mut tried.piece {
                let missed = tried.beyond.0 as f64 / accumulating.reserved_bytes.0.max(1) as f64;
                piece.residual = piece.residual.max(missed).min(1.0);
                residual = residual.max(piece.residual);
            }
        }
        let batch = kept.iter().map(|tried| (tried.batch, tried.point())).collect();
        Ok(MeasuredMode { way: Way::DryRun, residual: Some(residual.min(1.0)), time_residual: None, batch })
    }
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
