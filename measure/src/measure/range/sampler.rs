//! Samples of GPU and CPU utilisation while steps are timed.

use std::path::Path;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use gpu_tuned_core::device::GpuReading;
use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

/// From one look to the next; the driver's own sample period is longer.
const EVERY: Duration = Duration::from_millis(100);

/// GPU utilisation in percent; `None` if the driver does not report it.
pub(super) type ReadUtilization = dyn FnMut() -> Option<u32> + Send;

/// Sampler of the GPU, if there is one.
#[derive(Clone, Default)]
pub(super) struct DeviceSampler(Option<Arc<Mutex<ReadUtilization>>>);

/// Utilisation over a period.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Utilization {
    pub(super) gpu_percent: Option<f64>,
    pub(super) cpu_percent: Option<f64>,
}

/// Sampling period.
pub(super) struct Watch {
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

    pub(super) fn watch(&self) -> Watch {
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
        Utilization { gpu_percent: mean(&self.stop()), cpu_percent: share.map(|percent| percent.clamp(0.0, 100.0)) }
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

fn mean(seen: &[u32]) -> Option<f64> {
    (!seen.is_empty()).then(|| seen.iter().copied().map(f64::from).sum::<f64>() / seen.len() as f64)
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
mod tests {
    use std::time::{Duration, Instant};
    use std::{fs, thread};

    use super::DeviceSampler;

    /// CPU seconds of this thread, from the kernel's scheduler; `None` if not reported.
    fn had_so_far() -> Option<f64> {
        let scheduled = fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        let nanoseconds = scheduled.split_whitespace().next()?.parse::<f64>().ok()?;
        (nanoseconds > 0.0).then_some(nanoseconds / 1e9)
    }

    #[test]
    fn a_core_that_is_busy_is_its_part_of_all_cores() {
        let (watch, before) = (DeviceSampler::default().watch(), had_so_far());
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(400) {
            std::hint::black_box((0..1000_u64).sum::<u64>());
        }
        let had = had_so_far().zip(before).map_or(0.25, |(after, before)| after - before);
        let seen = watch.end();
        let cores = thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let least = 75.0 * had / (begin.elapsed().as_secs_f64() * cores);
        assert!(seen.gpu_percent.is_none());
        // Other tests of this process count along, and those of others may leave this one little.
        assert!(seen.cpu_percent.is_some_and(|percent| (least..=100.0).contains(&percent)), "{seen:?}, {least}");
    }

    #[cfg(feature = "nvml")]
    #[test]
    fn the_gpu_is_the_one_that_is_worked_on() {
        fake_nvml::play("two-gpus", |library| {
            let gpus = gpu_tuned_nvml::read(Some(library)).expect("a driver").gpus;
            let busy = gpus.iter().map(|gpu| {
                let eye = DeviceSampler::on(gpu, Some(library));
                let look = eye.0.expect("the GPU is found");
                // On this thread, which the scenario is played to.
                let mut look = look.lock().expect("nobody panicked");
                look()
            });
            assert_eq!(busy.collect::<Vec<_>>(), [Some(3), Some(97)]);
        });
        let unknown = gpu_tuned_core::device::GpuReading::default();
        assert!(DeviceSampler::on(&unknown, Some(std::path::Path::new("/nonexistent/libnvidia-ml.so.1"))).0.is_none());
    }

    #[test]
    fn the_gpu_is_looked_at_until_it_ends() {
        let mut percent = [40, 60].into_iter().cycle();
        let eye = DeviceSampler::with(move || percent.next());
        let watch = eye.watch();
        thread::sleep(Duration::from_millis(350));
        let seen = watch.end().gpu_percent.expect("it was looked at");
        assert!((40.0..=60.0).contains(&seen), "{seen}");
        drop(eye.watch());
        assert_eq!(DeviceSampler::with(|| None).watch().end().gpu_percent, None);
    }
}
