//! Errors of Burn's normalisation layers in 16 bits, against f64.

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, InstanceNorm, InstanceNormConfig, LayerNorm,
    LayerNormConfig, RmsNorm, RmsNormConfig,
};
use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use gpu_tuned::mixed::InF32;

use super::models::Numbers;

/// Rows of the activations, or samples of which a channel of batch normalisation takes one value each.
const ROWS: usize = 4;

struct Cast(FloatDType);

impl ModuleMapper for Cast {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| tensor.cast(self.0))
    }
}

/// A layer, called on activations `[rows, width]`.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Norm {
    Layer,
    /// Layer normalisation of the operations that `CubeCL` gets: `flex` has a kernel of its own.
    OfOperations,
    Rms,
    Group,
    Instance,
    Batch,
}

const NORMS: [Norm; 6] = [Norm::Layer, Norm::OfOperations, Norm::Rms, Norm::Group, Norm::Instance, Norm::Batch];

fn layer_norm(width: usize) -> LayerNorm {
    LayerNormConfig::new(width).init(&Device::flex())
}

fn rms_norm(width: usize) -> RmsNorm {
    RmsNormConfig::new(width).init(&Device::flex())
}

fn group_norm() -> GroupNorm {
    GroupNormConfig::new(1, 1).init(&Device::flex())
}

fn instance_norm() -> InstanceNorm {
    InstanceNormConfig::new(1).init(&Device::flex())
}

fn batch_norm(channels: usize) -> BatchNorm {
    BatchNormConfig::new(channels).init(&Device::flex().autodiff())
}

/// As `ModuleOps::layer_norm` of burn-backend does it, gamma 1 and beta 0.
fn composed(input: Tensor<2>) -> Tensor<2> {
    let centered = input.clone() - input.mean_dim(1);
    let variance = (centered.clone() * centered.clone()).mean_dim(1);
    centered / variance.add_scalar(1e-5).sqrt()
}

impl Norm {
    /// The output in the type of the input; parameters are cast to it.
    fn alone(self, input: Tensor<2>) -> Tensor<2> {
        let [rows, width] = input.dims();
        let mut cast = Cast(input.dtype().into());
        match self {
            Self::Layer => layer_norm(width).map(&mut cast).forward(input),
            Self::OfOperations => composed(input),
            Self::Rms => rms_norm(width).map(&mut cast).forward(input),
            Self::Group => group_norm().map(&mut cast).forward(input.reshape([rows, 1, width])).reshape([rows, width]),
            Self::Instance => {
                instance_norm().map(&mut cast).forward(input.reshape([rows, 1, width])).reshape([rows, width])
            }
            Self::Batch => {
                let norm = batch_norm(rows).map(&mut cast);
                norm.forward(input.autodiff().transpose()).transpose().without_autodiff()
            }
        }
    }

    /// The output in the type of the input, computed in f32.
    fn in_f32(self, input: Tensor<2>) -> Tensor<2> {
        let [rows, width] = input.dims();
        match self {
            Self::Layer => InF32::new(layer_norm(width)).forward(input),
            Self::OfOperations => InF32::new(layer_norm(width)).apply(input, |_, input| composed(input)),
            Self::Rms => InF32::new(rms_norm(width)).forward(input),
            Self::Group => InF32::new(group_norm()).forward(input.reshape([rows, 1, width])).reshape([rows, width]),
            Self::Instance => {
                InF32::new(instance_norm()).forward(input.reshape([rows, 1, width])).reshape([rows, width])
            }
            Self::Batch => {
                let norm = InF32::new(batch_norm(rows));
                norm.forward(input.autodiff().transpose()).transpose().without_autodiff()
            }
        }
    }
}

fn activations(mean: f64, deviation: f64, width: usize, float: FloatDType) -> Tensor<2> {
    let mut numbers = Numbers::new(width as u64);
    let values: Vec<f64> = (0..ROWS * width).map(|_| mean + deviation * numbers.normal()).collect();
    let data = TensorData::new(values, [ROWS, width]);
    Tensor::<2>::from_data(data, (&Device::flex(), DType::F64)).cast(float)
}

fn values(tensor: Tensor<2>) -> Vec<f64> {
    tensor.cast(FloatDType::F64).into_data().iter::<f64>().collect()
}

/// The largest difference to `right`, in deviations of a normalised activation, which is 1.
fn error(found: Tensor<2>, right: &[f64]) -> f64 {
    let found = values(found);
    found.iter().zip(right).map(|(found, right)| (found - right).abs()).fold(0.0, f64::max)
}

