//! Steps and their parts, timed.

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_observe::bench::{Feed, Interval, Phases};

use super::super::timed::{Clock, Outcome, median};
use super::super::training::Training;
use super::super::{MeasureError, Step, Subject, isolated, release, reserved};
use super::feed::{Fed, Prepare, feeding};
use super::sampler::{DeviceSampler, Utilization};

/// Shorter windows than this are mostly waiting for the device.
const WINDOW: f64 = 0.1;
const MOST_STEPS: usize = 100;
const REPEATS: (usize, usize) = (3, 9);

/// Measured times of steps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timed {
    pub(super) samples_per_s: Interval,
    pub(super) repeats: usize,
    pub(super) step_ms: f64,
    /// `None` of steps that are fed, and of those that are one piece.
    pub(super) phases: Option<Phases>,
    /// Time that fed steps waited.
    pub(super) waiting_percent: Option<f64>,
    pub(super) utilization: Utilization,
    /// Bytes reserved by the device's memory pools; `None` on a CPU.
    pub(super) reserved: Option<gpu_tuned_core::Bytes>,
    /// True if the loss is finite; without a loss, if the weights are.
    pub(super) is_finite: bool,
}

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
) -> Result<Timed, MeasureError> {
    on_a_thread(timing, subject, step, |run, training, warm| {
        let repeats = Repeats::for_duration(warm, timing.spend);
        let watch = timing.eye.watch();
        let (training, seconds) = run.repeat(training, repeats, |_| Duration::ZERO)?;
        let utilization = watch.end();
        let (training, phases) = run.parts(training, repeats)?;
        Ok((training, Figures { phases, waiting: None, seconds, utilization }))
    })
}

/// Whole steps whose batches are prepared meanwhile.
pub(super) fn fed<M: Module, B: Clone>(
    timing: Timing<'_>,
    subject: &Subject<'_, M, B>,
    step: Step,
    (prepare, feed): (&Prepare<'_>, Feed),
) -> Result<Timed, MeasureError> {
    on_a_thread(timing, subject, step, |run, training, warm| {
        feeding(prepare, step.batch, feed, |batches| {
            let before_it_flows = feed.workers.saturating_add(feed.prefetch).min(MOST_STEPS as u64) as usize;
            let first = Repeats { steps: before_it_flows.max(1), repeats: 1 };
            let take = |batches: &mut Fed<'_>| {
                batches.take();
                batches.waited()
            };
            let (training, seconds) = run.repeat(training, first, |_| take(batches))?;
            // Slow preparation is what a step takes, too.
            let repeats = Repeats::for_duration(warm.max(seconds[0].step), timing.spend);
            let watch = timing.eye.watch();
            let (training, seconds) = run.repeat(training, repeats, |_| take(batches))?;
            let utilization = watch.end();
            let share = |seconds: &Seconds| 100.0 * seconds.waited / seconds.step;
            let waiting = Some(median(&mut seconds.iter().map(share).collect::<Vec<_>>()));
            Ok((training, Figures { phases: None, waiting, seconds, utilization }))
        })
    })
}

/// Results of the repeats.
struct Figures {
    seconds: Vec<Seconds>,
    phases: Option<Phases>,
    waiting: Option<f64>,
    utilization: Utilization,
}

/// A step, and what of it was waited for its batch.
#[derive(Clone, Copy, Debug)]
struct Seconds {
    step: f64,
    waited: f64,
}

