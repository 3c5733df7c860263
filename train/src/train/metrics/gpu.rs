//! Metrics of the GPU.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::TensorReadError;
use burn::train::metric::{
    Metric, MetricAttributes, MetricMetadata, MetricName, Numeric, NumericAttributes, NumericEntry, SerializedEntry,
};
use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;

use super::sampler::{Load, Sampler};
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
        Self::with(Sampler::new(Some(gpu.clone()), library))
    }

    /// No GPU: nothing is shown of it.
    pub(super) fn none() -> Self {
        Self::with(Sampler::new(None, None))
    }

    pub(super) fn with(sampler: Sampler) -> Self {
        Self(Arc::new(Mutex::new(sampler)))
    }

    /// Its memory.
    pub fn memory(&self) -> GpuMemory {
        GpuMemory { gpu: self.clone(), total: None, series: Series::default() }
    }

    /// Utilisation of the GPU.
    pub fn utilisation(&self) -> GpuUtilisation {
        GpuUtilisation { gpu: self.clone(), series: Series::default() }
    }

    /// Latest sample, with its number.
    fn latest<T>(&self, read: impl Fn(&Load) -> Option<T>) -> Result<(u64, T), Cow<'static, str>> {
        let (number, load) = self.0.lock().unwrap_or_else(PoisonError::into_inner).latest()?;
        Ok((number, read(&load).ok_or(Cow::Borrowed("the driver does not tell it"))?))
    }
}

/// Used GPU memory in GiB, as the driver counts it: by all processes, including contexts, kernels and free pages of
/// Burn's pools. `Device::memory_pool_usage` has the part of Burn's tensors.
#[derive(Clone, Debug)]
pub struct GpuMemory {
    gpu: Gpu,
    total: Option<Bytes>,
    series: Series,
}

/// Share of the time in which a kernel ran on the GPU, of any process, in percent. A kernel that uses a small part of the
/// GPU counts in full; a GPU at 100% need not be a well used one.
#[derive(Clone, Debug)]
pub struct GpuUtilisation {
    gpu: Gpu,
    series: Series,
}

impl GpuMemory {
    fn seen(&mut self, _: &MetricMetadata) -> Result<(u64, f64), Cow<'static, str>> {
        let (number, (used, total)) = self.gpu.latest(|load| Some((load.memory_used?, load.memory_total)))?;
        self.total = total;
        Ok((number, used.gib()))
    }

    fn text(&self, gib: f64) -> String {
        match self.total {
            Some(total) => format!("{gib:.2} of {:.2} GiB", total.gib()),
            None => format!("{gib:.2} GiB"),
        }
    }
}

impl GpuUtilisation {
    fn seen(&self, _: &MetricMetadata) -> Result<(u64, f64), Cow<'static, str>> {
        self.gpu.latest(|load| load.utilisation_percent.map(f64::from))
    }

    #[expect(clippy::unused_self, reason = "the metric's macro asks every metric")]
    fn text(&self, percent: f64) -> String {
        format!("{percent:.0} %")
    }
}

numeric_metric!(GpuMemory, "GPU Memory", Some("GiB"), "Memory of the GPU that processes hold");
numeric_metric!(GpuUtilisation, "GPU Utilisation", Some("%"), "Share of the time in which a kernel ran on the GPU");
