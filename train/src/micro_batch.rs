//! Batches that can be cut into micro-batches.

mod unequal_parts;

use std::ops::Range;

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, DType, Device, Int, Tensor};

use crate::device::catching;
use crate::shape::{store, with_autodiff_of};

pub use unequal_parts::UnequalParts;

/// Batch that can be cut into micro-batches.
///
/// Implemented for tensors, whose first dimension counts the samples; for vectors with one element a sample; and for tuples
/// of batches with equal numbers of samples. A struct of such batches derives the trait with `#[derive(MicroBatch)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be cut into micro-batches",
    note = "tensors can, vectors with an element for each sample, and tuples of these; a struct derives `MicroBatch`",
    note = "where samples differ in length, give each a tensor in a `Vec`, or pad them to one tensor",
    note = "a field that is not of each sample is marked `#[micro_batch(shared)]`"
)]
pub trait MicroBatch: Clone + Send + 'static {
    /// Number of samples.
    fn len(&self) -> usize;

    /// Returns true for a batch without samples.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns a range of the samples, in the same order.
    ///
    /// # Panics
    ///
    /// If the range ends beyond [`len`](Self::len).
    #[must_use]
    fn narrow(&self, samples: Range<usize>) -> Self;

    /// Moves the samples to `device`. The result has the device's autodiff, checkpointing and default float type, as if
    /// made there.
    #[must_use]
    fn on_device(self, device: &Device) -> Self;

    /// Returns true if all tensors reached their device. Reads one value of every tensor outside of host memory, because
    /// Burn reports a failed allocation only when a value is read.
    fn has_arrived(&self) -> bool;

    /// Checks that all parts have the same number of samples. Allocates nothing unless they differ: a trainer checks every batch.
    ///
    /// # Errors
    ///
    /// [`UnequalParts`] for the first part that differs. A type without such a check, as by default, has equal parts.
    fn check(&self) -> Result<(), UnequalParts> {
        Ok(())
    }

    /// Bytes of the samples once they are [on `device`](Self::on_device), where types may be wider.
    fn bytes(&self, device: &Device) -> usize;

    /// Copies the samples into the memory of `kept`, which holds as many samples of the same shape and is not used
    /// elsewhere, or into new memory. CUDA graphs read each micro-batch from the same memory.
    ///
    /// `None` if that is impossible: by default, for samples that are not tensors, and if `kept` is unlike them.
    fn store(self, kept: Option<Self>) -> Option<Self> {
        let _ = kept;
        None
    }
}

/// Implements [`MicroBatch`] for a kind of tensor, which takes the device's default type.
macro_rules! tensor {
    ($kind:ty, $setting:ident, |$tensor:ident, $dtype:ident| $cast:expr) => {
        impl<const D: usize> MicroBatch for Tensor<D, $kind> {
            fn len(&self) -> usize {
                self.dims().first().copied().unwrap_or(1)
            }

            fn narrow(&self, samples: Range<usize>) -> Self {
                self.clone().slice_dim(0, samples)
            }

            fn on_device(self, device: &Device) -> Self {
                let plain = device.clone().without_autodiff();
                let $dtype = DType::from(plain.settings().$setting);
                let $tensor = self.without_autodiff();
                let made: Self = if is_upload(&$tensor.device(), &plain) && !matches!($tensor.dtype(), DType::QFloat(_))
                {
                    upload($tensor, &plain, $dtype)
                } else {
                    let $tensor = $tensor.to_device(&plain);
                    if $tensor.dtype() == $dtype { $tensor } else { $cast }
                };
                with_autodiff_of(made, device)
            }

            fn has_arrived(&self) -> bool {
                let corner = || self.clone().slice(std::array::from_fn::<_, D, _>(|_| 0..1)).try_into_data().is_ok();
                let is_empty = self.shape().num_elements() == 0;
                is_empty || self.device() == Device::flex() || catching(corner).unwrap_or(false)
            }

            fn bytes(&self, device: &Device) -> usize {
                self.shape().num_elements() * DType::from(device.settings().$setting).size()
            }

            fn store(self, kept: Option<Self>) -> Option<Self> {
                store(self.without_autodiff(), kept)
            }
        }
    };
}

tensor!(burn::tensor::Float, float_dtype, |tensor, dtype| tensor.cast(dtype));
tensor!(Int, int_dtype, |tensor, dtype| tensor.cast(dtype));
// A device has its own storage for booleans.
tensor!(Bool, bool_dtype, |tensor, _dtype| tensor);

/// Returns true for a transfer out of host memory.
fn is_upload(from: &Device, to: &Device) -> bool {
    let host = Device::flex();
    *from == host && *to != host
}

/// Copies a tensor to a device of another backend. Burn's own copy does not stage the bytes, and fails for booleans, which
/// CUDA stores differently.
fn upload<const D: usize, K: Basic>(tensor: Tensor<D, K>, device: &Device, dtype: DType) -> Tensor<D, K> {
    let mut data = tensor.into_data().convert_dtype(dtype);
    device.staging(std::iter::once(&mut data));
    Tensor::from_data(data, (device, dtype))
}

/// Elements stay where they are: a loss moves tensors in a vector to its device.
impl<T: Clone + Send + 'static> MicroBatch for Vec<T> {
    fn len(&self) -> usize {
        self.len()
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        self[samples].to_vec()
    }

    fn on_device(self, _: &Device) -> Self {
        self
    }

    fn has_arrived(&self) -> bool {
        true
    }

    /// Returns 0: a vector stays in host memory.
    fn bytes(&self, _: &Device) -> usize {
        0
    }
}

/// Implements [`MicroBatch`] for a tuple. The first batch counts the samples, and [`check`](MicroBatch::check) compares the others.
macro_rules! tuple {
    ($($batch:ident $index:tt),+) => {
        impl<$($batch: MicroBatch),+> MicroBatch for ($($batch,)+) {
            fn len(&self) -> usize {
                self.0.len()
            }

            fn narrow(&self, samples: Range<usize>) -> Self {
                ($(self.$index.narrow(samples.clone()),)+)
            }

            fn on_device(self, device: &Device) -> Self {
                ($(self.$index.on_device(device),)+)
            }

            fn has_arrived(&self) -> bool {
                $(self.$index.has_arrived())&&+
            }

            fn check(&self) -> Result<(), UnequalParts> {
                UnequalParts::compare([$((stringify!($index), self.$index.len(), self.$index.check())),+])
            }

            fn bytes(&self, device: &Device) -> usize {
                [$(self.$index.bytes(device)),+].into_iter().sum()
            }

            fn store(self, kept: Option<Self>) -> Option<Self> {
                match kept {
                    Some(kept) => Some(($(self.$index.store(Some(kept.$index))?,)+)),
                    None => Some(($(self.$index.store(None)?,)+)),
                }
            }
        }
    };
}

tuple!(A 0);
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);
tuple!(A 0, B 1, C 2, D 3, E 4);
tuple!(A 0, B 1, C 2, D 3, E 4, F 5);

#[cfg(test)]
mod tests;
