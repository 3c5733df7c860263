//! Batches that can be cut into micro-batches.

mod unequal_parts;

use std::ops::Range;

use burn::tensor::kind::Basic;
use burn::tensor::{Bool, DType, Device, Int, Tensor};

pub use self::unequal_parts::UnequalParts;
use crate::device::catching;
use crate::stored::{store, with_autodiff_of};

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
mod tests {
    use burn::tensor::{Bool, BoolStore, DType, Device, Int, Tensor};

    use super::{MicroBatch, UnequalParts, is_upload, upload};

    fn batch(device: &Device) -> (Tensor<2>, Tensor<1, Int>, Vec<String>) {
        let images = Tensor::from_floats([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], device);
        let labels = Tensor::from_ints([0, 1, 2], device);
        (images, labels, ["a", "b", "c"].map(str::to_owned).to_vec())
    }

    #[test]
    fn every_part_of_a_tuple_is_narrowed_to_the_same_samples() {
        let (images, labels, names) = batch(&Device::flex()).narrow(1..3);
        assert_eq!(images.into_data().try_to_vec::<f32>().unwrap(), [3.0, 4.0, 5.0, 6.0]);
        assert_eq!(labels.into_data().iter::<i64>().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(names, ["b", "c"]);
    }

    /// Field, samples, first and expected of the error.
    fn unequal(batch: &impl MicroBatch) -> Option<(String, usize, String, usize)> {
        batch.check().err().map(|UnequalParts { field, samples, first, expected }| (field, samples, first, expected))
    }

    #[test]
    fn parts_of_unequal_length_are_named_with_both_lengths() {
        let rows = |samples: usize| Tensor::<2>::zeros([samples, 3], &Device::flex());
        let named =
            |field: &str, samples, first: &str, expected| Some((field.to_owned(), samples, first.to_owned(), expected));
        assert_eq!(unequal(&(rows(4), rows(8))), named("1", 8, "0", 4));
        assert_eq!(unequal(&(rows(4), vec!["a"; 4], rows(3))), named("2", 3, "0", 4));
        assert_eq!(unequal(&(rows(1), rows(4))), named("1", 4, "0", 1), "one row is no broadcast");
        assert_eq!(unequal(&(rows(4), rows(0))), named("1", 0, "0", 4));
        // Nested: parts of an inner batch, the inner batch among the outer ones.
        assert_eq!(unequal(&((rows(4), rows(4)), (rows(4), vec![0; 2]))), named("1.1", 2, "1.0", 4));
        assert_eq!(unequal(&(rows(4), (rows(2), rows(2)))), named("1", 2, "0", 4));
        for equal in [0, 1, 4] {
            assert_eq!(unequal(&(rows(equal), vec!["a"; equal], (rows(equal), rows(equal)))), None);
        }
        assert_eq!(unequal(&(rows(4),)), None);
    }

    #[test]
    fn the_message_has_the_lengths_and_the_remedies() {
        let error = (vec![0; 4], vec![0; 10]).check().unwrap_err().to_string();
        for part in
            ["`batch.1` has 10 elements", "`batch.0` has 4", "padded tensor", "`Vec`", "`#[micro_batch(shared)]`"]
        {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn a_batch_is_on_a_device_as_if_it_had_been_made_there() {
        let plain = Device::flex();
        for device in [plain.clone(), plain.clone().autodiff(), plain.clone().autodiff().gradient_checkpointing()] {
            let (images, labels, _) = batch(&plain.clone().autodiff()).on_device(&device);
            let made = batch(&device);
            assert_eq!(images.gradient_checkpointing_strategy(), made.0.gradient_checkpointing_strategy());
            assert_eq!(labels.gradient_checkpointing_strategy(), made.1.gradient_checkpointing_strategy());
        }
    }

    #[test]
    fn real_numbers_get_the_float_type_of_the_device() {
        let device = Device::flex();
        let doubles = Tensor::<1>::from_data([1.5, 2.5], (&device, DType::F64));
        assert_eq!(MicroBatch::on_device(doubles, &device).dtype(), DType::F32);
    }

    /// Uploads within one backend: the data pass through the calls of an upload to another.
    #[test]
    fn what_is_uploaded_keeps_its_values_in_the_type_of_the_device() {
        let device = Device::flex();
        let doubles = Tensor::<2>::from_data([[1.5, 2.5], [3.5, 4.5]], (&device, DType::F64)).transpose();
        let floats = upload(doubles, &device, DType::F32);
        assert_eq!(floats.dtype(), DType::F32);
        assert_eq!(floats.into_data().try_to_vec::<f32>().unwrap(), [1.5, 3.5, 2.5, 4.5]);
        let ints = upload(Tensor::<1, Int>::from_ints([7, -8], &device), &device, DType::I32);
        assert_eq!((ints.dtype(), ints.into_data().try_to_vec::<i32>().unwrap()), (DType::I32, vec![7, -8]));
        let bools = Tensor::<1, Bool>::from_data([true, false], &device);
        let stored = upload(bools, &device, DType::Bool(BoolStore::U8));
        assert_eq!(stored.into_data().iter::<bool>().collect::<Vec<_>>(), [true, false]);
    }

    #[test]
    fn only_what_leaves_the_host_is_an_upload() {
        let device = Device::flex();
        assert!(!is_upload(&device, &device.clone().autodiff()));
    }

    #[test]
    fn stored_samples_stay_in_their_memory() {
        let device = Device::flex();
        let (images, labels, _) = batch(&device.clone().autodiff());
        let kept = (images.clone(), labels.clone()).store(None).expect("tensors");
        assert!(!kept.0.is_autodiff() && kept.0.can_mut() && kept.1.can_mut());
        let other = (images.clone().mul_scalar(2.0), labels.clone().add_scalar(1));
        let kept = other.store(Some(kept)).expect("samples of the same shape");
        assert_eq!(kept.0.to_data().try_to_vec::<f32>().unwrap(), [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert_eq!(kept.1.to_data().iter::<i64>().collect::<Vec<_>>(), [1, 2, 3]);
        assert!(kept.0.can_mut());

        // In memory that something else reads, of another shape, of no tensors.
        let reader = kept.0.clone();
        assert!((images.clone(), labels.clone()).store(Some(kept)).is_none());
        assert_eq!(reader.to_data().try_to_vec::<f32>().unwrap()[..1], [2.0]);
        let fewer = (images.clone(), labels.clone()).narrow(0..2).store(None);
        assert!((images, labels).store(fewer).is_none());
        assert!(vec!["a"].store(None).is_none());
    }

    #[test]
    fn bytes_are_those_of_the_tensors() {
        let (images, labels, names) = batch(&Device::flex());
        let ints = labels.dtype().size();
        assert_eq!((images, labels, names).bytes(&Device::flex()), 6 * 4 + 3 * ints);
    }

    #[test]
    fn what_is_wider_on_the_device_weighs_what_it_will_there() {
        let device = Device::flex();
        let pixels = Tensor::<1, Int>::from_data([1_u8, 2, 3], (&device, DType::U8));
        let halves = Tensor::<1>::from_data([1.5, 2.5, 3.5], (&device, DType::F16));
        let flags = Tensor::<1, Bool>::from_data([true, false, true], &device);
        let weight = (pixels.clone(), halves.clone(), flags.clone()).bytes(&device);
        let there = (pixels, halves, flags).on_device(&device);
        let sizes = [there.0.dtype(), there.1.dtype(), there.2.dtype()].map(|dtype| dtype.size());
        assert_eq!((weight, sizes[1]), (3 * sizes.iter().sum::<usize>(), 4));
        assert!(sizes[0] > 1);
    }
}
