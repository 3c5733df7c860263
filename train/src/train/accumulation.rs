//! Gradients of an optimizer step, accumulated over its micro-batches.

use std::ops::Range;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor};

use super::buffers::Variances;
use super::outcome::{StepError, StepFailure};
use super::ranks::GradientSums;
use super::stepper::Part;
use crate::loss::{StepWeight, WeightFault};
use crate::micro_batch::MicroBatch;
use crate::mixed::{accumulate, clip_factor, global_norm, multiply};
use crate::out_of_memory::{Moment, OutOfMemory, watched};
use crate::timing::{Phase, StepTimer};

/// Gradients of a micro-batch, pending on the device.
pub(super) struct MicroBatchGradients<T> {
    /// Gradients of the mean loss. Without a weight they may be multiplied by the micro-batch's share of the samples.
    pub gradients: GradientsParams,
    /// The mean loss times its weight or share, in fp32 and of shape `[1]`, if available.
    pub loss: Option<Tensor<1>>,
    /// Weight of the mean loss; `None` for the number of samples.
    pub weight: Option<StepWeight>,
    /// Output of the training step.
    pub output: T,
}

/// Rules by which a step is cut and its gradients are summed.
#[expect(clippy::struct_excessive_bools, reason = "independent rules")]
pub(super) struct Accumulation<'s> {
    /// Samples in a micro-batch at most.
    pub micro_batch: usize,
    /// True if the gradients of several micro-batches or ranks are summed, which takes place in fp32.
    pub widens: bool,
    /// True if gradients are multiplied by their weights, which rounds those in 16 bits. The weight of a step's only mean
    /// cancels out.
    pub weighs: bool,
    /// True if micro-batches have equal sizes, but for one sample. Statistics of a small remainder differ most.
    pub is_even: bool,
    /// True for a model with batch norms until a micro-batch of one sample has passed the check of their statistics.
    pub checks_variance: bool,
    /// Sums over ranks that begin in the backward pass of the last micro-batch.
    pub sums: Option<&'s GradientSums>,
    pub device: &'s Device,
    pub timer: &'s StepTimer,
}

/// Gradients of all micro-batches of a step, pending on the device.
pub(super) struct AccumulatedGradients<T> {
    /// Gradients of the mean over the samples, or if `is_weighted` the sum of weight times gradient.
    pub gradients: GradientsParams,
    /// True if the gradients are to be divided by the sum of the weights.
    pub is_weighted: bool,
    /// Loss that belongs to the gradients, in fp32 and of shape `[1]`; zero if unknown.
    pub loss: Tensor<1>,
    /// Weights of the micro-batches; `None` without.
    pub weights: Option<Weights>,
    /// Outputs of the micro-batches.
    pub outputs: Vec<T>,
}

/// Weights of a step's micro-batches, in fp32 and of shape `[1]`.
#[derive(Clone, Debug)]
pub(super) struct Weights {
    pub sum: Tensor<1>,
    pub smallest: Tensor<1>,
}

impl Weights {
    fn with(known: Option<Self>, weight: Tensor<1>) -> Self {
        match known {
            None => Self { sum: weight.clone(), smallest: weight },
            Some(Self { sum, smallest }) => Self { sum: sum + weight.clone(), smallest: smallest.min_pair(weight) },
        }
    }
}

/// Reciprocal of a sum of weights, of shape `[1]`; 1 for a sum of zero, which belongs to gradients of zero.
pub(super) fn reciprocal(sum: &Tensor<1>) -> Tensor<1> {
    sum.clone().mask_fill(sum.clone().equal_elem(0.0), 1.0).recip()
}

/// Ranges of samples, one a micro-batch. They differ by one sample at most if `is_even`.
fn cuts(samples: usize, micro_batch: usize, is_even: bool) -> impl Iterator<Item = Range<usize>> {
    let count = samples.div_ceil(micro_batch);
    let begin = move |index: usize| {
        let even = || index * (samples / count) + index.min(samples % count);
        if is_even { even() } else { (index * micro_batch).min(samples) }
    };
    (0..count).map(move |index| begin(index)..begin(index + 1))
}

fn zero(device: &Device) -> Tensor<1> {
    known(0.0, device)
}

fn known(value: f64, device: &Device) -> Tensor<1> {
    Tensor::full([1], value, (&device.clone().without_autodiff(), DType::F32))
}

