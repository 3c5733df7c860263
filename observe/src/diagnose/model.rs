//! What a step is made of, and how long it would take otherwise.
//!
//! The loader works beside the trainer, and in the trainer the device beside the host. So a step takes as long as the
//! slower of loader and trainer; the trainer as long as the slower of host and device; and what nobody overlaps is added:
//! the program's own loop, and uploads in the training thread.

use gpu_tuned_core::Settings;

use super::curve::Curve;
use super::run_stats::{Parts, RunStats, Steps};

/// Less of a step than this is not worth a word.
pub(super) const LITTLE: f64 = 0.05;
/// A device that keeps the host waiting for so much of a step at its end is what the step waits for.
const DEVICE_BOUND: f64 = 0.1;
/// Of a loader that is too slow for the trainer, as many batches are in the making as there are workers, and at least one
/// of these is waited for. Waits that are rarer than this part of that are for single batches that take long.
const RARELY: f64 = 0.5;
/// Workers that prepare batches for so much of the time do nothing else.
const FULLY: f64 = 0.85;
/// Those that do for so much of it spend the rest on handing batches over, where most steps wait.
const HALF: f64 = 0.5;
/// So many of the steps are most of them.
const MOSTLY: f64 = 0.6;
/// A loss function whose thread works for so much of its time does not sleep.
const WORKING: f64 = 0.7;
/// Launching the forward pass takes so much of what launching the backward pass does: 0.22 to 0.32 on an H200.
const FORWARD: f64 = 0.3;
/// A loss function that takes so many times as long as the backward pass does more than launch.
const SURELY_MORE: f64 = 1.5;

/// Why the trainer waits for the loader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Waiting {
    /// It hardly does, or nobody recorded it.
    Little,
    /// There are no workers: they take turns.
    TakingTurns,
    /// The loader is slower than the trainer.
    Slower,
    /// What comes behind the workers is: they idle, and yet most steps wait.
    SlowerBehind,
    /// The loader is as fast, but not always in time.
    Unsteady,
}

/// Seconds of a step in which the loss function holds the host up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum LossWaits {
    /// It launches, as far as is known.
    None,
    /// Its thread sleeps.
    Asleep(f64),
    /// Its thread does something else than launch: an estimate.
    Working(f64),
}

impl LossWaits {
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
    /// Seconds in which the loader prepares the samples of a step with the workers it has; 0 where that is not known.
    pub loader: f64,
    /// Seconds of the host in the trainer, without waiting.
    pub host: f64,
    /// Seconds in the loss function in which it holds the host up.
    pub loss_waits: LossWaits,
    /// Seconds in which the device works.
    pub device: Option<f64>,
    /// Seconds of a processor that the program takes for a step, and processors there are.
    cpu: Option<(f64, f64)>,
    pub ranks: f64,
    on_gpu: bool,
}

/// A step as it could be.
#[derive(Clone, Copy, Debug)]
pub(super) struct WhatIf {
    pub samples: f64,
    pub loader: f64,
    /// Whether the loader works ahead.
    pub ahead: bool,
    pub serial: f64,
    pub training: f64,
}

impl StepModel {
    pub(super) fn of(stats: &RunStats<'_>, steps: &Steps) -> Self {
        let parts = steps.mean;
        let settings = stats.run.and_then(|run| run.settings);
        let waiting = waiting(&parts, settings.as_ref());
        let loss = parts.loss.unwrap_or(0.0);
        let on_gpu = stats.is_on_gpu();
        let may_spin = on_gpu && stats.run.is_none_or(|run| !run.partly_frozen);
        let loss_waits = loss_waits(&parts, may_spin);
        let in_parts = loss + parts.backward + parts.update + parts.drain.unwrap_or(0.0);
        let other = (parts.training() - in_parts).max(0.0);
        let host = loss - loss_waits.seconds() + parts.backward + parts.update + other;
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
        // On a CPU what is computed is what the processors do: it is no work beside it.
        let cpu = stats.busy_cores().zip(stats.cores()).filter(|_| on_gpu);
        let cpu = cpu.map(|(busy, cores)| (busy.min(cores) * parts.seconds, cores));
        Self { parts, settings, waiting, loader, host, loss_waits, device, cpu, ranks: stats.ranks(), on_gpu }
    }

    /// The step as it is.
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

    /// Samples per second of a step as it could be, if the host's processors can do so much.
    pub(super) fn rate(&self, step: WhatIf) -> f64 {
        let compute = step.serial + step.training;
        let seconds = if step.ahead { step.loader.max(compute) } else { step.loader + compute };
        let processors = self.cpu.map_or(0.0, |(work, cores)| work / cores * step.samples / self.parts.samples);
        step.samples / seconds.max(processors.min(self.parts.seconds * step.samples / self.parts.samples))
    }

