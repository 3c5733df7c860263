//! A model of a step, and its time after a change.
//!
//! The loader works beside the trainer, and the device beside the host. A step takes as long as the slower of loader and
//! trainer, and the trainer as long as the slower of host and device. The program's own loop and uploads in the training
//! thread overlap with nothing and are added.

use gpu_tuned_core::{Provenance, Settings};

use crate::diagnose::run_stats::{Parts, RunStats, Steps};
use crate::recording::{Expected, Run};

/// Part of a step that is not worth a finding.
pub(super) const LITTLE: f64 = 0.05;
/// Wait at the end of a step, over the step, above which the step waits for the device.
const DEVICE_BOUND: f64 = 0.1;
/// Waits per worker and step below which they are single slow batches. A loader that is too slow has a batch in progress
/// for every worker, and the trainer waits for at least one of them.
const RARELY: f64 = 0.5;
/// Time that workers prepare batches over the step, above which they do nothing else.
const FULLY: f64 = 0.85;
/// Time that workers prepare batches over the step, above which the rest is handing over, where most steps wait.
const HALF: f64 = 0.5;
/// Part of the steps that is most of them.
const MOSTLY: f64 = 0.6;
/// CPU time of a loss function over its time, above which its thread does not sleep.
const WORKING: f64 = 0.7;
/// Launch time of the forward pass over that of the backward pass: 0.22 to 0.32 on an H200.
const FORWARD: f64 = 0.3;
/// Time of the loss function over that of the backward pass, above which it does more than launch.
const SURELY_MORE: f64 = 1.5;
/// Part of training in which the device idles, above which launching may limit it.
const IDLES: f64 = 0.1;

/// How the trainer waits for the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// Hardly, or unknown.
    Little,
    /// Without workers, loading and training take turns.
    TakingTurns,
    /// The loader is slower than the trainer.
    Slower,
    /// The workers idle, and yet most steps wait: the slow part comes behind the workers.
    SlowerBehind,
    /// The loader is fast enough on average, and sometimes late.
    Unsteady,
}

/// Seconds of a step in which the loss function blocks the host.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LossWait {
    /// No wait was found: the loss function launches kernels.
    None,
    /// The thread of the loss function sleeps.
    Asleep(f64),
    /// Its thread works at something else than launching: an estimate.
    Working(f64),
}

impl LossWait {
    pub(super) fn seconds(self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Asleep(seconds) | Self::Working(seconds) => seconds,
        }
    }
}

/// A step of the run.
#[derive(Clone, Debug)]
pub(super) struct StepModel {
    pub parts: Parts,
    pub settings: Option<Settings>,
    pub waiting: Waiting,
    /// Seconds in which the recorded workers prepare the samples of a step; 0 if unknown.
    pub loader: f64,
    /// Seconds of the host in the trainer, without waiting.
    pub host: f64,
    /// Seconds in which the loss function blocks the host.
    pub loss_wait: LossWait,
    /// Seconds in which the device works.
    pub device: Option<f64>,
    /// CPU seconds of the program per step, and CPU cores of the host.
    cpu: Option<(f64, f64)>,
    pub ranks: f64,
    on_gpu: bool,
}

/// A hypothetical step. Times are in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct WhatIf {
    pub samples: f64,
    pub loader: f64,
    /// The loader works beside the trainer.
    pub ahead: bool,
    /// Time that overlaps with nothing.
    pub serial: f64,
    pub training: f64,
}