impl<T> AccumulatedGradients<T> {
    /// Computes the gradients of the mean loss over all samples of `batch`. `part` computes the gradients of a micro-batch with
    /// the given share of the samples, and the number by which they are multiplied in the sum. With sums over ranks, those of the
    /// last micro-batch are handed to them.
    ///
    /// Reads no value, so the host runs ahead of the device, unless the statistics of a single sample are checked.
    ///
    /// # Errors
    ///
    /// [`StepError`] for weights that cannot be used, and for batch statistics of one value a channel.
    pub(super) fn compute<M: Module, B: MicroBatch>(
        model: &M,
        batch: &B,
        rules: &mut Accumulation<'_>,
        part: impl Part<M, B, T>,
    ) -> Result<Self, StepFailure> {
        let samples = batch.len();
        let (device, timer) = (rules.device, rules.timer);
        let mut sum = GradientsParams::new();
        let (mut mean, mut weights, mut unweighted) = (None::<Tensor<1>>, None, 0_usize);
        let (mut outputs, mut one_value) = (Vec::new(), None);
        for cut in cuts(samples, rules.micro_batch, rules.is_even) {
            let share = cut.len() as f64 / samples as f64;
            let before = (rules.checks_variance && cut.len() == 1).then(|| Variances::read(model)).transpose()?;
            let sums = rules.sums.filter(|_| cut.end == samples);
            let (loss, weight, output) = timer.micro_batch(cut.len(), || {
                let upload = || watched(Moment::Upload, || batch.narrow(cut).on_device(device));
                let micro = timer.time(Phase::Upload, upload)?;
                let (found, number) = match sums {
                    Some(sums) => {
                        let hooked = watched(Moment::Forward, || sums.hooked(model, std::mem::take(&mut sum)))?;
                        let found = part(&hooked, micro, share, Some(sums))?;
                        sums.check(model).map_err(StepError::from)?;
                        found
                    }
                    None => part(model, micro, share, None)?,
                };
                let MicroBatchGradients { gradients, loss, weight, output } = found;
                let factor = if rules.weighs { StepWeight::factor } else { StepWeight::factor_alone };
                let factor = factor(weight.as_ref(), number);
                let (added, widens) = (std::mem::take(&mut sum), rules.widens);
                let add = || watched(Moment::Backward, || accumulate(model, added, gradients, &factor, widens));
                sum = timer.time(Phase::Accumulation, add)??;
                Ok::<_, StepFailure>((loss, weight, output))
            })?;
            // An image of one colour has a variance of zero, too, but not all images of a step.
            one_value = match before.map(|before| before.check(model)) {
                None => one_value,
                Some(Err(StepFailure::Error(error @ StepError::OneValue { .. }))) => Some(error),
                Some(checked) => {
                    checked?;
                    rules.checks_variance = false;
                    None
                }
            };
            match weight {
                None => unweighted += 1,
                Some(StepWeight::Number(weight)) => weights = Some(Weights::with(weights, known(weight, device))),
                Some(StepWeight::Device(weight)) => weights = Some(Weights::with(weights, weight)),
            }
            if weights.is_some() && unweighted > 0 {
                return Err(StepError::Weight(WeightFault::Missing).into());
            }
            mean = match (mean, loss) {
                (Some(mean), Some(loss)) => Some(mean + loss),
                (known, other) => known.or(other),
            };
            outputs.push(output);
        }
        if let Some(error) = one_value {
            return Err(error.into());
        }
        let is_weighted = rules.weighs && weights.is_some();
        Ok(Self { gradients: sum, is_weighted, loss: mean.unwrap_or_else(|| zero(device)), weights, outputs })
    }

    /// Divides gradients and loss by the sum of the weights, and clips the gradients to a global norm of at most `max`, on the
    /// device. Returns the norm before clipping, of shape `[1]`.
    pub(super) fn normalised<M: Module>(
        mut self,
        model: &M,
        max: Option<f32>,
        device: &Device,
    ) -> Result<(Self, Tensor<1>), OutOfMemory> {
        if let Some(weights) = &self.weights {
            let scale = reciprocal(&weights.sum);
            self.loss = self.loss * scale.clone();
            if self.is_weighted {
                self.gradients = watched(Moment::Backward, || multiply(self.gradients, model, &scale))?;
            }
        }
        let norm = watched(Moment::Backward, || global_norm(&self.gradients, model))?;
        let norm = norm.unwrap_or_else(|| zero(device));
        if let Some(max) = max {
            let factor = clip_factor(&norm, f64::from(max));
            self.gradients = watched(Moment::Backward, || multiply(self.gradients, model, &factor))?;
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
        fn every_sample_is_in_one_micro_batch(
            samples in 0..3000_usize,
            micro_batch in 1..700_usize,
            is_even in proptest::bool::ANY,
        ) {
            let cut: Vec<_> = cuts(samples, micro_batch, is_even).collect();
            prop_assert!(cut.iter().all(|cut| (1..=micro_batch).contains(&cut.len())));
            prop_assert_eq!(cut.len(), samples.div_ceil(micro_batch));
            if let (true, Some(first), Some(last)) = (is_even, cut.first(), cut.last()) {
                prop_assert!(first.len() - last.len() <= 1);
            }
            prop_assert_eq!(cut.into_iter().flatten().collect::<Vec<_>>(), (0..samples).collect::<Vec<_>>());
        }
    }
}
