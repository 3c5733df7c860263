use burn::module::Module;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::tensor::Device;

use super::{parameters, shape};

#[derive(Module, Debug)]
struct Pair {
    first: Linear,
    second: Linear,
}

#[derive(Module, Debug)]
struct Renamed {
    first: Linear,
    third: Linear,
}

#[derive(Module, Debug)]
struct Normed {
    norm: BatchNorm,
}

fn linear(input: usize, output: usize) -> Linear {
    LinearConfig::new(input, output).init(&Device::flex().autodiff())
}

#[test]
fn the_shape_is_that_of_names_and_sizes() {
    let pair = || Pair { first: linear(3, 4), second: linear(4, 3) };
    assert_eq!(shape(&pair()), shape(&pair()));
    assert_ne!(shape(&pair()), shape(&Pair { first: linear(3, 4), second: linear(4, 2) }));
    assert_ne!(shape(&pair()), shape(&Pair { first: linear(4, 3), second: linear(3, 4) }));
    assert_ne!(shape(&pair()), shape(&Renamed { first: linear(3, 4), third: linear(4, 3) }));
}

// Worked out apart from this code, by FNV-1a over the same bytes.
#[test]
fn the_shape_is_the_same_in_every_release() {
    assert_eq!(shape(&linear(2, 3)), "af0f70a48603b0b0");
}

#[test]
fn statistics_are_no_trained_parameters() {
    let device = Device::flex().autodiff();
    assert_eq!(parameters(&Normed { norm: BatchNormConfig::new(5).init(&device) }), 10);
    assert_eq!(parameters(&linear(3, 4)), 16);
    assert_eq!(parameters(&linear(3, 4).no_grad()), 0);
}
