//! Counts compared with those of values on the host.

use burn::module::{Module, Param};
use burn::nn::{Linear, LinearConfig};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{DType, Device, Tensor, TensorData};
use gpu_tuned_core::Bytes;

use super::{GradientHealth, LayerHealth, gradient_health};
use crate::mixed::{Half, in_f32};
use crate::train::Trainer;
use crate::train::ranks::tests::threads;

#[derive(Module, Debug)]
struct Block {
    linear: Linear,
    scale: Param<Tensor<1>>,
}

#[derive(Module, Debug)]
struct Network {
    layers: Vec<Block>,
    unused: Linear,
}

impl Network {
    fn new(device: &Device) -> Self {
        let block = |inputs| Block {
            linear: LinearConfig::new(inputs, 7).init(device),
            scale: Param::from_tensor(Tensor::ones([7], device)),
        };
        Self { layers: vec![block(5), block(7)], unused: LinearConfig::new(2, 2).init(device) }
    }

    fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        let through = |input, block: &Block| block.linear.forward(input) * block.scale.val().unsqueeze();
        self.layers.iter().fold(input, through)
    }
}

/// Values that are special at places that differ from parameter to parameter.
fn values(count: usize, seed: usize) -> Vec<f32> {
    let value = |index: usize| match (index * 7 + seed * 3) % 11 {
        0 => f32::NAN,
        1 => f32::INFINITY,
        2 => f32::NEG_INFINITY,
        3 | 4 => 0.0,
        5 => -0.0,
        // Not zero, in f32.
        6 => f32::MIN_POSITIVE,
        other => other as f32 - 8.5,
    };
    (0..count).map(value).collect()
}

/// Gradients that were made up, and what is counted in them on the host.
fn made_up<const D: usize>(
    gradients: &mut GradientsParams,
    param: &Param<Tensor<D>>,
    path: &str,
    dtype: DType,
) -> LayerHealth {
    let shape = param.shape();
    let data = TensorData::new(values(shape.num_elements(), path.len()), shape);
    let gradient = Tensor::<D>::from_data(data, (&Device::flex(), dtype));
    let values: Vec<f32> = gradient.to_data().iter::<f32>().collect();
    gradients.register(param.id, gradient);
    let count = |is: fn(&&f32) -> bool| values.iter().filter(is).count() as u64;
    LayerHealth {
        path: path.to_owned(),
        values: values.len() as u64,
        nan: count(|value| value.is_nan()),
        infinite: count(|value| value.is_infinite()),
        zero: count(|value| **value == 0.0),
    }
}

fn made_up_all(model: &Network, dtype: DType) -> (GradientsParams, Vec<LayerHealth>) {
    let mut gradients = GradientsParams::new();
    let mut right = Vec::new();
    for (index, block) in model.layers.iter().enumerate() {
        let path = |name: &str| format!("layers.{index}.{name}");
        right.push(made_up(&mut gradients, &block.linear.weight, &path("linear.weight"), dtype));
        let bias = block.linear.bias.as_ref().unwrap();
        right.push(made_up(&mut gradients, bias, &path("linear.bias"), dtype));
        right.push(made_up(&mut gradients, &block.scale, &path("scale"), dtype));
    }
    (gradients, right)
}

#[test]
fn counts_are_those_of_the_values_on_the_host() {
    let model = Network::new(&Device::flex().autodiff());
    for dtype in [DType::F32, DType::BF16, DType::F16] {
        let (gradients, right) = made_up_all(&model, dtype);
        let health = gradient_health(&gradients, &model).unwrap();
        assert!(right.iter().all(|layer| layer.zero > 0) && right.iter().any(|layer| layer.nan > 0), "{right:?}");
        assert_eq!(health.layers, right, "{dtype:?}");
        assert_eq!(health.without, ["unused.weight", "unused.bias"]);
        assert_eq!(health.total().values, 5 * 7 + 7 * 7 + 4 * 7);
        assert!(!health.is_finite());
    }
}

