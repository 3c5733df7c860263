//! Steps with CUDA graphs, whose memory and time are measured by running them.

use std::collections::BTreeMap;
use std::time::Duration;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::{MeasuredBatch, MeasuredMode, MeasurementMethod, Mode};

use super::order::rate;
use super::{Run, SPEND, Search, Tried};
use crate::measure::{MeasureError, Memory, Step, report};

/// Memory of a step with CUDA graphs over that of one without, at most. On H100s it was up to 2.2, with four sets of
/// gradients in a comparison; there are five now.
pub(super) const MOST_MEMORY: f64 = 2.5;
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
    pub(super) fn time_graphs(&mut self) -> Result<(), MeasureError> {
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
