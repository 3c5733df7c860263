//! Measuring on a GPU: memory by dry runs, time by running what fits with much to spare.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::select::{MATTERS, Piece, Sample, Selected, ladder, refined, select, time_residual};
use gpu_tuned_core::measured::{Measured, MeasuredMode, Mode, Point, Way};

use super::bench::Tried;
use super::timed::Run;
use super::{MeasureError, Memory, Step};

/// The part of the free memory that may be reserved by steps that are run: the device must never run out of it.
const SHARE: f64 = 0.85;
/// The part of what may be reserved up to which gradients that are added up need no dry run first: they take no more than the
/// rest of a step.
const FAR_FROM_IT: f64 = 0.5;
/// Where half a batch takes so much of its time, launches bound it.
const LAUNCHES: f64 = 0.9;
/// What timing the steps of a mode may take, without compiling and tuning.
const BUDGET: Duration = Duration::from_secs(60);
/// What the repeats of a batch may take.
const SPEND: Duration = Duration::from_secs(2);
/// After so long only powers of these are dry-run, and the largest batch: where every batch has its own kernels to tune,
/// as in recurrent networks, each takes half a minute to four.
const CLIMBING: [(Duration, u64); 2] = [(Duration::from_secs(10), 2), (Duration::from_secs(60), 4)];
/// As late, those below such a part of the largest batch that is sure to fit wait until what reserves more is known,
const TIMED: u64 = 4;
/// and what reserves no more than this is left out.
const LITTLE: Bytes = Bytes::from_mib(512);
/// The most batches that are dry-run in a mode.
const MOST: usize = 32;
/// What dry runs between those of the ladder may take, in a mode,
const REFINING: Duration = Duration::from_secs(60);
/// of which each counts for no more than this: what it takes longer goes into compiling and tuning, which others need not do again;
const EACH: Duration = Duration::from_secs(5);
/// and what they may take with that. After the first minute only those are taken whose kernels are there: CubeCL tunes for all
/// sizes up to the next power of two at once.
const TUNING: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(240)];

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

    /// The time.
    fn now(&self) -> Instant;
}

/// What is measured.
#[derive(Clone, Copy)]
pub(super) struct Plan<'p> {
    /// No micro-batch is larger than a rank's part of the global batch.
    pub(super) largest_batch: u64,
    /// A rank's part of the global batch, if there is one.
    pub(super) global: Option<u64>,
    /// What was free when the GPU was opened, before anything was allocated.
    pub(super) at_open: Bytes,
    /// Told of every batch that was measured.
    pub(super) progress: &'p dyn Fn(Mode, &Tried),
}

/// What was measured of a mode.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) mode: MeasuredMode,
    /// Beyond the memory pools and the context, once its steps had run.
    pub(super) kernels: Bytes,
}

/// Measures steps with or without checkpointing.
pub(super) fn measured(trial: &dyn Trial, plan: Plan<'_>, mode: Mode) -> Result<Found, MeasureError> {
    let most = (trial.free()? + trial.held()).scaled(SHARE);
    let mut climb = Climb { trial, plan, mode, tried: Vec::new() };
    climb.up_to(most)?;
    climb.refine(most)?;
    climb.time(most)?;
    let kernels = plan.at_open - trial.free()? - trial.held();
    Ok(Found { mode: climb.kept()?, kernels })
}

