//! Samples of a GPU's load.

use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;

/// From one read to the next. The driver's own sample period is between a sixth of a second and a second.
pub(super) const EVERY: Duration = Duration::from_millis(200);

/// Load of a GPU at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    pub memory_used: Option<Bytes>,
    pub memory_total: Option<Bytes>,
    pub utilisation_percent: Option<u32>,
}

/// Reads the load of a GPU.
type ReadLoad = Box<dyn FnMut() -> Result<Load, String> + Send>;

/// Samples a GPU at most at an interval, and stops after the first failure.
pub(super) struct Sampler {
    every: Duration,
    read: Result<ReadLoad, String>,
    last: Option<(Instant, u64, Load)>,
}

impl Sampler {
    /// Looks through the driver's management library, which is opened at the first read.
    pub(super) fn new(gpu: Option<GpuReading>, library: Option<PathBuf>) -> Self {
        match gpu {
            Some(gpu) => Self::with(EVERY, through(gpu, library)),
            None => Self { every: EVERY, read: Err("the session trains on the CPU".to_owned()), last: None },
        }
    }

    pub(super) fn with(every: Duration, read: ReadLoad) -> Self {
        Self { every, read: Ok(read), last: None }
    }

    /// The latest read and its number, or why there is nothing to see.
    pub(super) fn latest(&mut self) -> Result<(u64, Load), String> {
        let read = self.read.as_mut().map_err(|reason| reason.clone())?;
        if let Some((_, number, load)) = self.last.filter(|(time, ..)| time.elapsed() < self.every) {
            return Ok((number, load));
        }
        match read() {
            Ok(load) => {
                let number = self.last.map_or(0, |(_, number, _)| number + 1);
                if number == 0 {
                    warn_of_missing(&load);
                }
                self.last = Some((Instant::now(), number, load));
                Ok((number, load))
            }
            Err(reason) => {
                tracing::warn!("no metrics of the GPU: {reason}");
                self.read = Err(reason.clone());
                Err(reason)
            }
        }
    }

    /// The last load that was read.
    pub(super) fn last_load(&self) -> Option<Load> {
        self.last.map(|(_, _, load)| load)
    }
}

fn warn_of_missing(load: &Load) {
    if load.memory_used.is_none() {
        tracing::warn!("no metric of the GPU's memory: the driver does not report it");
    }
    if load.utilisation_percent.is_none() {
        tracing::warn!("no metric of the GPU's utilisation: the driver does not report it");
    }
}

#[cfg(feature = "nvml")]
fn through(gpu: GpuReading, library: Option<PathBuf>) -> ReadLoad {
    use gpu_tuned_nvml::Gauge;

    let mut opened = None;
    Box::new(move || {
        let gauge = match &mut opened {
            Some(gauge) => gauge,
            None => opened.insert(Gauge::open(library.as_deref(), &gpu).map_err(|error| error.to_string())?),
        };
        let load = gauge.read().map_err(|trouble| trouble.to_string())?;
        Ok(Load {
            memory_used: load.memory_used,
            memory_total: load.memory_total,
            utilisation_percent: load.utilisation_percent,
        })
    })
}

#[cfg(not(feature = "nvml"))]
fn through(_: GpuReading, _: Option<PathBuf>) -> ReadLoad {
    Box::new(|| Err("built without feature `nvml`".to_owned()))
}

impl fmt::Debug for Sampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sampler").field("every", &self.every).field("last", &self.last).finish_non_exhaustive()
    }
}
