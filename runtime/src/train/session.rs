//! The trainer of a session.

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{MemoryEstimate, plan};
use gpu_tuned_core::{Bytes, Goal, Pins};

use super::Trainer;
use crate::session::Session;
use crate::tuned::Tuned;

impl<C: Tuned> Session<C> {
    /// A trainer of `model`, which was made on [`device`](Self::device): its steps are cut into the planned micro-batches,
    /// and into others that are planned for the memory that is left, should it run out.
    ///
    /// ```
    /// use burn::nn::{Linear, LinearConfig};
    /// use burn::optim::AdamWConfig;
    /// use burn::tensor::Tensor;
    /// use gpu_tuned::gpu_tuned;
    ///
    /// #[gpu_tuned(mlp(widths = [8, 1]), global_batch = 32, target = "generic")]
    /// #[derive(Clone, Debug)]
    /// struct Config {
    ///     #[tuned]
    ///     batch_size: usize,
    /// }
    ///
    /// let session = gpu_tuned::Options::default().cpu().start(Config::default())?;
    /// let device = session.device();
    /// let model = LinearConfig::new(8, 1).init(&device);
    /// let mut trainer = session.trainer(model, AdamWConfig::new().init());
    /// let batch = Tensor::<2>::ones([32, 8], &device);
    /// let step = trainer.step(1e-3, batch, |model: &Linear, input| model.forward(input).powi_scalar(2).mean())?;
    /// assert!(step.applied);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn trainer<M: Module>(&self, model: M, optimizer: ModuleOptimizer) -> Trainer<M> {
        let settings = self.plan().settings;
        let memory = &self.plan().memory;
        let micro_batch = usize::try_from(settings.batch_size).unwrap_or(usize::MAX);
        let (facts, workload) = (self.facts(), self.workload().clone());
        let mut pins = Pins::default();
        pins.gradient_checkpointing = Some(settings.gradient_checkpointing);
        pins.precision = Some(settings.precision);
        let goal = Goal {
            global_batch: Some(self.schedule().global_batch),
            world_size: self.schedule().world_size,
            pins,
            ..Goal::default()
        };
        let replan = move |available| {
            let facts = DeviceFacts { memory_available: available, ..facts.clone() };
            let plan = plan(&facts, &workload, &goal)?;
            Ok(usize::try_from(plan.settings.batch_size).unwrap_or(usize::MAX))
        };
        Trainer::new(model, optimizer, self.device(), micro_batch)
            .hold_twice(held_twice(memory))
            .replanning(self.available(memory), replan)
    }

    /// What is left for training, once the memory pools gave back what they do not need: what is free, and what this
    /// process holds.
    #[cfg(feature = "cuda")]
    fn available(&self, memory: &MemoryEstimate) -> impl Fn() -> Option<Bytes> + Send + 'static {
        let (device, gpu) = (self.inner_device(), self.opened.gpu.clone());
        let opening = memory.context + memory.kernels;
        move || {
            let held = Bytes(device.memory_pool_usage()?.bytes_reserved);
            let free = crate::burn::memory_free(&gpu.as_ref()?.gpu).ok()?;
            Some(free + held + opening)
        }
    }

    /// A CPU's memory pages out before it runs out.
    #[cfg(not(feature = "cuda"))]
    fn available(&self, _: &MemoryEstimate) -> impl Fn() -> Option<Bytes> + Send + 'static {
        || None
    }
}

/// As much as what the forward pass keeps: it is free again when the optimizer runs.
fn held_twice(memory: &MemoryEstimate) -> Bytes {
    memory.activations + memory.scratch
}