/// Whether a batch of the ladder is dry-run after so long.
fn is_rung(batch: u64, taken: Duration) -> bool {
    let is_late = |(after, _): &&(Duration, u64)| taken > *after;
    let is_power = |of: u64| batch.is_power_of_two() && batch.trailing_zeros().is_multiple_of(of.trailing_zeros());
    CLIMBING.iter().rev().find(is_late).is_none_or(|(_, of)| is_power(*of))
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

    /// Dry runs of larger and larger batches, until they would reserve more than `most`; then of smaller ones that waited.
    fn up_to(&mut self, most: Bytes) -> Result<(), MeasureError> {
        let (trial, begin) = (self.trial, self.trial.now());
        let taken = || trial.now().duration_since(begin);
        let (mut waiting, mut last) = (Vec::new(), Duration::ZERO);
        for batch in ladder(self.plan.largest_batch) {
            // As late as it will be when this one has taken as long as the last.
            let is_rung = is_rung(batch, taken() + last) || self.is_next(most);
            if batch < self.plan.largest_batch && !is_rung {
                continue;
            }
            if taken() > CLIMBING[0].0 && batch.saturating_mul(TIMED) < self.far(most) {
                waiting.push(batch);
                continue;
            }
            if self.expected(batch).is_some_and(|expected| expected > most) {
                break;
            }
            let before = trial.now();
            if self.tried.is_empty() {
                self.attempt(batch)?;
            } else if !self.takes(batch) {
                break;
            }
            last = trial.now().duration_since(before);
        }
        for batch in waiting.into_iter().rev() {
            if is_rung(batch, taken()) && self.above(batch).is_none_or(|more| more > LITTLE) {
                self.takes(batch);
            }
        }
        Ok(())
    }

    /// Dry-runs a batch and says whether that can be done: a tensor of it may be larger than the device takes, as it then is in
    /// larger batches.
    fn takes(&mut self, batch: u64) -> bool {
        let outcome = self.attempt(batch);
        if let Err(error) = &outcome {
            tracing::info!("batch {batch} is left out: {error}");
        }
        outcome.is_ok()
    }

    /// The largest batch that reserves no more than `most` if memory grows no faster than the batch: tuning of its kernels will
    /// lack none.
    fn far(&self, most: Bytes) -> u64 {
        let Some((last, reserved)) = self.tried.last().and_then(|last| Some((last, last.reserved()?))) else {
            return 0;
        };
        let times = most.0 as f64 / reserved.0.max(1) as f64;
        ((last.batch as f64 * times) as u64).min(self.plan.largest_batch)
    }

    /// Whether the next batch is to be as near as there is one: what is known of one alone does not allow to leave any out.
    fn is_next(&self, most: Bytes) -> bool {
        self.tried.len() == 1 && CLIMBING.iter().any(|(_, of)| self.far(most) < *of)
    }

    /// What the next larger batch reserves.
    fn above(&self, batch: u64) -> Option<Bytes> {
        self.tried.iter().find(|tried| tried.batch > batch)?.reserved()
    }

    /// Dry runs between those of the ladder, where the number of pages changes.
    fn refine(&mut self, most: Bytes) -> Result<(), MeasureError> {
        let (mut counted, mut taken) = (Duration::ZERO, Duration::ZERO);
        while counted < REFINING && taken < TUNING[1] && self.tried.len() < MOST {
            let kernels = |batch: u64| batch.next_power_of_two();
            let is_tuned = |batch: u64| self.tried.iter().any(|tried| kernels(tried.batch) == kernels(batch));
            let is_worth = |batch: u64| taken <= TUNING[0] || is_tuned(batch);
            let Some(batch) = refined(&self.samples(), most, is_worth) else { break };
            let begin = self.trial.now();
            self.attempt(batch)?;
            let took = self.trial.now().duration_since(begin);
            (counted, taken) = (counted + took.min(EACH), taken + took);
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

    /// Runs the steps of powers of two that reserve at most `most`, and of all samples at once: the largest batch first, each
    /// as a rule half as long as the one before, until launches bound them or the budget ends.
    fn time(&mut self, most: Bytes) -> Result<(), MeasureError> {
        let fits = |tried: &Tried| tried.reserved().is_some_and(|reserved| reserved <= most);
        let is_even = |batch: u64| batch.is_power_of_two() || batch == self.plan.largest_batch;
        let is_due = |at: &usize| fits(&self.tried[*at]) && is_even(self.tried[*at].batch);
        let order: Vec<usize> = (0..self.tried.len()).rev().filter(is_due).collect();
        let mut left = BUDGET;
        for at in order {
            if left.is_zero() || self.is_bound_by_launches() {
                break;
            }
            left = left.saturating_sub(self.time_at(at, most, SPEND.min(left))?);
        }
        Ok(())
    }

    /// Whether the smallest batch that was timed takes hardly less than one of twice its size: so do smaller ones.
    fn is_bound_by_launches(&self) -> bool {
        let mut timed = self.tried.iter().filter_map(|tried| Some((tried.batch, tried.times?.micro_step_ms)));
        let Some((smallest, ms)) = timed.next() else { return false };
        timed.find(|(batch, _)| *batch >= 2 * smallest).is_some_and(|(_, twice)| ms >= LAUNCHES * twice)
    }

    /// Runs the steps of a batch, if they fit with gradients added up too, and says how long it took.
    fn time_at(&mut self, at: usize, most: Bytes, spend: Duration) -> Result<Duration, MeasureError> {
        let Self { trial, mode: Mode { checkpointing, .. }, .. } = *self;
        let tried = &mut self.tried[at];
        if tried.reserved().is_none_or(|reserved| reserved > most.scaled(FAR_FROM_IT)) {
            let accumulating = trial.dry(Step::accumulating(tried.batch, checkpointing))?;
            tried.accumulating = Some(accumulating);
            if accumulating.reserved_bytes > most {
                return Ok(Duration::ZERO);
            }
        }
        let Run { times, took, reserved } = trial.run(Step::single(tried.batch, checkpointing), spend)?;
        (tried.times, tried.ran) = (Some(times), reserved);
        (self.plan.progress)(self.mode, tried);
        Ok(took)
    }

    /// The points to keep.
    fn kept(mut self) -> Result<MeasuredMode, MeasureError> {
        let (samples, global) = (self.samples(), self.plan.global);
        let Selected { batches, pieces, mut pages } = select(&samples, Measured::MOST_POINTS, global);
        let mut batch = BTreeMap::new();
        for at in &batches {
            let piece = pieces.iter().find(|piece| piece.batch == *at).copied();
            let (point, missed) = self.point(*at, piece)?;
            if let Some((_, told)) = pages.range_mut(..=at).next_back() {
                told.residual = told.residual.max(missed).min(1.0);
            }
            batch.insert(*at, point);
        }
        let residuals =
            batch.values().filter_map(|point| point.residual).chain(pages.values().map(|told| told.residual));
        let residual = residuals.reduce(f64::max);
        let time_residual = time_residual(&samples, &batches, global).map(|error| error.min(1.0));
        Ok(MeasuredMode { way: Way::DryRun, residual, time_residual, pages, batch })
    }

    /// What is known of a batch that was tried, with the line through it, if there is one; and how much more steps held that
    /// were run than their dry run, as a share.
    fn point(&mut self, batch: u64, piece: Option<Piece>) -> Result<(Point, f64), MeasureError> {
        let Self { trial, mode: Mode { checkpointing, .. }, .. } = *self;
        let tried = self.tried.iter_mut().find(|tried| tried.batch == batch).expect("BUG: what is kept was tried");
        // Equal dry runs may differ by a page, where what is needed ends near the end of one.
        let again = trial.dry(Step::single(batch, checkpointing))?;
        tried.memory = tried.memory.filter(|memory| memory.reserved_bytes >= again.reserved_bytes).or(Some(again));
        let accumulating = match tried.accumulating {
            Some(accumulating) => accumulating,
            None => trial.dry(Step::accumulating(batch, checkpointing))?,
        };
        let missed = tried.ran.unwrap_or_default() - accumulating.reserved_bytes;
        let missed = missed.0 as f64 / accumulating.reserved_bytes.max(MATTERS).0 as f64;
        tried.accumulating = Some(accumulating);
        tried.piece = piece.map(|piece| Piece { residual: piece.residual.max(missed).min(1.0), ..piece });
        Ok((tried.point(), missed))
    }
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
