use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{Device, FloatDType, Tensor, TensorReadError};
use serde::{Deserialize, Serialize};

use super::Subject;
use super::pass::{Optimizer, Pass};
use crate::train::witness;

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
    optimizer: Optimizer<M>,
    batch: B,
}

impl<'s, 'a, M: Module, B: Clone> Training<'s, 'a, M, B> {
    pub(super) fn new(subject: &'s Subject<'a, M, B>, step: Step, device: &Device) -> Self {
        let device = step.device(device);
        let (model, optimizer) = subject.begin(&device);
        Self { subject, model, optimizer, batch: subject.batch(step.batch, &device) }
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
        self.passes(micro_batches, || ())
    }

    /// The gradients of a micro-batch that is one of so many. `between` is called between the passes, where there is a place
    /// for it.
    pub(super) fn passes(&self, micro_batches: usize, between: impl FnOnce()) -> GradientsParams {
        self.subject.pass().gradients(&self.model, self.batch.clone(), micro_batches, between)
    }

    /// What `observe` sees between the forward and the backward pass of a micro-batch; nothing where they cannot be told
    /// apart.
    #[cfg(any(feature = "cuda", feature = "counting-allocator"))]
    pub(super) fn after_forward<T>(&self, observe: impl FnOnce() -> T) -> Option<T> {
        self.subject.pass().after_forward(&self.model, self.batch.clone(), observe)
    }

    /// Reads what depends on every step before, a loss or the weights: it alone tells that memory ran out in one of
    /// them. Says whether it is a finite number.
    pub(super) fn check(&self) -> Result<bool, TensorReadError> {
        let value = match self.subject.pass() {
            Pass::Loss(loss) => {
                let loss = loss(&self.model, self.batch.clone());
                let value = loss.clone().inner();
                drop(loss.backward());
                Some(value)
            }
            Pass::Whole(_) => witness(&self.model, |_| true),
        };
        let read = |value: Tensor<1>| value.cast(FloatDType::F32).try_into_scalar::<f32>();
        value.map_or(Ok(true), |value| read(value).map(f32::is_finite))
    }
}
