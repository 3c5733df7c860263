//! Measuring on a GPU: memory by dry runs, time by running micro-batches that leave much memory free.
//!
//! A try of a micro-batch measures both. Tries are ordered by what plans need, for all modes together, until the time is
//! up: see [`order`].

mod order;
#[cfg(test)]
mod replayed_tests;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::{MeasuredBatch, MeasuredMode, MeasurementMethod, Mode};
use gpu_tuned_train::out_of_memory::is_out_of_memory;

use super::bench::{Budget, Tried};
use super::timed::Run;
use super::{MeasureError, Memory, Step, report};
use order::{First, Limits, ModeTries, Need, rate};

/// Fraction of the free memory that executed steps may reserve: the device must never run out of memory.
const SHARE: f64 = 0.85;
/// Time for the repeats of one micro-batch.
const SPEND: Duration = Duration::from_secs(2);
/// Share of the time that must be left for a second size of the first mode, which may take longer than that: plans
/// interpolate between two sizes. Where compilation of the first took most of the time, that of another may, too.
const SECOND_SIZE: u32 = 4;

/// Steps on a GPU.
pub(super) trait Trial {
    /// Returns the memory that steps would reserve.
    fn dry(&self, step: Step) -> Result<Memory, MeasureError>;

    /// Runs steps, with one micro-batch and with several.
    fn run(&self, step: Step, spend: Duration) -> Result<Run, MeasureError>;

    fn free(&self) -> Result<Bytes, MeasureError>;

    fn held(&self) -> Bytes;

    fn now(&self) -> Instant;
}

/// Inputs of a search.
#[derive(Clone, Copy)]
pub(super) struct Plan<'p> {
    /// Largest micro-batch: a rank's share of the global batch.
    pub(super) largest_batch: u64,
    /// A rank's share of the global batch, if there is one.
    pub(super) global: Option<u64>,
    /// Micro-batch that was planned before the measurement.
    pub(super) planned: u64,
    /// Fraction of the best throughput that a plan may give up for a smaller micro-batch.
    pub(super) tolerance: f64,
    /// True if steps are timed with CUDA graphs, too.
    pub(super) graphs: bool,
    /// Free memory when the GPU was opened, before anything was allocated.
    pub(super) at_open: Bytes,
    pub(super) budget: &'p Budget,
    /// Called after every try.
    pub(super) progress: &'p dyn Fn(Mode, &Tried),
}

/// Stores the measurements of a mode so far, and the bytes beyond the memory pools and the context. A mode without
/// micro-batches cannot be measured, so that earlier measurements no longer apply.
pub(super) type Keep<'k> = dyn FnMut(Mode, MeasuredMode, Bytes) -> Result<(), MeasureError> + 'k;

/// Measures steps in some modes, the most important first, and calls `keep` after every dry run and every timing.
pub(super) fn measure(
    trial: &dyn Trial,
    plan: Plan<'_>,
    modes: &[Mode],
    keep: &mut Keep<'_>,
) -> Result<(), MeasureError> {
    plan.budget.begin(trial.now());
    let most = (trial.free()? + trial.held()).scaled(SHARE);
    let Plan { largest_batch, global, planned, tolerance, .. } = plan;
    let limits = Limits { largest_batch, global, planned, tolerance, most };
    let modes = modes.iter().map(|mode| ModeTries::new(*mode)).collect();
    Search { trial, plan, limits, modes, durations: Vec::new(), lacking: None, keep }.run()
}

/// Search for the micro-batches that fit the GPU, in some modes.
struct Search<'c, 'k> {
    trial: &'c dyn Trial,
    plan: Plan<'c>,
    limits: Limits,
    /// The planner prefers the first mode.
    modes: Vec<ModeTries>,
    /// All tries that were timed, in their order.
    durations: Vec<Took>,
    /// The first try that ran out of memory which had been free.
    lacking: Option<MeasureError>,
    keep: &'c mut Keep<'k>,
}

/// Durations of a try.
#[derive(Clone, Copy)]
struct Took {
    batch: u64,
    dry: Duration,
    run: Duration,
}

impl Search<'_, '_> {
    fn run(&mut self) -> Result<(), MeasureError> {
        // Graphs gain where launches dominate, and checkpointing where memory limits the plain mode.
        self.try_all(&[Need::Plan], 1)?;
        if First::new(&self.modes[0], &self.limits).is_limited {
            self.try_all(&[Need::Plan], self.modes.len())?;
        }
        if self.plan.graphs {
            self.time_graphs()?;
        }
        self.try_all(&[Need::Plan, Need::Rest], self.modes.len())?;
        // The best throughput of one mode decides which sizes of another are needed.
        for mode in 0..self.modes.len() {
            if !self.modes[mode].tried.is_empty() {
                self.store(mode)?;
            }
        }
        // Nothing was timed.
        self.lacking.take().filter(|_| self.durations.is_empty()).map_or(Ok(()), Err)
    }