/// Errors of the layer alone, and in f32; both are given the same 16-bit activations, so that they are those of its own
/// arithmetic.
fn errors(layer: Norm, mean: f64, deviation: f64, width: usize, float: FloatDType) -> [f64; 2] {
    let input = activations(mean, deviation, width, float);
    let right = values(layer.alone(input.clone().cast(FloatDType::F64)));
    [error(layer.alone(input.clone()), &right), error(layer.in_f32(input), &right)]
}

/// Means and deviations of activations: centred, as layers are initialised; off centre by as much as they vary; and by
/// 10 and 100 times as much.
const ACTIVATIONS: [(f64, f64); 6] = [(0.0, 1.0), (0.0, 0.01), (1.0, 1.0), (10.0, 10.0), (10.0, 1.0), (10.0, 0.1)];
const WIDTHS: [usize; 3] = [64, 1024, 8192];

/// The largest errors over all widths, alone and in f32.
fn worst(layer: Norm, (mean, deviation): (f64, f64), float: FloatDType) -> [f64; 2] {
    let found = WIDTHS.map(|width| errors(layer, mean, deviation, width, float));
    found.into_iter().fold([0.0, 0.0], |worst, found| [worst[0].max(found[0]), worst[1].max(found[1])])
}

/// Half a unit in the last place of numbers in 4..8: the output is normalised, and its largest values are that large.
const ROUNDING: [(FloatDType, f64); 2] = [(FloatDType::BF16, 1.0 / 64.0), (FloatDType::F16, 1.0 / 512.0)];

#[test]
fn in_f32_a_layer_loses_no_more_than_the_rounding_of_its_output() {
    for (float, rounding) in ROUNDING {
        for layer in NORMS {
            for activations in ACTIVATIONS {
                let [_, wide] = worst(layer, activations, float);
                assert!(wide <= rounding, "{layer:?} {float:?} {activations:?}: {wide}");
            }
        }
    }
}

/// If Burn mends one of these the advice in the module's documentation is to be changed.
#[test]
fn alone_some_layers_lose_much_when_the_mean_is_large() {
    for (layer, bf16, f16) in [
        (Norm::Layer, false, false),
        (Norm::OfOperations, true, true),
        (Norm::Rms, false, false),
        (Norm::Group, true, false),
        (Norm::Instance, true, false),
        (Norm::Batch, true, true),
    ] {
        for (lossy, (float, rounding)) in [bf16, f16].into_iter().zip(ROUNDING) {
            let [alone, _] = worst(layer, (10.0, 0.1), float);
            assert_eq!(alone > 5.0 * rounding, lossy, "{layer:?} {float:?}: {alone}");
        }
    }
}

/// Prints the table of the module's documentation.
#[test]
#[ignore = "prints"]
fn table() {
    for layer in NORMS {
        print!("{layer:?}");
        for float in [FloatDType::BF16, FloatDType::F16] {
            for activations in ACTIVATIONS {
                let [alone, wide] = worst(layer, activations, float);
                print!(" | {alone:.4} ({wide:.4})");
            }
        }
        println!();
    }
}

/// Running mean and variance after 200 batches of mean 3 and variance 4, over what they ought to be.
fn statistics(norm: &BatchNorm, forward: impl Fn(Tensor<2>)) -> [f64; 2] {
    // -1 and 1 in turn: exact in every type.
    let signs: Vec<f64> = (0..64).map(|index| if index % 2 == 0 { 1.0 } else { -1.0 }).collect();
    let device = Device::flex().autodiff();
    let batch = Tensor::<2>::from_data(TensorData::new(signs, [64, 1]), (&device, DType::BF16)) * 2.0 + 3.0;
    for _ in 0..200 {
        forward(batch.clone());
    }
    let read = |state: Tensor<1>| state.cast(FloatDType::F64).into_data().iter::<f64>().next().unwrap();
    [read(norm.running_mean.value_sync()) / 3.0, read(norm.running_var.value_sync()) / 4.0]
}

#[test]
fn running_statistics_stall_short_of_the_truth_in_bf16_and_arrive_in_f32() {
    let alone = batch_norm(1).map(&mut Cast(FloatDType::BF16));
    for found in statistics(&alone, |batch| drop(alone.forward(batch))) {
        assert!(found < 0.985, "{found}");
    }
    let wide = InF32::new(batch_norm(1));
    for found in statistics(wide.module(), |batch| drop(wide.forward(batch))) {
        assert!((found - 1.0).abs() < 1e-5, "{found}");
    }
}