impl StepModel {
    pub(super) fn new(stats: &RunStats<'_>, steps: &Steps<'_>) -> Self {
        let parts = steps.mean;
        let settings = stats.run.and_then(|run| run.settings);
        let waiting = waiting(&parts, settings.as_ref());
        let loss = parts.loss.unwrap_or(0.0);
        let on_gpu = stats.is_on_gpu();
        let may_spin = on_gpu && stats.run.is_none_or(|run| !run.partly_frozen);
        let loss_wait = loss_wait(&parts, may_spin);
        let in_parts = loss + parts.backward + parts.update + parts.drain.unwrap_or(0.0);
        let other = (parts.training() - in_parts).max(0.0);
        let host = loss - loss_wait.seconds() + parts.backward + parts.update + other;
        let loader = match waiting {
            Waiting::Slower | Waiting::SlowerBehind => parts.seconds,
            Waiting::TakingTurns => parts.waited.unwrap_or(0.0),
            Waiting::Little | Waiting::Unsteady => delivery(&parts, settings.as_ref()).unwrap_or(0.0),
        };
        let drains = parts.drain.is_some_and(|drain| parts.share(drain) >= DEVICE_BOUND);
        let device = match stats.busy().filter(|_| on_gpu) {
            Some(busy) => Some((busy * parts.seconds).min(parts.training())),
            None => (drains || !on_gpu).then(|| parts.training()),
        };
        // Training on a CPU takes the CPU cores itself.
        let cpu = stats.busy_cores().zip(stats.cores()).filter(|_| on_gpu);
        let cpu = cpu.map(|(busy, cores)| (busy.min(cores) * parts.seconds, cores));
        Self { parts, settings, waiting, loader, host, loss_wait, device, cpu, ranks: stats.ranks(), on_gpu }
    }

    /// Returns the step as it was recorded.
    pub(super) fn as_is(&self) -> WhatIf {
        let parts = &self.parts;
        let unaccounted = match self.waiting {
            Waiting::Little | Waiting::Unsteady => parts.waited.unwrap_or(0.0),
            Waiting::Slower | Waiting::SlowerBehind | Waiting::TakingTurns => 0.0,
        };
        WhatIf {
            samples: parts.samples,
            loader: self.loader,
            ahead: self.waiting != Waiting::TakingTurns,
            serial: parts.outside + parts.upload + parts.exchange + unaccounted,
            training: parts.training(),
        }
    }

    /// Returns the samples per second of a hypothetical step, within the capacity of the host's CPU cores.
    pub(super) fn rate(&self, step: WhatIf) -> f64 {
        let compute = step.serial + step.training;
        let seconds = if step.ahead { step.loader.max(compute) } else { step.loader + compute };
        let cores = self.cpu.map_or(0.0, |(work, cores)| work / cores * step.samples / self.parts.samples);
        step.samples / seconds.max(cores.min(self.parts.seconds * step.samples / self.parts.samples))
    }

    pub(super) fn rate_now(&self) -> f64 {
        self.parts.samples / self.parts.seconds
    }

    /// Returns the step without waiting for the loader.
    pub(super) fn fed(&self) -> WhatIf {
        let serial = self.parts.outside + self.parts.upload + self.parts.exchange;
        WhatIf { loader: 0.0, ahead: true, serial, ..self.as_is() }
    }

    /// Returns the step with a device that is `factor` times as fast.
    pub(super) fn with_faster_device(&self, factor: f64) -> WhatIf {
        let training = self.parts.training();
        let now = self.device.unwrap_or(training);
        let beside = (training - now.max(self.host)).max(0.0);
        WhatIf { training: beside + (now / factor).max(self.host.min(training)), ..self.as_is() }
    }

    /// Returns whether launching limits the step: the host never waits for the device.
    pub(super) fn is_host_bound(&self) -> bool {
        let never_waits = self.parts.drain.is_some_and(|drain| self.parts.share(drain) < LITTLE);
        // The wait of a working thread is an estimate and does not count.
        let asleep = if let LossWait::Asleep(seconds) = self.loss_wait { seconds } else { 0.0 };
        let idles = self.device.is_none_or(|device| device < (1.0 - IDLES) * self.parts.training());
        self.on_gpu && never_waits && self.parts.share(asleep) < LITTLE && idles
    }

    /// Seconds of the host that every micro-batch costs.
    pub(super) fn launching(&self) -> f64 {
        self.parts.loss.unwrap_or(0.0) - self.loss_wait.seconds() + self.parts.backward
    }