    /// Tries the micro-batches that are needed in so many modes.
    fn try_all(&mut self, needs: &[Need], modes: usize) -> Result<(), MeasureError> {
        while let Some((mode, batch)) = self.next(needs, modes) {
            let took = self.attempt(mode, batch)?;
            self.durations.extend(took);
        }
        Ok(())
    }

    /// The next try, as mode and micro-batch. Sizes that plans need come first. Tries that would take longer than the
    /// remaining time are left out.
    fn next(&self, needs: &[Need], modes: usize) -> Option<(usize, u64)> {
        let left = self.plan.budget.left(self.trial.now());
        for &need in needs {
            for mode in 0..modes {
                let is_due = mode == 0
                    && match self.modes[0].tried.len() {
                        0 => true,
                        1 => left * SECOND_SIZE >= self.plan.budget.whole,
                        _ => false,
                    };
                let is_affordable = |batch: &u64| is_due || self.expected(*batch) <= left;
                if let Some(batch) = self.wanted(mode, need).into_iter().find(is_affordable) {
                    return Some((mode, batch));
                }
            }
        }
        None
    }

    fn wanted(&self, mode: usize, need: Need) -> Vec<u64> {
        let first = (mode > 0).then(|| First::new(&self.modes[0], &self.limits));
        self.modes[mode].wanted(need, &self.limits, first.as_ref())
    }

    /// Expected duration of a try: that of the nearest size which is not smaller, or of the largest one. Steps of a larger
    /// size take longer in proportion; compilation and autotune, which are most of a dry run, do not.
    ///
    /// The first try of the process compiles most kernels, so it counts only where it is the only one.
    fn expected(&self, batch: u64) -> Duration {
        let later = self.durations.get(1..).filter(|later| !later.is_empty()).unwrap_or(&self.durations);
        let larger = later.iter().filter(|took| took.batch >= batch).min_by_key(|took| took.batch);
        let nearest = larger.or_else(|| later.iter().max_by_key(|took| took.batch));
        nearest.map_or(Duration::ZERO, |took| took.dry + took.run.mul_f64((batch as f64 / took.batch as f64).max(1.0)))
    }

    /// Dry-runs a micro-batch, and times it if it fits. Returns the durations if it was timed. A tensor may be larger
    /// than the device allocates in one piece. An error is one of the program if no other size works.
    fn attempt(&mut self, mode: usize, batch: u64) -> Result<Option<Took>, MeasureError> {
        let begin = self.trial.now();
        let tried = match self.dry(self.modes[mode].mode, batch) {
            Ok(tried) => tried,
            Err(error) => {
                self.modes[mode].exclude(batch);
                let is_last = self.modes.iter().all(|mode| mode.tried.is_empty())
                    && self.next(&[Need::Plan, Need::Rest], self.modes.len()).is_none();
                tracing::info!("batch {batch} is left out: {error}");
                return if is_last { Err(error) } else { Ok(None) };
            }
        };
        let fits = self.fits(&tried);
        let is_timed = fits && self.modes[mode].launch_bound().is_none_or(|bound| batch > bound);
        if !fits {
            self.modes[mode].exclude(batch);
        }
        self.modes[mode].tried.insert(batch, tried);
        self.store(mode)?;
        let between = self.trial.now();
        let is_timed = is_timed && self.time(mode, batch)?;
        if is_timed {
            self.store(mode)?;
        }
        let took = Took { batch, dry: between - begin, run: self.trial.now() - between };
        let ModeTries { mode, tried, .. } = &self.modes[mode];
        (self.plan.progress)(*mode, &tried[&batch]);
        Ok(is_timed.then_some(took))
    }

    fn dry(&self, Mode { checkpointing, .. }: Mode, batch: u64) -> Result<Tried, MeasureError> {
        let memory = self.trial.dry(Step::single(batch, checkpointing))?;
        let fits = memory.reserved_bytes <= self.limits.most;
        let accumulating = fits.then(|| self.trial.dry(Step::accumulating(batch, checkpointing))).transpose();
        let accumulating = accumulating.unwrap_or_else(|error| {
            tracing::info!("batch {batch} is measured without accumulation: {error}");
            None
        });
        Ok(Tried { batch, memory: Some(memory), accumulating, ..Tried::default() })
    }

    /// Returns false if memory runs out that had been free, as when another process takes it. Larger sizes are left out then.
    fn time(&mut self, mode: usize, batch: u64) -> Result<bool, MeasureError> {
        let step = Step::single(batch, self.modes[mode].mode.checkpointing);
        let spend = SPEND.min(self.plan.budget.left(self.trial.now()));
        let Run { times, reserved } = match self.trial.run(step, spend) {
            Err(MeasureError::Step { step, message }) if is_out_of_memory(&message) => {
                report::lacking(self.modes[mode].mode, batch);
                self.modes[mode].exclude(batch);
                self.lacking.get_or_insert(MeasureError::Step { step, message });
                return Ok(false);
            }
            run => run?,
        };
        if let Some(tried) = self.modes[mode].tried.get_mut(&batch) {
            (tried.times, tried.ran) = (Some(times), reserved);
        }
        Ok(true)
    }

