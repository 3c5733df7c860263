//! A trainer's first step, taken by a measurement in place of the trainer.

use std::any::Any;
use std::error::Error;

use burn::optim::ModuleOptimizer;
use burn::tensor::Device;

use crate::loss::Loss;
use crate::micro_batch::MicroBatch;

/// Takes a trainer's first step in its place. Returns only with an error: a measurement ends the process.
pub type TakeFirstStep<M> = Box<dyn FnOnce(FirstStep<'_, M>) -> Result<(), Box<dyn Error + Send + Sync>> + Send>;

/// Step that a trainer was about to take.
pub struct FirstStep<'s, M> {
    /// Model as the optimizer updates it.
    pub model: &'s M,
    /// Optimizer.
    pub optimizer: &'s ModuleOptimizer,
    /// Samples of the step.
    pub samples: usize,
    /// Cuts the first samples of the batch, and moves them to a device.
    pub batch: &'s (dyn Fn(usize, &Device) -> AnyBatch + Send + Sync),
    /// Loss of a micro-batch.
    pub loss: &'s (dyn Fn(&M, AnyBatch) -> Loss + Send + Sync),
    /// True if the loss may be in 16 bits in mixed precision.
    pub accepts_half_loss: bool,
}

/// Micro-batch of any type.
pub struct AnyBatch {
    value: Box<dyn Any>,
    clone: fn(&dyn Any) -> Box<dyn Any>,
}

impl AnyBatch {
    pub(super) fn new<B: MicroBatch>(batch: B) -> Self {
        Self { value: Box::new(batch), clone: |batch| Box::new(downcast::<B>(batch).clone()) }
    }

    pub(super) fn into_inner<B: MicroBatch>(self) -> B {
        *self.value.downcast().unwrap_or_else(|_| unreachable!("BUG: a step has batches of one type"))
    }
}

fn downcast<B: MicroBatch>(batch: &dyn Any) -> &B {
    batch.downcast_ref().unwrap_or_else(|| unreachable!("BUG: a clone is of the type of its original"))
}

impl Clone for AnyBatch {
    fn clone(&self) -> Self {
        Self { value: (self.clone)(&*self.value), clone: self.clone }
    }
}