    /// Returns whether such micro-batches make room on the device for the prefetched samples of a step, where there is none
    /// now. The session's loader prefetches a number of micro-batches.
    pub(super) fn gains_prefetch_room(&self, curve: &Curve<'_>, micro_batch: f64, samples: f64) -> bool {
        let (Some(settings), true) = (self.settings, self.parts.prepared.is_some()) else { return false };
        let has_room = |depth: u64, micro_batch: f64, samples: f64| depth as f64 * micro_batch >= samples;
        let depth = curve.prefetch_depth(micro_batch).unwrap_or(settings.prefetch_depth);
        !has_room(settings.prefetch_depth, self.parts.micro_batch, self.share_of_rank())
            && has_room(depth, micro_batch, samples)
    }

    /// Samples of a step on one rank.
    pub(super) fn share_of_rank(&self) -> f64 {
        self.parts.samples / self.ranks
    }

    /// Returns the step with micro-batches of `batch` samples; a larger step where the recorded one has fewer samples.
    pub(super) fn regrouped(&self, curve: &Curve<'_>, batch: f64) -> WhatIf {
        let (now, was) = (self.parts.micro_batch, self.as_is());
        let larger = (batch / self.share_of_rank()).max(1.0);
        let of_rank = self.share_of_rank() * larger;
        let training = if self.is_host_bound() {
            let repeated = self.launching();
            let launches = (of_rank / batch).ceil() / self.parts.micro_batches.max(1.0);
            let host = self.host - repeated + repeated * launches;
            host.max(of_rank * curve.seconds(batch))
        } else {
            was.training * larger * curve.seconds(batch) / curve.seconds(now)
        };
        let uploads = if self.gains_prefetch_room(curve, batch, of_rank) { 0.0 } else { self.parts.upload * larger };
        WhatIf {
            samples: was.samples * larger,
            loader: was.loader * larger,
            serial: was.serial - self.parts.upload + uploads,
            training,
            ..was
        }
    }
}

fn waiting(parts: &Parts, settings: Option<&Settings>) -> Waiting {
    if parts.waited.is_none_or(|waited| parts.share(waited) < LITTLE) {
        return Waiting::Little;
    }
    let Some(workers) = settings.map(|settings| settings.num_workers) else { return Waiting::Slower };
    let is_rare = parts.waiting_steps * (workers as f64) < RARELY;
    match delivery(parts, settings) {
        _ if workers == 0 => Waiting::TakingTurns,
        Some(delivery) if delivery >= FULLY * parts.seconds => Waiting::Slower,
        Some(delivery) if parts.waiting_steps >= MOSTLY && delivery >= HALF * parts.seconds => Waiting::Slower,
        Some(_) if parts.waiting_steps >= MOSTLY => Waiting::SlowerBehind,
        Some(_) => Waiting::Unsteady,
        None if is_rare => Waiting::Unsteady,
        None => Waiting::Slower,
    }
}

/// Measures the wait of the loss function. Sleep is recorded. A thread that works all the time may launch, compute, or spin
/// until the device is done, as CUDA does, if it `may_spin`: the part beyond launching shows only where the loss function
/// takes far longer than the backward pass of the whole model.
fn loss_wait(parts: &Parts, may_spin: bool) -> LossWait {
    let Some(loss) = parts.loss else { return LossWait::None };
    match parts.loss_cpu.filter(|works| *works < WORKING * loss) {
        Some(works) => LossWait::Asleep(loss - works),
        None if may_spin && parts.backward > 0.0 && loss > SURELY_MORE * parts.backward => {
            LossWait::Working(loss - FORWARD * parts.backward)
        }
        None => LossWait::None,
    }
}

/// Seconds in which the workers prepare the samples of a step, where they are recorded.
fn delivery(parts: &Parts, settings: Option<&Settings>) -> Option<f64> {
    let workers = settings.map(|settings| settings.num_workers).filter(|workers| *workers > 0)?;
    parts.prepared.map(|prepared| prepared / workers as f64)
}

/// Speed over the best that is as good as the best: the planner's own margin.
const NEAR_BEST: f64 = 0.98;