#[test]
fn paths_are_those_of_the_models_record() {
    let model = Network::new(&Device::flex().autodiff());
    let health = gradient_health(&made_up_all(&model, DType::F32).0, &model).unwrap();
    let paths = health.layers.into_iter().map(|layer| layer.path).chain(health.without);
    let recorded = model.into_record().into_bytes().unwrap();
    for path in paths {
        assert!(recorded.windows(path.len()).any(|bytes| bytes == path.as_bytes()), "{path} is not in the record");
    }
}

#[test]
fn a_model_without_gradients_has_none_to_count() {
    let model = Network::new(&Device::flex().autodiff());
    let health = gradient_health(&GradientsParams::new(), &model).unwrap();
    assert!(health.is_finite() && health.layers.is_empty());
    assert_eq!(health.without.len(), 8);
}

#[test]
fn the_table_has_a_line_for_each_parameter_and_comes_back_from_json() {
    let model = Network::new(&Device::flex().autodiff());
    let health = gradient_health(&made_up_all(&model, DType::F32).0, &model).unwrap();
    let table = health.to_string();
    assert_eq!(table.lines().count(), 1 + 6 + 1, "{table}");
    let LayerHealth { values, nan, infinite, zero, .. } = &health.layers[0];
    let line: Vec<_> = table.lines().nth(1).unwrap().split_whitespace().map(str::to_owned).collect();
    let right = [*values, *nan, *infinite, *zero].map(|count| count.to_string());
    assert_eq!((line[0].as_str(), &line[1..]), ("layers.0.linear.weight", &right[..]));
    let json = serde_json::to_string(&health).unwrap();
    assert_eq!(serde_json::from_str::<GradientHealth>(&json).unwrap(), health);
}

#[test]
fn a_trainer_counts_when_it_was_asked_to_and_before_gradients_are_clipped() {
    let device = Device::flex().autodiff();
    // All at once, in 16 bits, and in groups of parameters.
    for (half, twice) in [(None, u64::MAX), (Some(Half::F16), u64::MAX), (None, 64)] {
        let dtype = if half.is_some() { DType::F16 } else { DType::F32 };
        let trainer = Trainer::new(Network::new(&device), SgdConfig::new().init(), device.clone(), 3);
        let mut trainer = trainer.clip_norm(1.0).gradient_health(2).hold_twice(Bytes(twice));
        if let Some(half) = half {
            trainer = trainer.mixed(half).unwrap();
        }
        for (index, bad) in [1.0, 1.0, f32::INFINITY, f32::INFINITY].into_iter().enumerate() {
            // One column of the first weight sees it, and all that comes after it.
            let batch = Tensor::<2>::ones([4, 5], &device).slice_fill([3..4, 2..3], bad);
            let loss =
                |model: &Network, batch: Tensor<2>| in_f32(model.forward(batch.cast(dtype))).mean().mul_scalar(0.01);
            let step = trainer.step(0.1, batch, loss).unwrap();
            assert_eq!(step.gradient_health.is_some(), index % 2 == 0, "step {index}");
            let Some(health) = step.gradient_health else { continue };
            assert_eq!(health.is_finite(), step.applied, "{health}");
            // The gradient of the first weight is the input, which is infinite in one row.
            let first = &health.layers[0];
            let bad = if index == 2 { 7 } else { 0 };
            assert_eq!((first.path.as_str(), first.nan + first.infinite), ("layers.0.linear.weight", bad), "{health}");
            assert_eq!(health.without, ["unused.weight", "unused.bias"]);
        }
    }
}

#[test]
fn each_rank_counts_the_gradients_of_its_own_samples() {
    let steps = threads::run_all(2, 4, |rank| {
        let mut trainer = rank.trainer(Network::new(rank.device()), SgdConfig::new().init())?.gradient_health(1);
        let factor = if rank.index() == 1 { f32::NAN } else { 1.0 };
        let batch = Tensor::<2>::ones([2, 5], &Device::flex()).mul_scalar(factor);
        Ok(trainer.step(0.1, batch, |model: &Network, batch| model.forward(batch).mean())?)
    });
    assert!(steps.iter().all(|step| !step.applied), "{steps:?}");
    let nan: Vec<_> = steps.iter().map(|step| step.gradient_health.as_ref().unwrap().total().nan).collect();
    // The gradients of biases do not depend on the input of a network that is linear.
    assert_eq!(nan, [0, 5 * 7 + 7 + 7 * 7 + 7]);
}
