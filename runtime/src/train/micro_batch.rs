use std::ops::Range;

use burn::tensor::{Bool, DType, Device, Int, Tensor};

/// A batch that can be cut into smaller ones: what a training step takes.
///
/// Implemented for tensors, whose first dimension counts the samples; for vectors, of a sample each; and for tuples of
/// batches of equally many samples.
pub trait MicroBatch: Clone + Send + 'static {
    /// Samples.
    fn len(&self) -> usize;

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Some of the samples, in the same order.
    ///
    /// # Panics
    ///
    /// If the range ends beyond [`len`](Self::len).
    #[must_use]
    fn narrow(&self, samples: Range<usize>) -> Self;

    /// The same samples on `device`, as if they had been made there: with its autodiff and gradient checkpointing, or
    /// without, and real numbers in its default float type.
    #[must_use]
    fn to_device(self, device: &Device) -> Self;

    /// Bytes that the samples take on a device.
    fn bytes(&self) -> usize;
}

/// Implements [`MicroBatch`] for tensors of a kind; `$made` is what is left to do once one is on the device.
macro_rules! tensor {
    ($kind:ty, |$tensor:ident, $device:ident| $made:expr) => {
        impl<const D: usize> MicroBatch for Tensor<D, $kind> {
            fn len(&self) -> usize {
                self.dims().first().copied().unwrap_or(1)
            }

            fn narrow(&self, samples: Range<usize>) -> Self {
                self.clone().slice_dim(0, samples)
            }

            fn to_device(self, $device: &Device) -> Self {
                let $tensor = self.without_autodiff().to_device(&$device.clone().without_autodiff());
                let made: Self = $made;
                match $device.gradient_checkpointing_strategy() {
                    Some(strategy) => made.autodiff().with_gradient_checkpointing_strategy(strategy),
                    None => made,
                }
            }

            fn bytes(&self) -> usize {
                self.shape().num_elements() * self.dtype().size()
            }
        }
    };
}

tensor!(burn::tensor::Float, |tensor, device| {
    let float = device.settings().float_dtype;
    if tensor.dtype() == DType::from(float) { tensor } else { tensor.cast(float) }
});
tensor!(Int, |tensor, device| {
    let int = device.settings().int_dtype;
    if tensor.dtype() == DType::from(int) { tensor } else { tensor.cast(int) }
});
tensor!(Bool, |tensor, device| tensor);

impl<T: Clone + Send + 'static> MicroBatch for Vec<T> {
    fn len(&self) -> usize {
        self.len()
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        self[samples].to_vec()
    }

    fn to_device(self, _: &Device) -> Self {
        self
    }

    /// None: it stays in the host's memory.
    fn bytes(&self) -> usize {
        0
    }
}

/// Implements [`MicroBatch`] for a tuple; the first of its batches counts the samples.
macro_rules! tuple {
    ($($batch:ident $index:tt),+) => {
        impl<$($batch: MicroBatch),+> MicroBatch for ($($batch,)+) {
            fn len(&self) -> usize {
                self.0.len()
            }

            fn narrow(&self, samples: Range<usize>) -> Self {
                ($(self.$index.narrow(samples.clone()),)+)
            }

            fn to_device(self, device: &Device) -> Self {
                ($(self.$index.to_device(device),)+)
            }

            fn bytes(&self) -> usize {
                [$(self.$index.bytes()),+].into_iter().sum()
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
    use burn::tensor::{DType, Device, Int, Tensor};

    use super::MicroBatch;

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

    #[test]
    fn a_batch_is_on_a_device_as_if_it_had_been_made_there() {
        let plain = Device::flex();
        for device in [plain.clone(), plain.clone().autodiff(), plain.clone().autodiff().gradient_checkpointing()] {
            let (images, labels, _) = batch(&plain.clone().autodiff()).to_device(&device);
            let made = batch(&device);
            assert_eq!(images.gradient_checkpointing_strategy(), made.0.gradient_checkpointing_strategy());
            assert_eq!(labels.gradient_checkpointing_strategy(), made.1.gradient_checkpointing_strategy());
        }
    }

    #[test]
    fn real_numbers_get_the_float_type_of_the_device() {
        let device = Device::flex();
        let doubles = Tensor::<1>::from_data([1.5, 2.5], (&device, DType::F64));
        assert_eq!(MicroBatch::to_device(doubles, &device).dtype(), DType::F32);
    }

    #[test]
    fn bytes_are_those_of_the_tensors() {
        let (images, labels, names) = batch(&Device::flex());
        let ints = labels.dtype().size();
        assert_eq!((images, labels, names).bytes(), 6 * 4 + 3 * ints);
    }
}
