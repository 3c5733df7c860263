//! Batch norms and their gradients on host memory, with sums in f64.

use std::ffi::{c_int, c_void};

use crate::objects::{BAD_PARAM, NOT_SUPPORTED, Tensor};
use crate::passes::{BF16, F32, indices, read};

/// A batch norm of tensors with one layout.
pub(crate) struct Norm {
    tensor: Tensor,
    channels: usize,
}

impl Norm {
    /// Checks that shapes and types match. Both tensors have one layout.
    pub(crate) fn new([one, other]: [Tensor; 2], statistics: &Tensor) -> Result<Self, c_int> {
        let channels = one.shape[1];
        let mut of_channels = vec![1; one.shape.len()];
        of_channels[1] = channels;
        let is_one_layout =
            (one.data_type, &one.shape, &one.strides) == (other.data_type, &other.shape, &other.strides);
        if !is_one_layout || statistics.shape != of_channels || statistics.data_type != F32 {
            return Err(BAD_PARAM);
        }
        if [F32, BF16].contains(&one.data_type) { Ok(Self { tensor: one, channels }) } else { Err(NOT_SUPPORTED) }
    }

    /// Places in memory of a channel's numbers.
    fn places(&self, channel: usize) -> Vec<usize> {
        let of_channel = indices(&self.tensor.shape).into_iter().filter(|index| index[1] == channel);
        of_channel.map(|index| self.tensor.place(&index)).collect()
    }

    /// # Safety
    ///
    /// The memory of the tensors is valid.
    pub(crate) unsafe fn train(
        &self,
        [input, output, gamma, beta, mean, variance, saved_mean, deviation]: [*mut c_void; 8],
        factor: f32,
        epsilon: f32,
    ) {
        for channel in 0..self.channels {
            let places = self.places(channel);
            let count = places.len() as f64;
            // SAFETY: by this function's contract.
            let number = |place: usize| unsafe { f64::from(read(self.tensor.data_type, input, place)) };
            let average = places.iter().map(|place| number(*place)).sum::<f64>() / count;
            let squares = places.iter().map(|place| (number(*place) - average).powi(2)).sum::<f64>();
            let reciprocal = 1.0 / (squares / count + f64::from(epsilon)).sqrt();
            // SAFETY: as above.
            unsafe {
                let [gamma, beta] = [gamma, beta].map(|it| f64::from(it.cast::<f32>().add(channel).read()));
                for place in places {
                    self.tensor.write_one(
                        output,
                        place,
                        ((number(place) - average) * reciprocal * gamma + beta) as f32,
                    );
                }
                for (memory, new) in [(mean, average), (variance, squares / (count - 1.0))] {
                    let memory = memory.cast::<f32>().add(channel);
                    memory.write(memory.read() * (1.0 - factor) + new as f32 * factor);
                }
                saved_mean.cast::<f32>().add(channel).write(average as f32);
                deviation.cast::<f32>().add(channel).write(reciprocal as f32);
            }
        }
    }

    /// # Safety
    ///
    /// The memory of the tensors is valid.
    pub(crate) unsafe fn gradients(
        &self,
        [input, gradient, of_input, gamma, of_gamma, of_beta, saved_mean, deviation]: [*mut c_void; 8],
    ) {
        for channel in 0..self.channels {
            let places = self.places(channel);
            let count = places.len() as f64;
            // SAFETY: by this function's contract.
            let of = |memory: *mut c_void| unsafe { f64::from(memory.cast::<f32>().add(channel).read()) };
            let (mean, reciprocal, factor) = (of(saved_mean), of(deviation), of(gamma));
            // SAFETY: as above.
            let number = |memory, place| unsafe { f64::from(read(self.tensor.data_type, memory, place)) };
            let normalised = |place| (number(input, place) - mean) * reciprocal;
            let sum: f64 = places.iter().map(|place| number(gradient, *place)).sum();
            let product: f64 = places.iter().map(|place| number(gradient, *place) * normalised(*place)).sum();
            // SAFETY: as above.
            unsafe {
                for place in places {
                    let rest = number(gradient, place) - sum / count - normalised(place) * product / count;
                    self.tensor.write_one(of_input, place, (rest * factor * reciprocal) as f32);
                }
                of_gamma.cast::<f32>().add(channel).write(product as f32);
                of_beta.cast::<f32>().add(channel).write(sum as f32);
            }
        }
    }
}
