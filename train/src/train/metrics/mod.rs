//! Metrics of steps and of the GPU, for Burn's training loop.

mod gpu;
mod history;
mod logger;
mod report;
mod sampler;
mod series;
mod steps;
#[cfg(all(test, feature = "nvml"))]
mod tests;

pub use gpu::{Gpu, GpuMemory, GpuUtilisation};
#[doc(hidden)]
pub use history::StepHistory;
pub use logger::RecordedMetrics;
pub use report::GradientReport;
pub use steps::{GradientNorm, LossScale, MicroBatch};

use gpu_tuned_core::device::GpuReading;

use super::Step;

/// Metrics of a session's steps and of its GPU.
#[derive(Clone, Debug)]
pub struct Metrics {
    history: StepHistory,
    gpu: Gpu,
}

impl Metrics {
    /// Metrics of the steps in `history`, and of a GPU.
    #[doc(hidden)]
    pub fn new(history: StepHistory, gpu: Option<&GpuReading>) -> Self {
        Self { history, gpu: gpu.map_or_else(Gpu::none, |gpu| Gpu::of(gpu, None)) }
    }

    /// The same, with another GPU, or with a driver's library that is at none of its usual places.
    #[must_use]
    pub fn with_gpu(self, gpu: Gpu) -> Self {
        Self { gpu, ..self }
    }

    /// Used GPU memory, in GiB.
    pub fn gpu_memory(&self) -> GpuMemory {
        self.gpu.memory()
    }

    /// Share of the time in which a kernel ran on the GPU, in percent.
    pub fn gpu_utilisation(&self) -> GpuUtilisation {
        self.gpu.utilisation()
    }

    /// Samples in each micro-batch of a step.
    pub fn micro_batch(&self) -> MicroBatch {
        MicroBatch::new(self.history.clone())
    }

    /// Loss scale, for gradients in fp16.
    pub fn loss_scale(&self) -> LossScale {
        LossScale::new(self.history.clone())
    }

    /// Norm of all gradients of a step together.
    pub fn gradient_norm(&self) -> GradientNorm {
        GradientNorm::new(self.history.clone())
    }

    /// Counts of gradient values, parameter by parameter. Requests counts from the strategy, in the first step of a
    /// training run and in every `every`th after it; the last request counts.
    pub fn gradient_health(&self, every: u64) -> GradientReport {
        self.history.request_health(every);
        GradientReport::new(self.history.clone())
    }

    /// Result of the last step; `None` before the first. Its loss is zero, because Burn's loop computes the loss: see
    /// Burn's `LossMetric`.
    pub fn last_step(&self) -> Option<Step> {
        self.history.last()
    }
}
