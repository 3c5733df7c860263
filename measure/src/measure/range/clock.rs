//! Steps and their parts, timed.

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_observe::bench::{Feed, Figures, Interval, Phases};

use super::super::timed::Clock;
use super::super::times::median;
use super::super::{MeasureError, Step, Subject};
use super::feed::{Prepare, feeding};
use super::sampler::{DeviceSampler, Utilization};

/// Shorter windows than this are mostly waiting for the device.
const WINDOW: f64 = 0.1;
const MOST_STEPS: usize = 100;
const REPEATS: (usize, usize) = (3, 9);

/// Device, sampler and time limit of timed steps.
#[derive(Clone, Copy)]
pub(super) struct Timing<'t> {
    pub(super) device: &'t Device,
    pub(super) eye: &'t DeviceSampler,
    /// Time limit of the repeats.
    pub(super) spend: Duration,
}

/// Numbers of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Repeats {
    /// In a row, with one wait for the device at the end.
    steps: usize,
    repeats: usize,
}

impl Repeats {
    fn for_duration(warm: f64, spend: Duration) -> Self {
        let steps = ((WINDOW / warm) as usize).clamp(1, MOST_STEPS);
        let repeats = (spend.as_secs_f64() / (warm * steps as f64)) as usize;
        Self { steps, repeats: repeats.clamp(REPEATS.0, REPEATS.1) }
    }
}

/// Whole steps with their batch at hand; then their parts, each waited for.
pub(super) fn alone<M: Module, B: Clone>(
    timing: Timing<'_>,
    subject: &Subject<'_, M, B>,
    step: Step,
) -> Result<Figures, MeasureError> {
    warm(timing, subject, step, |clock, warm| {
        let repeats = Repeats::for_duration(warm, timing.spend);
        let watch = timing.eye.watch();
        let seconds = clock.repeat_steps(repeats, || Duration::ZERO)?;
        let utilization = watch.end();
        Ok(Figures { phases: clock.parts(repeats.repeats)?, ..figures(step, &seconds, utilization) })
    })
}

/// Whole steps whose batches are prepared meanwhile.
pub(super) fn fed<M: Module, B: Clone>(
    timing: Timing<'_>,
    subject: &Subject<'_, M, B>,
    step: Step,
    (prepare, feed): (&Prepare<'_>, Feed),
) -> Result<Figures, MeasureError> {
    warm(timing, subject, step, |clock, warm| {
        feeding(prepare, step.batch, feed, |batches| {
            let before_it_flows = feed.workers.saturating_add(feed.prefetch).min(MOST_STEPS as u64) as usize;
            let first = Repeats { steps: before_it_flows.max(1), repeats: 1 };
            let seconds = clock.repeat_steps(first, || batches.take())?;
            // Slow preparation is what a step takes, too.
            let repeats = Repeats::for_duration(warm.max(seconds[0].step), timing.spend);
            let watch = timing.eye.watch();
            let seconds = clock.repeat_steps(repeats, || batches.take())?;
            let utilization = watch.end();
            let share = |seconds: &Seconds| 100.0 * seconds.waited / seconds.step;
            let waiting_percent = Some(median(&mut seconds.iter().map(share).collect::<Vec<_>>()));
            Ok(Figures { waiting_percent, ..figures(step, &seconds, utilization) })
        })
    })
}

/// Figures of the repeats, without those of their parts and of memory.
fn figures(step: Step, seconds: &[Seconds], utilization: Utilization) -> Figures {
    let rates: Vec<f64> = seconds.iter().map(|seconds| step.batch as f64 / seconds.step).collect();
    Figures {
        samples_per_s: Interval::from_figures(&rates).expect("BUG: there is a repeat at least"),
        repeats: seconds.len() as u64,
        step_ms: 1e3 * median(&mut seconds.iter().map(|seconds| seconds.step).collect::<Vec<_>>()),
        phases: None,
        waiting_percent: None,
        reserved_bytes: None,
        in_use_bytes: None,
        predicted_bytes: None,
        gpu_percent: utilization.gpu_percent,
        cpu_percent: utilization.cpu_percent,
        is_finite: true,
    }
}

/// A step, and what of it was waited for its batch.
#[derive(Clone, Copy, Debug)]
struct Seconds {
    step: f64,
    waited: f64,
}

/// Warms up and times steps on a new thread.
fn warm<M: Module, B: Clone>(
    Timing { device, spend, .. }: Timing<'_>,
    subject: &Subject<'_, M, B>,
    step: Step,
    timed: impl FnOnce(&mut Clock<'_, '_, M, B>, f64) -> Result<Figures, MeasureError> + Send,
) -> Result<Figures, MeasureError> {
    Clock::on_a_thread(device, subject, step, |clock| {
        let first = clock.time(1, 1)?;
        clock.check()?;
        let warm = clock.warm_up(first, spend)?;
        let figures = timed(clock, warm)?;
        Ok(Figures { reserved_bytes: clock.held(), is_finite: clock.is_finite()?, ..figures })
    })
}

impl<M: Module, B: Clone> Clock<'_, '_, M, B> {
    /// Repeats steps, each after `before`, which returns the time it waited.
    fn repeat_steps(
        &mut self,
        Repeats { steps, repeats }: Repeats,
        mut before: impl FnMut() -> Duration,
    ) -> Result<Vec<Seconds>, MeasureError> {
        let mut all = Vec::with_capacity(repeats);
        for _ in 0..repeats {
            let (begin, mut waited) = (Instant::now(), Duration::ZERO);
            for _ in 0..steps {
                waited += before();
                self.training.step(1);
            }
            self.wait()?;
            let each = |all: Duration| all.as_secs_f64() / steps as f64;
            all.push(Seconds { step: each(begin.elapsed()), waited: each(waited) });
        }
        Ok(all)
    }

    /// Forward and backward pass and optimizer, each waited for; `None` where the passes are one piece.
    fn parts(&mut self, repeats: usize) -> Result<Option<Phases>, MeasureError> {
        let mut parts = [const { Vec::new() }; 3];
        self.wait()?;
        for _ in 0..repeats {
            let mut last = Instant::now();
            let mut waited = |clock: &Self, part: usize| {
                clock.wait()?;
                let now = Instant::now();
                parts[part].push((now - last).as_secs_f64() * 1e3);
                last = now;
                Ok::<_, MeasureError>(())
            };
            let mut between = Ok(());
            let gradients = self.training.passes(|| between = waited(self, 0));
            between?;
            waited(self, 1)?;
            self.training.optimize(gradients);
            waited(self, 2)?;
        }
        // A step of the program's own may be one piece.
        let phases = parts.iter().all(|part| !part.is_empty()).then(|| {
            let [forward_ms, backward_ms, optimizer_ms] = parts.map(|mut part| median(&mut part));
            Phases { forward_ms, backward_ms, optimizer_ms }
        });
        Ok(phases)
    }
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
