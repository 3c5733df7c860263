//! Metrics of the GPU, from samples of its load.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry, SerializedEntry,
};
use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;

use super::series::{Series, missing, numeric_metric};

/// GPU of metrics. Clones share their samples.
///
/// Sampled when a metric is updated, at most five times a second, and found by its UUID or PCI address. The session's
/// GPU comes with its [`Metrics`](super::Metrics).
#[derive(Clone, Debug)]
pub struct Gpu(Arc<Mutex<Sampler>>);

impl Gpu {
    /// The GPU that was read as `gpu`, through the driver's management library (NVML) at `library`, or at one of its usual
    /// places. It is opened when a metric is first updated.
    pub fn of(gpu: &GpuReading, library: Option<PathBuf>) -> Self {
        Self::new(EVERY, Ok(through(gpu.clone(), library)))
    }

    /// No GPU: nothing is shown of it.
    pub(super) fn none() -> Self {
        Self::new(EVERY, Err("the session trains on the CPU".to_owned()))
    }

    /// A GPU that is read at most at an interval, or the reason why it is not.
    pub(super) fn new(every: Duration, read: Result<ReadLoad, String>) -> Self {
        Self(Arc::new(Mutex::new(Sampler { every, read, last: None })))
    }

    /// Its memory.
    pub fn memory(&self) -> GpuMemory {
        GpuMemory::new(self.clone())
    }

    /// Utilisation of the GPU.
    pub fn utilisation(&self) -> GpuUtilisation {
        GpuUtilisation::new(self.clone())
    }

    fn sampler(&self) -> MutexGuard<'_, Sampler> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Latest sample, with its number.
    fn latest(&self, read: impl Fn(&Load) -> Option<f64>) -> Result<(u64, f64), String> {
        let (number, load) = self.sampler().latest()?;
        Ok((number, read(&load).ok_or("the driver does not report it")?))
    }
}

numeric_metric! {
    /// Used GPU memory in GiB, as the driver counts it: by all processes, including contexts, kernels and free pages of
    /// Burn's pools. `Device::memory_pool_usage` has the part of Burn's tensors.
    GpuMemory(Gpu): "GPU Memory", Some("GiB"), "Memory of the GPU that processes hold",
    seen: |gpu, _| gpu.latest(|load| load.memory_used.map(Bytes::gib)),
    text: |gpu, gib| match gpu.sampler().last_load().and_then(|load| load.memory_total) {
        Some(total) => format!("{gib:.2} of {:.2} GiB", total.gib()),
        None => format!("{gib:.2} GiB"),
    }
}

numeric_metric! {
    /// Share of the time in which a kernel ran on the GPU, of any process, in percent. A kernel that uses a small part of the
    /// GPU counts in full; a GPU at 100% need not be a well used one.
    GpuUtilisation(Gpu): "GPU Utilisation", Some("%"), "Share of the time in which a kernel ran on the GPU",
    seen: |gpu, _| gpu.latest(|load| load.utilisation_percent.map(f64::from)),
    text: |_, percent| format!("{percent:.0} %")
}

/// From one read to the next. The driver's own sample period is between a sixth of a second and a second.
const EVERY: Duration = Duration::from_millis(200);

/// Load of a GPU at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Load {
    pub memory_used: Option<Bytes>,
    pub memory_total: Option<Bytes>,
    pub utilisation_percent: Option<u32>,
}

/// Reads the load of a GPU.
pub(super) type ReadLoad = Box<dyn FnMut() -> Result<Load, String> + Send>;

/// Samples a GPU at most at an interval, and stops after the first failure.
struct Sampler {
    every: Duration,
    read: Result<ReadLoad, String>,
    last: Option<(Instant, u64, Load)>,
}

impl Sampler {
    /// The latest read and its number, or why there is nothing to see.
    fn latest(&mut self) -> Result<(u64, Load), String> {
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
    fn last_load(&self) -> Option<Load> {
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