/// Warms up and times steps on a new thread, then releases its memory.
fn on_a_thread<'s, 'a: 's, M: Module, B: Clone>(
    Timing { device, spend, .. }: Timing<'_>,
    subject: &'s Subject<'a, M, B>,
    step: Step,
    timed: impl FnOnce(Run<'_>, Training<'s, 'a, M, B>, f64) -> Outcome<'s, 'a, M, B, Figures> + Send,
) -> Result<Timed, MeasureError> {
    let outcome = isolated(step, || {
        let before = reserved(device);
        let clock = Clock { device, step, is_cpu: before.is_none() };
        let (training, first) = clock.time(Training::new(subject, step, device), 1, 1)?;
        clock.check(&training)?;
        let (training, warm) = clock.warm_up(training, first, spend)?;
        let (training, figures) = timed(Run { clock }, training, warm)?;
        let held = reserved(device).zip(before).map(|(held, before)| held - before);
        let is_finite = training.check().map_err(|error| step.failed(&error))?;
        drop(training);
        release(device, step)?;
        Ok(figures.timed(step.batch, held, is_finite))
    });
    outcome?
}

impl Figures {
    fn timed(self, batch: usize, reserved: Option<gpu_tuned_core::Bytes>, is_finite: bool) -> Timed {
        let rates: Vec<f64> = self.seconds.iter().map(|seconds| batch as f64 / seconds.step).collect();
        Timed {
            samples_per_s: Interval::from_figures(&rates).expect("BUG: there is a repeat at least"),
            repeats: self.seconds.len(),
            step_ms: 1e3 * median(&mut self.seconds.iter().map(|seconds| seconds.step).collect::<Vec<_>>()),
            phases: self.phases,
            waiting_percent: self.waiting,
            utilization: self.utilization,
            reserved,
            is_finite,
        }
    }
}

/// Steps that are warm.
#[derive(Clone, Copy)]
struct Run<'d> {
    clock: Clock<'d>,
}

impl Run<'_> {
    fn wait(self) -> Result<(), MeasureError> {
        self.clock.device.sync().map_err(|error| self.clock.step.failed(&error))
    }

    /// Repeats steps, each after `before`, which returns the time it waited.
    fn repeat<'s, 'a, M: Module, B: Clone>(
        self,
        mut training: Training<'s, 'a, M, B>,
        Repeats { steps, repeats }: Repeats,
        mut before: impl FnMut(usize) -> Duration,
    ) -> Outcome<'s, 'a, M, B, Vec<Seconds>> {
        let mut all = Vec::with_capacity(repeats);
        for repeat in 0..repeats {
            let (begin, mut waited) = (Instant::now(), Duration::ZERO);
            for _ in 0..steps {
                waited += before(repeat);
                training = training.step(1);
            }
            self.wait()?;
            let each = |all: Duration| all.as_secs_f64() / steps as f64;
            all.push(Seconds { step: each(begin.elapsed()), waited: each(waited) });
        }
        Ok((training, all))
    }

    /// Forward and backward pass and optimizer, each waited for; `None` where the passes are one piece.
    fn parts<'s, 'a, M: Module, B: Clone>(
        self,
        mut training: Training<'s, 'a, M, B>,
        Repeats { repeats, .. }: Repeats,
    ) -> Outcome<'s, 'a, M, B, Option<Phases>> {
        let mut parts = [const { Vec::new() }; 3];
        self.wait()?;
        for _ in 0..repeats {
            let mut last = Instant::now();
            let mut waited = |part: &mut Vec<f64>| {
                self.wait()?;
                let now = Instant::now();
                part.push((now - last).as_secs_f64() * 1e3);
                last = now;
                Ok::<_, MeasureError>(())
            };
            let [forward, backward, optimizer] = &mut parts;
            let mut between = Ok(());
            let gradients = training.passes(|| between = waited(forward));
            between?;
            waited(backward)?;
            training = training.optimize(gradients);
            waited(optimizer)?;
        }
        // A step of the program's own may be one piece.
        let phases = parts.iter().all(|part| !part.is_empty()).then(|| {
            let [forward_ms, backward_ms, optimizer_ms] = parts.map(|mut part| median(&mut part));
            Phases { forward_ms, backward_ms, optimizer_ms }
        });
        Ok((training, phases))
    }
}

#[cfg(test)]
#[path = "clock_tests.rs"]
mod tests;