    /// Samples per second as recorded.
    pub(super) fn rate_now(&self) -> f64 {
        self.parts.samples / self.parts.seconds
    }

    /// Without any waiting for the loader.
    pub(super) fn fed(&self) -> WhatIf {
        let serial = self.parts.outside + self.parts.upload + self.parts.exchange;
        WhatIf { loader: 0.0, ahead: true, serial, ..self.as_is() }
    }

    /// With a device that takes so long.
    pub(super) fn with_device(&self, device: f64) -> WhatIf {
        let training = self.parts.training();
        let now = self.device.unwrap_or(training);
        let beside = (training - now.max(self.host)).max(0.0);
        WhatIf { training: beside + device.max(self.host.min(training)), ..self.as_is() }
    }

    /// With a device that is so many times as fast.
    pub(super) fn with_faster_device(&self, factor: f64) -> WhatIf {
        self.with_device(self.device.unwrap_or(self.parts.training()) / factor)
    }

    /// Whether launching is what a step takes: the host never waits for the device.
    pub(super) fn is_host_bound(&self) -> bool {
        let never_waits = self.parts.drain.is_some_and(|drain| self.parts.share(drain) < LITTLE);
        // Of a thread that works it is an estimate that it waits.
        let asleep = if let LossWaits::Asleep(seconds) = self.loss_waits { seconds } else { 0.0 };
        self.on_gpu && never_waits && self.parts.share(asleep) < LITTLE && self.idles(0.1)
    }

    /// Whether the device idles for so much of the training, or nobody recorded it.
    fn idles(&self, part: f64) -> bool {
        self.device.is_none_or(|device| device < (1.0 - part) * self.parts.training())
    }

    /// Seconds of the host that each micro-batch costs anew.
    pub(super) fn launching(&self) -> f64 {
        self.parts.loss.unwrap_or(0.0) - self.loss_waits.seconds() + self.parts.backward
    }

    /// Whether the session's loader brings the samples of a step to the device with such micro-batches, and has no room for
    /// it as it is. There is room for as many micro-batches as are prepared ahead.
    pub(super) fn comes_to_be_brought(&self, curve: &Curve<'_>, micro_batch: f64, samples: f64) -> bool {
        let (Some(settings), true) = (self.settings, self.parts.prepared.is_some()) else { return false };
        let has_room = |depth: u64, micro_batch: f64, samples: f64| depth as f64 * micro_batch >= samples;
        let depth = curve.prefetch_depth(micro_batch).unwrap_or(settings.prefetch_depth);
        !has_room(settings.prefetch_depth, self.parts.micro_batch, self.share_of_rank())
            && has_room(depth, micro_batch, samples)
    }

    /// Samples of a step that a rank takes.
    pub(super) fn share_of_rank(&self) -> f64 {
        self.parts.samples / self.ranks
    }

    /// With micro-batches of so many samples: of the same step where it has so many, else of a larger one.
    pub(super) fn regrouped(&self, curve: &Curve<'_>, batch: f64) -> WhatIf {
        let (now, was) = (self.parts.micro_batch, self.as_is());
        let larger = (batch / self.share_of_rank()).max(1.0);
        let of_rank = self.share_of_rank() * larger;
        let training = if self.is_host_bound() {
            let parts = &self.parts;
            let repeated = self.launching();
            let launches = (of_rank / batch).ceil() / parts.micro_batches.max(1.0);
            let host = self.host - repeated + repeated * launches;
            host.max(of_rank * curve.seconds(batch))
        } else {
            was.training * larger * curve.seconds(batch) / curve.seconds(now)
        };
        let uploads = if self.comes_to_be_brought(curve, batch, of_rank) { 0.0 } else { self.parts.upload * larger };
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

/// Sleep that was recorded counts. A thread that works all the time may launch, compute, or spin until the device is done, as
/// CUDA does, if it `may_spin`: what launching does not take is known only where the loss function takes far longer than the
/// backward pass, and where that is one of the whole model.
fn loss_waits(parts: &Parts, may_spin: bool) -> LossWaits {
    let Some(loss) = parts.loss else { return LossWaits::None };
    match parts.loss_cpu.filter(|works| *works < WORKING * loss) {
        Some(works) => LossWaits::Asleep(loss - works),
        None if may_spin && parts.backward > 0.0 && loss > SURELY_MORE * parts.backward => {
            LossWaits::Working(loss - FORWARD * parts.backward)
        }
        None => LossWaits::None,
    }
}

/// The time in which the workers prepare what a step takes, if they say so.
fn delivery(parts: &Parts, settings: Option<&Settings>) -> Option<f64> {
    let workers = settings.map(|settings| settings.num_workers).filter(|workers| *workers > 0)?;
    parts.prepared.map(|prepared| prepared / workers as f64)
}
