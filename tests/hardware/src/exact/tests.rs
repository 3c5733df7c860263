use std::{ops::Range, time::Instant};

use burn::{
    module::{Module, ModuleMapper, Param},
    tensor::{DType, Device, Tensor, TensorData},
};
use gpu_tuned::MicroBatch;
use networks::relative_l2;

use super::{Computed, MOST_APART, SEED, apart, grouped, reference, step};
use crate::{
    lesson::Lesson,
    network::{Dimensions, Model},
    weights::seeded,
};

const SAMPLES: usize = 20;

fn models() -> [Dimensions; 2] {
    [Model::Transformer.small(), grouped()]
}

/// Moves one weight.
struct Nudge {
    weight: usize,
    by: f64,
}

impl ModuleMapper for Nudge {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let count = param.val().shape().num_elements();
        let (weight, by) = (self.weight, self.by);
        self.weight = weight.wrapping_sub(count);
        if weight >= count {
            return param;
        }
        param.map(|old| {
            let shape = old.shape();
            let mut values: Vec<f64> = old.clone().into_data().iter().collect();
            values[weight] += by;
            Tensor::from_data(TensorData::new(values, shape), (&old.device(), DType::F64))
        })
    }
}

#[test]
fn the_reference_is_the_slope_of_the_loss() {
    for dimensions in models() {
        let batch = Lesson::new(&dimensions, SEED).batch(0, 2);
        let Computed { gradients, .. } = reference(&dimensions, &batch).expect("it is computed");
        let device = Device::flex();
        let loss = |weight, by| {
            let network = seeded(&dimensions, SEED, Some(DType::F64), &device.clone().autodiff());
            let nudged = network.valid().map(&mut Nudge { weight, by });
            nudged.loss_in_f32(batch.clone().in_float(&device, DType::F64)).into_scalar::<f64>()
        };
        let steepest = (0..gradients.len()).max_by(|a, b| gradients[*a].abs().total_cmp(&gradients[*b].abs()));
        for weight in [steepest.expect("there are weights"), gradients.len() - 1] {
            let slope = (loss(weight, 1e-5) - loss(weight, -1e-5)) / 2e-5;
            let apart = (slope - gradients[weight]).abs();
            assert!(apart < 1e-7 + 1e-4 * slope.abs(), "{weight}: {slope}, not {}", gradients[weight]);
        }
    }
}

#[test]
fn however_a_step_is_cut_its_gradients_are_those_of_the_reference() {
    for dimensions in models() {
        let batch = Lesson::new(&dimensions, SEED).batch(0, SAMPLES);
        let right = reference(&dimensions, &batch).expect("it is computed");
        for (micro_batch, cuts) in [(20, 1), (5, 4), (6, 4)] {
            let found = step(&dimensions, &batch, micro_batch, &Device::flex()).expect("it is computed");
            assert_eq!(found.micro_batches, cuts);
            let apart = apart(&found, &right, Instant::now());
            assert!(apart.relative_l2 < 1e-5 && apart.within, "{apart:?}");
            assert!((apart.loss - apart.loss_of_reference).abs() < 1e-5, "{apart:?}");
        }
    }
}

/// Micro-batches of 6 and a rest of 2 with the weight of a whole one: the mistake that the limit must detect.
#[test]
fn a_rest_that_counts_as_much_as_the_others_is_too_far_from_the_reference() {
    for dimensions in models() {
        let batch = Lesson::new(&dimensions, SEED).batch(0, SAMPLES);
        let right = reference(&dimensions, &batch).expect("it is computed").gradients;
        let cuts: Vec<_> = (0..SAMPLES).step_by(6).map(|begin| begin..(begin + 6).min(SAMPLES)).collect();
        let part = |cut: &Range<usize>| step(&dimensions, &batch.narrow(cut.clone()), 6, &Device::flex());
        let parts: Vec<_> = cuts.iter().map(|cut| part(cut).expect("it is computed").gradients).collect();
        let mean = |share: &dyn Fn(usize) -> f64| {
            let mut sum = vec![0.0; right.len()];
            for (cut, part) in cuts.iter().zip(&parts) {
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += share(cut.len()) * part);
            }
            relative_l2(&sum, &right)
        };
        let weighted = mean(&|samples| samples as f64 / SAMPLES as f64);
        let unweighted = mean(&|_| 1.0 / cuts.len() as f64);
        assert!(weighted < 1e-5 && unweighted > 10.0 * MOST_APART, "{weighted} and {unweighted}");
    }
}
