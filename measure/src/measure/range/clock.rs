//! Steps and their parts, timed, with the batches that are prepared and the utilisation that is sampled meanwhile.

use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_observe::bench::{Feed, Figures, Interval, Phases};
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

use crate::measure::timed::{Clock, median};
use crate::measure::{MeasureError, Step, Subject};

/// Shorter windows than this vary more.
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
    /// Between two readings of the clock; each is waited for, as a trainer waits.
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
                self.wait()?;
            }
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

/// Prepares so many samples in the host's memory.
pub(super) type Prepare<'p> = dyn Fn(usize) + Send + Sync + 'p;

/// Queue of prepared batches.
struct Fed<'p> {
    prepare: &'p Prepare<'p>,
    samples: usize,
    /// `None` without workers.
    prepared: Option<Receiver<()>>,
}

impl Fed<'_> {
    /// Waits for a prepared batch, or prepares it. Returns the time that it took.
    ///
    /// # Panics
    ///
    /// When no worker is left, as all of them have panicked.
    pub(super) fn take(&mut self) -> Duration {
        let begin = Instant::now();
        match &self.prepared {
            Some(prepared) => prepared.recv().expect("the preparation of a batch panicked"),
            None => (self.prepare)(self.samples),
        }
        begin.elapsed()
    }
}

/// Runs a function on batches of so many samples, which workers prepare meanwhile. As with the session's loader,
/// `prefetch` batches wait, and each worker prepares one more.
///
/// # Panics
///
/// When the preparation does.
fn feeding<T>(
    prepare: &Prepare<'_>,
    samples: usize,
    Feed { workers, prefetch }: Feed,
    work: impl FnOnce(&mut Fed<'_>) -> T,
) -> T {
    if workers == 0 {
        return work(&mut Fed { prepare, samples, prepared: None });
    }
    let (sender, prepared) = sync_channel(usize::try_from(prefetch).unwrap_or(usize::MAX).clamp(1, MOST_WAITING));
    thread::scope(|scope| {
        for _ in 0..workers {
            let sender = sender.clone();
            scope.spawn(move || prepare_on(prepare, samples, &sender));
        }
        drop(sender);
        // Workers end when it is dropped, also where the work panics.
        work(&mut Fed { prepare, samples, prepared: Some(prepared) })
    })
}

/// The channel's buffer is made at once.
const MOST_WAITING: usize = 1 << 16;

fn prepare_on(prepare: &Prepare<'_>, samples: usize, to: &SyncSender<()>) {
    loop {
        prepare(samples);
        if to.send(()).is_err() {
            return;
        }
    }
}

/// From one look to the next; the driver's own sample period is longer.
const EVERY: Duration = Duration::from_millis(100);

/// Reads the GPU's utilisation in percent; `None` if the driver does not report it.
type ReadUtilization = dyn FnMut() -> Option<u32> + Send;

/// Sampler of the GPU, if there is one.
#[derive(Clone, Default)]
pub(super) struct DeviceSampler(Option<Arc<Mutex<ReadUtilization>>>);

/// Utilisation over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Utilization {
    pub(super) gpu_percent: Option<f64>,
    pub(super) cpu_percent: Option<f64>,
}

/// Sampling period.
struct Watch {
    begin: Instant,
    cpu_before: Option<Duration>,
    end: Option<Sender<()>>,
    looking: Option<JoinHandle<Vec<u32>>>,
}

impl DeviceSampler {
    /// Looks through the driver's management library, at `library` or at one of its usual places, if it is there.
    #[cfg(feature = "nvml")]
    pub(super) fn on(gpu: &GpuReading, library: Option<&Path>) -> Self {
        match gpu_tuned_nvml::Gauge::open(library, gpu) {
            Ok(gauge) => {
                let mut gauge = Some(gauge);
                Self::with(move || match gauge.as_mut()?.read() {
                    Ok(load) => load.utilisation_percent,
                    Err(reason) => {
                        tracing::info!("the GPU's utilisation is no longer known: {reason}");
                        gauge = None;
                        None
                    }
                })
            }
            Err(error) => {
                tracing::info!("the GPU's utilisation is not known: {error}");
                Self::default()
            }
        }
    }

    #[cfg(not(feature = "nvml"))]
    pub(super) fn on(_: &GpuReading, _: Option<&Path>) -> Self {
        Self::default()
    }

    #[cfg_attr(not(any(feature = "nvml", test)), expect(dead_code, reason = "there is nothing to look through"))]
    fn with(look: impl FnMut() -> Option<u32> + Send + 'static) -> Self {
        Self(Some(Arc::new(Mutex::new(look))))
    }

    fn watch(&self) -> Watch {
        let (end, ended) = channel();
        let looking = self.0.clone().and_then(|look| {
            let looked = move || {
                let mut seen = Vec::new();
                // The first period still has what was before.
                while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
                    seen.extend(look.lock().unwrap_or_else(PoisonError::into_inner)());
                }
                seen
            };
            thread::Builder::new().name("watch".to_owned()).spawn(looked).ok()
        });
        Watch { begin: Instant::now(), cpu_before: cpu_time(), end: Some(end), looking }
    }
}

impl Watch {
    /// Ends the period, and returns its utilisation.
    pub(super) fn end(mut self) -> Utilization {
        let wall = self.begin.elapsed().as_secs_f64();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let spent = self.cpu_before.and_then(|before| Some(cpu_time()?.saturating_sub(before).as_secs_f64()));
        let share = spent.map(|spent| 100.0 * spent / (wall * cores as f64));
        let seen = self.stop();
        let mean = || seen.iter().copied().map(f64::from).sum::<f64>() / seen.len() as f64;
        let gpu_percent = (!seen.is_empty()).then(mean);
        Utilization { gpu_percent, cpu_percent: share.map(|percent| percent.clamp(0.0, 100.0)) }
    }

    fn stop(&mut self) -> Vec<u32> {
        drop(self.end.take());
        self.looking.take().and_then(|looking| looking.join().ok()).unwrap_or_default()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop();
    }
}

/// CPU time of this process, on all cores.
fn cpu_time() -> Option<Duration> {
    let process = sysinfo::get_current_pid().ok()?;
    let mut system = System::new();
    let wanted = ProcessRefreshKind::nothing().with_cpu();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&[process]), false, wanted);
    Some(Duration::from_millis(system.process(process)?.accumulated_cpu_time()))
}

#[cfg(test)]
mod tests;