    /// Returns true if steps of a micro-batch may run: one alone, and several whose gradients are accumulated.
    fn fits(&self, tried: &Tried) -> bool {
        let reserved = [tried.memory, tried.accumulating].map(|memory| memory.map(|memory| memory.reserved_bytes));
        reserved.into_iter().all(|bytes| bytes.is_some_and(|bytes| bytes <= self.limits.most))
    }

    /// Stores all tries of a mode so far. The mode is partial while plans need sizes that were not tried.
    fn store(&mut self, mode: usize) -> Result<(), MeasureError> {
        let kernels = self.plan.at_open - self.trial.free()? - self.trial.held();
        let is_partial = !self.wanted(mode, Need::Plan).is_empty();
        let ModeTries { mode, tried, .. } = &self.modes[mode];
        let batch = tried.iter().map(|(batch, tried)| (*batch, tried.measured())).collect();
        (self.keep)(*mode, MeasuredMode { method: MeasurementMethod::DryRun, is_partial, batch }, kernels)
    }
}

/// Memory of a step with CUDA graphs over that of one without, at most. On H100s it was up to 2.2, with four sets of
/// gradients in a comparison; there are five now.
const MOST_MEMORY: f64 = 2.5;
/// Time of the first capture over that of the process's first dry run: 0.13 to 0.19 on H100s, with empty caches.
const MORE_KERNELS: f64 = 0.2;
/// Micro-steps of a try: those until replays are trusted, and some for the repeats.
const MICRO_STEPS: f64 = 40.0;

impl Search<'_, '_> {
    /// Times steps of the first mode with CUDA graphs: at the micro-batch that would be planned without, then at smaller
    /// ones until throughput falls by more than the tolerance.
    ///
    /// The first try compiles some kernels more, and further tries take as long as their micro-steps. Where launches
    /// dominate, one try is made even without time left.
    /// If graphs are refused at once, `keep` gets a mode without micro-batches.
    fn time_graphs(&mut self) -> Result<(), MeasureError> {
        let first = &self.modes[0];
        let (mode, sizes) = (first.mode.with_graphs(true), first.planned(&self.limits));
        let is_due = first.launch_bound().is_some();
        let (mut tried, mut best) = (BTreeMap::new(), 0.0_f64);
        for batch in sizes.into_iter().filter(|batch| self.fits_with_graphs(*batch)).collect::<Vec<_>>() {
            let left = self.plan.budget.left(self.trial.now());
            let kernels = if tried.is_empty() { self.kernels_of_graphs() } else { Duration::ZERO };
            if self.expected_with_graphs(batch) + kernels > left && !(is_due && tried.is_empty()) {
                continue;
            }
            let step = Step::single(batch, mode.checkpointing).with_graphs(true);
            let Run { times, reserved } = match self.trial.run(step, SPEND.min(left)) {
                Ok(run) => run,
                Err(error) => {
                    report::no_graphs(mode, &error);
                    if tried.is_empty() {
                        self.keep_graphs(mode, tried)?;
                    }
                    break;
                }
            };
            // Steps of several micro-batches, which need a set of gradients more than those of one.
            let memory = reserved.map(|reserved_bytes| Memory { reserved_bytes, in_use_bytes: None });
            let new = Tried { batch, memory, accumulating: memory, times: Some(times), ran: None };
            (self.plan.progress)(mode, &new);
            tried.insert(batch, new.measured());
            self.keep_graphs(mode, tried.clone())?;
            let rate = rate(batch, times.micro_step_ms, times.optimizer_ms, &self.limits);
            if rate < best * (1.0 - self.limits.tolerance) {
                break;
            }
            best = best.max(rate);
        }
        Ok(())
    }

    fn keep_graphs(&mut self, mode: Mode, batch: BTreeMap<u64, MeasuredBatch>) -> Result<(), MeasureError> {
        (self.keep)(mode, MeasuredMode { method: MeasurementMethod::Executed, is_partial: false, batch }, Bytes::ZERO)
    }

    /// Expected time to compile the kernels that only replays need: recorded operations are fused differently.
    fn kernels_of_graphs(&self) -> Duration {
        self.durations.first().map_or(Duration::ZERO, |first| first.dry.mul_f64(MORE_KERNELS))
    }

    fn expected_with_graphs(&self, batch: u64) -> Duration {
        let times = self.modes[0].tried.get(&batch).and_then(|tried| tried.times);
        let micro_step = times.map_or(0.0, |times| times.micro_step_ms / 1e3);
        SPEND + Duration::from_secs_f64(MICRO_STEPS * micro_step)
    }

    /// Returns true if a micro-batch, of which the first mode measured the memory, fits with CUDA graphs.
    fn fits_with_graphs(&self, batch: u64) -> bool {
        let tried = self.modes[0].tried.get(&batch);
        let reserved = tried.and_then(|tried| tried.accumulating).map(|memory| memory.reserved_bytes);
        reserved.is_some_and(|bytes| bytes.scaled(MOST_MEMORY) <= self.limits.most)
    }
}
