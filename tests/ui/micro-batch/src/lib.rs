//! A stand-in for `gpu_tuned::MicroBatch`, so that the cases need no Burn.

use std::ops::Range;

#[path = "../../../../train/src/micro_batch/unequal_parts.rs"]
mod unequal_parts;

pub use unequal_parts::UnequalParts;

/// What the derive implements.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be cut into micro-batches",
    note = "tensors can, vectors with an element for each sample, and tuples of these; a struct derives `MicroBatch`",
    note = "where samples differ in length, give each a tensor in a `Vec`, or pad them to one tensor",
    note = "a field that is not of each sample is marked `#[micro_batch(shared)]`"
)]
pub trait MicroBatch: Clone + Send + 'static {
    /// Samples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some of the samples.
    #[must_use]
    fn narrow(&self, samples: Range<usize>) -> Self;

    /// The same on a device.
    #[must_use]
    fn on_device(self, device: &__private::Device) -> Self;

    /// Whether all of it is there.
    fn has_arrived(&self) -> bool;

    /// Compares the parts.
    ///
    /// # Errors
    ///
    /// The first part with another length.
    fn check(&self) -> Result<(), UnequalParts> {
        Ok(())
    }

    /// Bytes on a device.
    fn bytes(&self, device: &__private::Device) -> usize;

    /// The same in other memory.
    fn store(self, kept: Option<Self>) -> Option<Self> {
        kept
    }
}

/// What generated code names.
pub mod __private {
    pub use crate::unequal_parts::UnequalParts;

    /// Stands for Burn's device.
    #[derive(Debug)]
    pub struct Device;
}

/// Stands for Burn's tensor: the samples that are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tensor(pub Range<usize>);

impl MicroBatch for Tensor {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        Self(self.0.start + samples.start..self.0.start + samples.end)
    }

    fn on_device(self, _: &__private::Device) -> Self {
        self
    }

    fn has_arrived(&self) -> bool {
        true
    }

    fn bytes(&self, _: &__private::Device) -> usize {
        self.0.len()
    }

    fn store(self, kept: Option<Self>) -> Option<Self> {
        // Memory of another size cannot be used again.
        kept.is_none_or(|kept| kept.len() == self.len()).then_some(self)
    }
}
