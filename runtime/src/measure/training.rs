use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, FloatDType, Tensor, TensorReadError};
use serde::{Deserialize, Serialize};

use super::Subject;

/// Small enough that no model leaves the range of its numbers: results are not looked at.
const LEARNING_RATE: f64 = 1e-6;

/// How an optimizer step is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// Samples in a micro-batch.
    pub batch: usize,
    /// Micro-batches whose gradients are added up.
    pub micro_batches: usize,
    /// Whether activations are recomputed in the backward pass.
    pub checkpointing: bool,
}

impl Step {
    /// The device on which such steps are trained.
    pub(super) fn device(self, device: &Device) -> Device {
        let device = device.clone().autodiff();
        if self.checkpointing { device.gradient_checkpointing() } else { device }
    }
}

impl core::fmt::Display for Step {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "batch {}", self.batch)?;
        if self.micro_batches > 1 {
            write!(f, ", {} micro-batches", self.micro_batches)?;
        }
        if self.checkpointing { f.write_str(", checkpointed") } else { Ok(()) }
    }
}

/// A throwaway model in training.
pub(super) struct Training<'s, 'a, M, B> {
    subject: &'s Subject<'a, M, B>,
    model: M,
    optimizer: ModuleOptimizer,
    batch: B,
}

impl<'s, 'a, M: Module, B: Clone> Training<'s, 'a, M, B> {
    pub(super) fn new(subject: &'s Subject<'a, M, B>, step: Step, device: &Device) -> Self {
        let device = step.device(device);
        Self {
            subject,
            model: subject.model(&device),
            optimizer: subject.optimizer(),
            batch: subject.batch(step.batch, &device),
        }
    }

    /// Takes an optimizer step of so many micro-batches.
    pub(super) fn step(self, micro_batches: usize) -> Self {
        let gradients = self.gradients(micro_batches);
        self.optimize(gradients)
    }

    /// The gradients of a step of so many micro-batches.
    pub(super) fn gradients(&self, micro_batches: usize) -> GradientsParams {
        if micro_batches == 1 {
            return self.backward(1);
        }
        let mut accumulator = GradientsAccumulator::new();
        for _ in 0..micro_batches {
            accumulator.accumulate(&self.model, self.backward(micro_batches));
        }
        accumulator.grads()
    }

    /// What the optimizer makes of them.
    pub(super) fn optimize(mut self, gradients: GradientsParams) -> Self {
        self.model = self.optimizer.step(LEARNING_RATE, self.model, gradients);
        self
    }

    fn backward(&self, micro_batches: usize) -> GradientsParams {
        self.gradients_of(&(self.forward() * (1.0 / micro_batches as f64)))
    }

    /// The backward pass of a loss.
    pub(super) fn gradients_of(&self, loss: &Tensor<1>) -> GradientsParams {
        GradientsParams::from_grads(loss.backward(), &self.model)
    }

    /// What `observe` sees between the forward and the backward pass of a micro-batch.
    #[cfg(any(feature = "cuda", feature = "counting-allocator"))]
    pub(super) fn after_forward<T>(&self, observe: impl FnOnce() -> T) -> T {
        let loss = self.forward();
        let seen = observe();
        // What a forward pass keeps is let go by a backward pass alone, this one or the next.
        drop(loss.backward());
        seen
    }

    /// Reads a loss that depends on every step before: it alone tells that memory ran out in one of them.
    pub(super) fn check(&self) -> Result<f32, TensorReadError> {
        let loss = self.forward();
        let value = loss.clone().inner();
        drop(loss.backward());
        value.cast(FloatDType::F32).try_into_scalar::<f32>()
    }

    /// The loss of the batch.
    pub(super) fn forward(&self) -> Tensor<1> {
        self.subject.loss(&self.model, self.batch.clone())
    }
}