/// Predictions for micro-batches, smallest first, with or without checkpointing.
#[derive(Clone, Debug)]
pub(super) struct Curve<'a> {
    points: Vec<&'a Expected>,
}

impl<'a> Curve<'a> {
    /// Returns `None` if the planner made no predictions.
    pub(super) fn new(run: &'a Run, checkpointing: bool) -> Option<Self> {
        let is_meant =
            |point: &&Expected| point.checkpointing == checkpointing && point.samples_per_s > 0.0 && point.batch > 0;
        let mut points: Vec<_> = run.expected.iter().filter(is_meant).collect();
        points.sort_by_key(|point| point.batch);
        points.dedup_by_key(|point| point.batch);
        (!points.is_empty()).then_some(Self { points })
    }

    /// Seconds per sample in a micro-batch of `batch`. The time of a micro-batch is interpolated linearly between points.
    pub(super) fn seconds(&self, batch: f64) -> f64 {
        let time = |point: &Expected| point.batch as f64 / point.samples_per_s;
        let after = self.points.partition_point(|point| (point.batch as f64) < batch);
        let micro = match (after.checked_sub(1).map(|before| self.points[before]), self.points.get(after)) {
            (Some(low), Some(high)) => {
                let along = (batch - low.batch as f64) / (high.batch - low.batch) as f64;
                time(low) + along * (time(high) - time(low))
            }
            // Smaller micro-batches take as long: their time is overhead.
            (None, Some(first)) => time(first),
            (Some(last), None) => batch / last.samples_per_s,
            (None, None) => return f64::NAN,
        };
        micro / batch
    }

    /// Returns the smallest eligible micro-batch up to `most` that is about as fast as the best of them.
    pub(super) fn smallest_near_best(
        &self,
        most: u64,
        is_eligible: impl Fn(&Expected) -> bool,
    ) -> Option<&'a Expected> {
        let fit = || self.points.iter().copied().filter(|point| point.batch <= most && is_eligible(point));
        let best = fit().map(|point| point.samples_per_s).reduce(f64::max)?;
        fit().find(|point| point.samples_per_s >= NEAR_BEST * best)
    }

    /// Micro-batches of this size that would be prefetched to the device, where the planner predicted it.
    pub(super) fn prefetch_depth(&self, batch: f64) -> Option<u64> {
        self.points.iter().find(|point| point.batch == batch as u64)?.prefetch_depth
    }

    /// The weakest source of the predictions.
    pub(super) fn provenance(&self) -> Provenance {
        self.points.iter().filter_map(|point| point.provenance).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::Curve;
    use crate::recording::{Expected, Run};

    fn run() -> Run {
        let mut run = Run::new(0.0, 1);
        for (batch, samples_per_s, fits) in
            [(64, 640.0, true), (8, 200.0, true), (128, 645.0, true), (256, 900.0, false)]
        {
            let mut point = Expected::default();
            (point.batch, point.samples_per_s, point.fits) = (batch, samples_per_s, fits);
            run.expected.push(point);
        }
        run
    }

    #[test]
    fn the_smallest_that_is_about_as_fast_as_the_best_is_taken() {
        let run = run();
        let curve = Curve::new(&run, false).unwrap();
        let near_best =
            |most, all: bool| curve.smallest_near_best(most, |point| all || point.fits).map(|point| point.batch);
        assert_eq!(near_best(1000, false), Some(64));
        assert_eq!(near_best(32, false), Some(8));
        assert_eq!(near_best(1000, true), Some(256));
        assert_eq!(near_best(4, true), None);
        assert!(Curve::new(&run, true).is_none());
    }

    #[test]
    fn the_time_of_a_micro_batch_is_interpolated() {
        let run = run();
        let curve = Curve::new(&run, false).unwrap();
        for (batch, milliseconds) in [(1.0, 40.0), (8.0, 40.0), (36.0, 70.0), (64.0, 100.0), (512.0, 512.0 / 0.9)] {
            let micro = curve.seconds(batch) * batch * 1e3;
            assert!((micro - milliseconds).abs() < 1e-6, "{batch}: {micro}");
        }
    }
}
