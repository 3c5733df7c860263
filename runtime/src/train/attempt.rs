//! The gradients of one optimizer step, micro-batch by micro-batch.

use std::ops::Range;

use burn::module::Module;
use burn::optim::{GradientsAccumulator, GradientsParams};
use burn::tensor::{DType, Device, FloatDType, Tensor};

use super::MicroBatch;
use super::failure::{Moment, OutOfMemory, watched};
use super::gradients::{global_norm, scaled};

/// Keeps the factor of clipping finite.
const EPSILON: f32 = 1e-6;

/// What a step's micro-batches add up to; on the device, and not read yet.
pub(super) struct Attempt {
    pub gradients: GradientsParams,
    /// Mean over the samples of the step, in f32, of shape `[1]`.
    pub loss: Tensor<1>,
    /// Of the gradients before they were clipped, of shape `[1]`.
    pub norm: Tensor<1>,
    pub micro_batches: usize,
}

/// Samples of one micro-batch after another; together all of them.
fn cuts(samples: usize, micro_batch: usize) -> impl Iterator<Item = Range<usize>> {
    (0..samples).step_by(micro_batch).map(move |begin| begin..(begin + micro_batch).min(samples))
}

impl Attempt {
    /// Computes the gradients of the mean loss over all samples of `batch`.
    ///
    /// Nothing is read, so that the host runs ahead of the device.
    pub(super) fn run<M: Module, B: MicroBatch>(
        model: &M,
        batch: &B,
        micro_batch: usize,
        device: &Device,
        loss: &impl Fn(&M, B) -> Tensor<1>,
    ) -> Result<Self, OutOfMemory> {
        let samples = batch.len();
        let mut sum = GradientsAccumulator::new();
        let mut mean: Option<Tensor<1>> = None;
        let mut micro_batches = 0;
        for cut in cuts(samples, micro_batch) {
            // A mean over all samples: a micro-batch counts by what it holds.
            let share = cut.len() as f64 / samples as f64;
            let micro = watched(Moment::Upload, || batch.narrow(cut).to_device(device))?;
            let loss = watched(Moment::Forward, || loss(model, micro).mul_scalar(share))?;
            let value = loss.clone().without_autodiff().cast(FloatDType::F32);
            watched(Moment::Backward, || {
                sum.accumulate(model, GradientsParams::from_grads(loss.backward(), model));
            })?;
            mean = Some(match mean {
                Some(mean) => mean + value,
                None => value,
            });
            micro_batches += 1;
        }
        let gradients = sum.grads();
        let zero = || Tensor::zeros([1], (&device.clone().without_autodiff(), DType::F32));
        let norm = watched(Moment::Backward, || global_norm(&gradients, model))?;
        let (norm, loss) = (norm.unwrap_or_else(zero), mean.unwrap_or_else(zero));
        Ok(Self { gradients, loss, norm, micro_batches })
    }

    /// Scales all gradients down where their global norm is larger than `most`. The device decides it.
    pub(super) fn clipped<M: Module>(mut self, model: &M, most: Option<f32>) -> Self {
        if let Some(most) = most {
            let factor = (self.norm.clone().add_scalar(EPSILON)).recip().mul_scalar(most).clamp_max(1.0);
            self.gradients = scaled(self.gradients, model, &factor);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::cuts;

    proptest! {
        #[test]
        fn every_sample_is_in_one_micro_batch(samples in 0..3000_usize, micro_batch in 1..700_usize) {
            let cut: Vec<_> = cuts(samples, micro_batch).collect();
            prop_assert!(cut.iter().all(|cut| (1..=micro_batch).contains(&cut.len())));
            prop_assert_eq!(cut.into_iter().flatten().collect::<Vec<_>>(), (0..samples).collect::<Vec<_>>());
        }
    }
}
