//! Steps on a CUDA GPU.

use std::time::{Duration, Instant};

use burn::module::Module;
use gpu_tuned_core::Bytes;
use gpu_tuned_train::device::{CudaDevice, memory_free};

use super::bench::Bench;
use super::gpu::Trial;
use super::report::Work;
use super::timed::{Run, run};
use super::{MeasureError, Memory, Step, dry, reserved};

/// The GPU that a session opened.
pub(super) struct OnGpu<'g, 'b, 'a, M, B> {
    pub(super) bench: &'g Bench<'b, 'a, M, B>,
    pub(super) gpu: &'g CudaDevice,
}

impl<M: Module, B: Clone> Trial for OnGpu<'_, '_, '_, M, B> {
    fn dry(&self, step: Step) -> Result<Memory, MeasureError> {
        (self.bench.begins)(Work::Memory(step));
        dry(self.bench.device, self.bench.subject, step)
    }

    fn run(&self, step: Step, spend: Duration) -> Result<Run, MeasureError> {
        (self.bench.begins)(Work::Time(step));
        run(self.bench.device, self.bench.subject, step, spend)
    }

    fn free(&self) -> Result<Bytes, MeasureError> {
        memory_free(self.gpu).map_err(MeasureError::Driver)
    }

    fn held(&self) -> Bytes {
        reserved(self.bench.device).unwrap_or_default()
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}
