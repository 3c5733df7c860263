//! Metrics of the GPU.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
