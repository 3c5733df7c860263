//! The gradients of one optimizer step, micro-batch by micro-batch.

use std::ops::Range;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};

use super::MicroBatch;
use super::failure::{Moment, OutOfMemory, Stopped, watched};
use crate::course::{Clock, Phase};
use crate::mixed::{clip, global_norm};

/// What a micro-batch brings to a step; on the device, and not read yet.
pub(super) struct Part<T> {
    /// The sum so far and those of its share of the mean loss.
    pub gradients: GradientsParams,
    /// Its share of the mean loss, in f32, of shape `[1]`, where it is known.
    pub loss: Option<Tensor<1>>,
    pub output: T,
}

/// What a step's micro-batches add up to; on the device, and not read yet.
pub(super) struct Attempt<T> {
    pub gradients: GradientsParams,
    /// Mean over the samples of the step, in f32, of shape `[1]`; zero where it is not known.
    pub loss: Tensor<1>,
    /// Of each micro-batch.
    pub outputs: Vec<T>,
}

/// Samples of one micro-batch after another; together all of them.
fn cuts(samples: usize, micro_batch: usize) -> impl Iterator<Item = Range<usize>> {
    (0..samples).step_by(micro_batch).map(move |begin| begin..(begin + micro_batch).min(samples))
}

fn zero(device: &Device) -> Tensor<1> {
    Tensor::zeros([1], (&device.clone().without_autodiff(), DType::F32))
}

impl<T> Attempt<T> {
    /// Computes the gradients of the mean loss over all samples of `batch`; `part` does it for a micro-batch that holds so
    /// large a share of them, and adds them to a sum.
    ///
    /// Nothing is read, so that the host runs ahead of the device.
    pub(super) fn run<M: Module, B: MicroBatch>(
        model: &M,
        batch: &B,
        micro_batch: usize,
        device: &Device,
        clock: &Clock,
        part: impl Fn(&M, B, f64, GradientsParams) -> Result<Part<T>, Stopped>,
    ) -> Result<Self, Stopped> {
        let samples = batch.len();
        let mut sum = GradientsParams::new();
        let mut mean: Option<Tensor<1>> = None;
        let mut outputs = Vec::new();
        for cut in cuts(samples, micro_batch) {
            let share = cut.len() as f64 / samples as f64;
            let Part { gradients, loss, output } = clock.micro_batch(cut.len(), || {
                let upload = || watched(Moment::Upload, || batch.narrow(cut).on_device(device));
                part(model, clock.time(Phase::Upload, upload)?, share, sum)
            })?;
            sum = gradients;
            mean = match (mean, loss) {
                (Some(mean), Some(loss)) => Some(mean + loss),
                (known, other) => known.or(other),
            };
            outputs.push(output);
        }
        Ok(Self { gradients: sum, loss: mean.unwrap_or_else(|| zero(device)), outputs })
    }

    /// Norm of all gradients together, of shape `[1]`; and scales them down where it is larger than `most`. The device
    /// decides it.
    pub(super) fn clipped<M: Module>(
        mut self,
        model: &M,
        most: Option<f32>,
        device: &Device,
    ) -> Result<(Self, Tensor<1>), OutOfMemory> {
        let norm = watched(Moment::Backward, || global_norm(&self.gradients, model))?;
        let norm = norm.unwrap_or_else(|| zero(device));
        if let Some(most) = most {
            self.gradients = clip(self.gradients, model, &norm, f64::from(most));
        }
        Ok((self, norm))
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
