//! Measuring on a GPU: memory by dry runs, time by running micro-batches that leave much memory free.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::{MOST_MICRO_BATCHES, MeasuredMode, MeasurementMethod, Mode, micro_batches};

use super::bench::Tried;
use super::timed::Run;
use super::{MeasureError, Memory, Step};

/// Fraction of the free memory that executed steps may reserve: the device must never run out of memory.
const SHARE: f64 = 0.85;
/// Time of half a micro-batch over that of a whole one, above which launches dominate both.
const LAUNCH_BOUND: f64 = 0.9;
/// Time for timing the steps of a mode, without compiling and autotuning.
const TIMING_BUDGET: Duration = Duration::from_secs(60);
/// Time for the repeats of one micro-batch.
const SPEND: Duration = Duration::from_secs(2);
/// Time for dry runs of a mode after which only every second power of two is tried: kernels of some recurrent networks
/// take minutes to autotune for each size.
const SLOW: Duration = Duration::from_secs(60);

/// Steps on a GPU.
pub(super) trait Trial {
    /// Returns the memory that steps would reserve.
    fn dry(&self, step: Step) -> Result<Memory, MeasureError>;

    /// Runs steps, with one micro-batch and with several.
    fn run(&self, step: Step, spend: Duration) -> Result<Run, MeasureError>;

    /// Returns the free memory of the device.
    fn free(&self) -> Result<Bytes, MeasureError>;

    /// Returns the bytes that the memory pools reserve.
    fn held(&self) -> Bytes;

    /// Returns the current time.
    fn now(&self) -> Instant;
}

/// Inputs of a search.
#[derive(Clone, Copy)]
pub(super) struct Plan<'p> {
    /// Largest micro-batch: a rank's share of the global batch.
    pub(super) largest_batch: u64,
    /// A rank's share of the global batch, if there is one.
    pub(super) global: Option<u64>,
    /// Free memory when the GPU was opened, before anything was allocated.
    pub(super) at_open: Bytes,
    /// Called after every try.
    pub(super) progress: &'p dyn Fn(Mode, &Tried),
}

/// Stores the measurements of a mode so far; once all steps of the mode ran, also the bytes beyond the memory pools and the
/// context.
pub(super) type Keep<'k> = dyn FnMut(MeasuredMode, Option<Bytes>) -> Result<(), MeasureError> + 'k;

/// Measures steps in a mode, and calls `keep` after every try.
pub(super) fn measure(trial: &dyn Trial, plan: Plan<'_>, mode: Mode, keep: &mut Keep<'_>) -> Result<(), MeasureError> {
    let most = (trial.free()? + trial.held()).scaled(SHARE);
    let mut search = BatchSearch { trial, plan, mode, most, tried: BTreeMap::new(), keep };
    search.dry_run()?;
    search.time()?;
    let kernels = plan.at_open - trial.free()? - trial.held();
    search.store(Some(kernels))
}

/// Search for the micro-batches of one mode that fit the GPU.
struct BatchSearch<'c, 'k> {
    trial: &'c dyn Trial,
    plan: Plan<'c>,
    mode: Mode,
    /// Bytes that executed steps may reserve.
    most: Bytes,
    tried: BTreeMap<u64, Tried>,
    keep: &'c mut Keep<'k>,
}

impl BatchSearch<'_, '_> {
    /// Dry-runs larger and larger micro-batches up to the memory limit, then sizes in the widest gaps below it.
    fn dry_run(&mut self) -> Result<(), MeasureError> {
        let Plan { largest_batch, global, .. } = self.plan;
        let begin = self.trial.now();
        for batch in micro_batches(largest_batch, global) {
            let is_slow = self.trial.now().duration_since(begin) > SLOW;
            // Without two tries the memory of a much larger micro-batch cannot be predicted.
            let is_predictable = self.tried.len() >= 2;
            if is_slow && is_predictable && is_skipped(batch) && batch < largest_batch {
                continue;
            }
            if self.predicted(batch).is_some_and(|bytes| bytes > self.most) || !self.attempt(batch)? {
                break;
            }
        }
        let largest = self.tried.keys().next_back().copied().unwrap_or(1);
        for batch in micro_batches(largest, global) {
            let is_slow = self.trial.now().duration_since(begin) > SLOW;
            if is_slow || self.tried.len() >= MOST_MICRO_BATCHES {
                break;
            }
            if !self.tried.contains_key(&batch) {
                self.attempt(batch)?;
            }
        }
        Ok(())
    }

