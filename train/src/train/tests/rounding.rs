//! Rounding errors of gradients in 16 bits that are summed over 1 to 4,096 micro-batches.

use burn::module::{Module, Param};
use burn::optim::SgdConfig;
use burn::tensor::{DType, FloatDType, Int, Tensor, TensorData};
use gpu_tuned_core::Precision;

use super::{device, values};
use crate::loss::Loss;
use crate::mixed::{Half, LossScale};
use crate::train::Trainer;

const MICRO_BATCHES: [usize; 6] = [1, 16, 256, 512, 1024, 4096];
/// Relative error of rounding to the nearest number of bf16.
const BF16: f64 = 1.0 / 256.0;

/// Loss scale in f16, in which gradients of 2 do not overflow.
const SCALE: f64 = 16384.0;

/// A weight whose gradient is the mean of the inputs.
#[derive(Module, Debug)]
struct Slope {
    weight: Param<Tensor<1>>,
}

impl Slope {
    fn mean(&self, input: Tensor<1>) -> Tensor<1> {
        let weight = self.weight.val();
        (input.cast(weight.dtype()) * weight).cast(FloatDType::F32).mean()
    }
}

/// Loss that is a mean over samples.
fn of_samples(slope: &Slope, input: Tensor<1>) -> Loss {
    slope.mean(input).into()
}

/// Loss that counts its targets.
fn of_targets(slope: &Slope, input: Tensor<1>) -> Loss {
    let count = Tensor::<1, Int>::full([1], i64::from(input.dims()[0] as u32), &input.device());
    (slope.mean(input), count).into()
}

/// Weight after a step of plain descent from 0 at rate 1, with one sample in a micro-batch.
fn stepped(precision: Precision, inputs: &[f32], loss: fn(&Slope, Tensor<1>) -> Loss) -> f64 {
    let float = if precision == Precision::Bf16Params { DType::BF16 } else { DType::F32 };
    let model = Slope { weight: Param::from_tensor(Tensor::zeros([1], (&device(), float))) };
    let trainer = Trainer::new(model, SgdConfig::new().init(), device(), 1);
    let mut trainer = match Half::of(precision) {
        Some(half) => trainer.with_loss_scale(LossScale::for_half(half).with_init_scale(SCALE)).mixed(half).unwrap(),
        None => trainer,
    };
    let batch = Tensor::<1>::from_data(TensorData::new(inputs.to_vec(), [inputs.len()]), &device());
    let step = trainer.step(1.0, batch, loss).unwrap();
    assert!(step.applied && step.micro_batches == inputs.len(), "{step:?}");
    trainer.master().weight.val().into_scalar::<f64>()
}

#[test]
fn a_gradient_of_one_in_each_micro_batch_moves_the_weight_by_one() {
    for precision in Precision::ALL {
        for count in MICRO_BATCHES {
            for loss in [of_samples, of_targets] {
                let weight = stepped(precision, &vec![1.0; count], loss);
                assert!((weight + 1.0).abs() < f64::EPSILON, "{precision}, {count} micro-batches: {weight}");
            }
        }
    }
}

/// Gradients from -2 to 2 around a mean, exact in 16 bits.
fn noisy(count: usize) -> Vec<f32> {
    values(3, count).into_iter().map(|value| (value * 64.0).round() / 32.0 + 0.25).collect()
}

#[test]
fn noisy_gradients_are_as_exact_in_thousands_of_micro_batches_as_in_one() {
    for precision in Precision::ALL {
        // Parameters in bf16 take a rounded gradient. Sums in fp32 add 2⁻²⁴ of at most 1 in each micro-batch.
        let of_parameters = if precision == Precision::Bf16Params { BF16 } else { 0.0 };
        for count in [1, 256, 4096] {
            let inputs = noisy(count);
            let right = -inputs.iter().map(|input| f64::from(*input)).sum::<f64>() / count as f64;
            for loss in [of_samples, of_targets] {
                let error = (stepped(precision, &inputs, loss) - right).abs();
                assert!(error <= of_parameters * right.abs() + 1e-6, "{precision}, {count} micro-batches: {error}");
            }
        }
    }
}

/// The share of a micro-batch, 1/1000, is not exact in 16 bits.
#[test]
fn a_share_that_is_not_exact_in_16_bits_costs_at_most_one_rounding() {
    let inputs = noisy(1000);
    let right = -inputs.iter().map(|input| f64::from(*input)).sum::<f64>() / 1000.0;
    for precision in Precision::ALL {
        for (loss, of_share) in [(of_samples as fn(&Slope, Tensor<1>) -> Loss, 1.0), (of_targets, 0.0)] {
            // Parameters in bf16 take a rounded gradient.
            let roundings = if precision == Precision::Bf16Params { 1.0 + of_share } else { 0.0 };
            let error = (stepped(precision, &inputs, loss) / right - 1.0).abs();
            assert!(error <= 1.01 * roundings * BF16 + 1e-6, "{precision}: {error} for {roundings} roundings");
        }
    }
}

/// The weight, 333, is not exact in bf16, and 70,000 is infinite in f16.
#[test]
fn a_weight_costs_no_rounding_in_one_micro_batch() {
    for (float, weight) in [(DType::BF16, 333.0), (DType::F16, 70_000.0)] {
        for (micro_batch, weight_of_tensor) in [(2, true), (2, false), (1, true), (1, false)] {
            let model = Slope { weight: Param::from_tensor(Tensor::zeros([1], (&device(), float))) };
            let mut trainer = Trainer::new(model, SgdConfig::new().init(), device(), micro_batch);
            let loss = |slope: &Slope, input: Tensor<1>| {
                let of_samples = weight / 2.0 * f64::from(input.dims()[0] as u32);
                let of_tensor = Tensor::<1>::full([1], of_samples, (&device(), DType::F32));
                let mean = slope.mean(input);
                if weight_of_tensor { Loss::new(mean, of_tensor) } else { Loss::new(mean, of_samples) }
            };
            let step = trainer.step(1.0, Tensor::<1>::ones([2], &device()), loss).unwrap();
            assert!(step.applied && (step.weight - weight).abs() < 1e-9, "{step:?}");
            let slope = trainer.master().weight.val().into_scalar::<f64>();
            assert!((slope + 1.0).abs() < f64::EPSILON, "{float:?}, micro-batches of {micro_batch}: {slope}");
        }
    }
}

/// In f16 1/4096 of this gradient is zero even times the loss scale.
#[test]
fn small_gradients_do_not_vanish_in_many_micro_batches() {
    const GRADIENT: f64 = 1.0 / 134_217_728.0;
    let losses: [fn(&Slope, Tensor<1>) -> Loss; 2] = [
        |slope, input| slope.mean(input).mul_scalar(GRADIENT).into(),
        |slope, input| (slope.mean(input).mul_scalar(GRADIENT), 1.0).into(),
    ];
    for loss in losses {
        let weight = stepped(Precision::MixedF16, &[1.0; 4096], loss);
        assert!((weight / -GRADIENT - 1.0).abs() <= 1e-6, "{weight}");
    }
}
