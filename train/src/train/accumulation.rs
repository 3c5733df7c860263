//! Gradients of an optimizer step, accumulated over its micro-batches.

use std::ops::Range;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};

use super::step_failure::StepFailure;
use crate::micro_batch::MicroBatch;
use crate::mixed::{clip, global_norm};
use crate::out_of_memory::{Moment, OutOfMemory, watched};
use crate::timing::{Phase, StepTimer};

/// Gradients of a micro-batch, pending on the device.
pub(super) struct MicroBatchGradients<T> {
    /// Gradients of this micro-batch, or their sum so far.
    pub gradients: GradientsParams,
    /// Share of the mean loss, in fp32 and of shape `[1]`, if available.
    pub loss: Option<Tensor<1>>,
    /// Output of the training step.
    pub output: T,
}

/// Gradients of all micro-batches of a step, pending on the device.
pub(super) struct AccumulatedGradients<T> {
    pub gradients: GradientsParams,
    /// Mean loss over the samples of the step, in fp32 and of shape `[1]`; zero if unknown.
    pub loss: Tensor<1>,
    /// Outputs of the micro-batches.
    pub outputs: Vec<T>,
}

/// Ranges of samples, one a micro-batch.
fn cuts(samples: usize, micro_batch: usize) -> impl Iterator<Item = Range<usize>> {
    (0..samples).step_by(micro_batch).map(move |begin| begin..(begin + micro_batch).min(samples))
}

fn zero(device: &Device) -> Tensor<1> {
    Tensor::zeros([1], (&device.clone().without_autodiff(), DType::F32))
}

impl<T> AccumulatedGradients<T> {
    /// Computes the gradients of the mean loss over all samples of `batch`. `part` adds the gradients of a micro-batch, with the
    /// given share of the samples, to a sum.
    ///
    /// Reads no value, so the host runs ahead of the device.
    pub(super) fn compute<M: Module, B: MicroBatch>(
        model: &M,
        batch: &B,
        micro_batch: usize,
        device: &Device,
        timer: &StepTimer,
        part: impl Fn(&M, B, f64, GradientsParams) -> Result<MicroBatchGradients<T>, StepFailure>,
    ) -> Result<Self, StepFailure> {
        let samples = batch.len();
        let mut sum = GradientsParams::new();
        let mut mean: Option<Tensor<1>> = None;
        let mut outputs = Vec::new();
        for cut in cuts(samples, micro_batch) {
            let share = cut.len() as f64 / samples as f64;
            let MicroBatchGradients { gradients, loss, output } = timer.micro_batch(cut.len(), || {
                let upload = || watched(Moment::Upload, || batch.narrow(cut).on_device(device));
                part(model, timer.time(Phase::Upload, upload)?, share, sum)
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

    /// Clips the gradients to a global norm of at most `max`, on the device. Returns the norm before, of shape `[1]`.
    pub(super) fn clipped<M: Module>(
        mut self,
        model: &M,
        max: Option<f32>,
        device: &Device,
    ) -> Result<(Self, Tensor<1>), OutOfMemory> {
        let norm = watched(Moment::Backward, || global_norm(&self.gradients, model))?;
        let norm = norm.unwrap_or_else(|| zero(device));
        if let Some(max) = max {
            self.gradients = clip(self.gradients, model, &norm, f64::from(max));
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