    /// Dry-runs a micro-batch, and returns true if that worked: a tensor may be larger than the device allocates in one
    /// piece. An error of the first try is an error of the program.
    fn attempt(&mut self, batch: u64) -> Result<bool, MeasureError> {
        let Mode { checkpointing, .. } = self.mode;
        let memory = match self.trial.dry(Step::single(batch, checkpointing)) {
            Ok(memory) => memory,
            Err(error) if self.tried.is_empty() => return Err(error),
            Err(error) => {
                tracing::info!("batch {batch} is left out: {error}");
                return Ok(false);
            }
        };
        let fits = memory.reserved_bytes <= self.most;
        let accumulating = match fits.then(|| self.trial.dry(Step::accumulating(batch, checkpointing))).transpose() {
            Err(error) if self.tried.is_empty() => return Err(error),
            Err(error) => {
                tracing::info!("batch {batch} is measured without accumulation: {error}");
                None
            }
            Ok(accumulating) => accumulating,
        };
        let tried = Tried { batch, memory: Some(memory), accumulating, ..Tried::default() };
        (self.plan.progress)(self.mode, &tried);
        self.tried.insert(batch, tried);
        self.store(None)?;
        Ok(true)
    }

    /// Bytes that a larger micro-batch will reserve, on the line through the two largest tries.
    fn predicted(&self, batch: u64) -> Option<Bytes> {
        let mut largest = self.tried.values().rev();
        let (last, before) = (largest.next()?, largest.next()?);
        let bytes = |tried: &Tried| tried.reserved().unwrap_or_default().0 as f64;
        let slope = (bytes(last) - bytes(before)).max(0.0) / (last.batch - before.batch) as f64;
        Some(Bytes((bytes(last) + slope * batch.saturating_sub(last.batch) as f64) as u64))
    }

    /// Runs the steps of the micro-batches that fit, the largest first, until launches dominate or the time is up.
    fn time(&mut self) -> Result<(), MeasureError> {
        let mut left = TIMING_BUDGET;
        let fitting: Vec<u64> = self.tried.values().rev().filter(|tried| self.fits(tried)).map(|it| it.batch).collect();
        for batch in fitting {
            if left.is_zero() || self.is_launch_bound() {
                break;
            }
            let Run { times, took, reserved } =
                self.trial.run(Step::single(batch, self.mode.checkpointing), SPEND.min(left))?;
            left = left.saturating_sub(took);
            if let Some(tried) = self.tried.get_mut(&batch) {
                (tried.times, tried.ran) = (Some(times), reserved);
                (self.plan.progress)(self.mode, tried);
            }
            self.store(None)?;
        }
        Ok(())
    }

    /// Returns true if steps of a micro-batch may run: one alone, and several whose gradients are accumulated.
    fn fits(&self, tried: &Tried) -> bool {
        let reserved = [tried.memory, tried.accumulating].map(|memory| memory.map(|memory| memory.reserved_bytes));
        reserved.into_iter().all(|bytes| bytes.is_some_and(|bytes| bytes <= self.most))
    }

    /// Returns true if the smallest timed micro-batch takes hardly less than one of twice its size.
    fn is_launch_bound(&self) -> bool {
        let mut timed = self.tried.values().filter_map(|tried| Some((tried.batch, tried.times?.micro_step_ms)));
        let Some((smallest, ms)) = timed.next() else { return false };
        timed.find(|(batch, _)| *batch >= 2 * smallest).is_some_and(|(_, twice)| ms >= LAUNCH_BOUND * twice)
    }

    /// Stores all tries so far, with the bytes of `kernels` once they are complete.
    fn store(&mut self, kernels: Option<Bytes>) -> Result<(), MeasureError> {
        let batch = self.tried.values().map(|tried| (tried.batch, tried.measured())).collect();
        let mode = MeasuredMode { method: MeasurementMethod::DryRun, is_partial: kernels.is_none(), batch };
        (self.keep)(mode, kernels)
    }
}

/// Returns true for the sizes that slow programs skip: all but those near even powers of two.
fn is_skipped(batch: u64) -> bool {
    (batch as f64).log2().round() as u64 % 2 == 1
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
