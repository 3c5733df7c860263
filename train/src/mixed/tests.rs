use burn::module::{Lora, Module, ModuleMapper, Param, ParamId, Quantizer};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, RotaryEncodingConfig};
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::quantization::{Calibration, QuantValue};
use burn::tensor::{DType, Device, FloatDType, Int, Tensor};
use gpu_tuned_kernels::nn;

use super::{Half, InF32, Master, MixedError, in_f32, rotary, widen};
use crate::shape::visit_floats;

const HALVES: [Half; 2] = [Half::Bf16, Half::F16];

fn device() -> Device {
    Device::flex().autodiff()
}

#[derive(Module, Debug)]
struct Net {
    conv: Conv2d,
    norm: InF32<BatchNorm>,
    head: Linear,
    counts: Param<Tensor<1, Int>>,
}

impl Net {
    fn init(device: &Device) -> Self {
        Self {
            conv: Conv2dConfig::new([1, 4], [3, 3]).init(device),
            norm: BatchNormConfig::new(4).init(device).into(),
            head: LinearConfig::new(4, 2).init(device),
            counts: Param::initialized(ParamId::new(), Tensor::from_ints([1, 2, 3], device)),
        }
    }

    fn loss(&self, images: Tensor<4>) -> Tensor<1> {
        let hidden = self.norm.forward(self.conv.forward(images)).mean_dim(3).mean_dim(2);
        in_f32(self.head.forward(hidden.reshape([-1, 4]))).square().mean()
    }
}

fn images(device: &Device, dtype: DType) -> Tensor<4> {
    Tensor::<1, Int>::arange(0..2 * 36, device).cast(FloatDType::F32).sin().reshape([2, 1, 6, 6]).cast(dtype)
}

/// Identifier, type and whether gradients are kept, of each float parameter.
fn seen<M: Module>(module: &M) -> Vec<(ParamId, DType, bool)> {
    visit_floats!(module, seen = Vec::new(), Vec<(ParamId, DType, bool)>, |param| {
        seen.push((param.id, param.dtype(), param.is_require_grad()));
    })
}

fn floats<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.cast(FloatDType::F32).into_data().iter::<f32>().collect()
}

#[test]
fn a_copy_has_the_parameters_of_the_master_in_16_bits_but_for_those_in_f32() {
    for half in HALVES {
        let model = Net::init(&device());
        let model = Net { head: model.head.no_grad(), ..model };
        let master = Master::new(model, half).unwrap();
        let copy = master.compute_copy();
        for ((id, dtype, grad), (of_copy, narrow, grad_of_copy)) in seen(master.model()).into_iter().zip(seen(&copy)) {
            assert_eq!((id, grad, dtype), (of_copy, grad_of_copy, DType::F32));
            let in_norm = seen(&master.model().norm).iter().any(|(of_norm, ..)| *of_norm == id);
            assert_eq!(narrow, if in_norm { DType::F32 } else { half.float().into() });
        }
        assert!(!copy.head.weight.is_require_grad() && copy.conv.weight.is_require_grad());
        let rounded = master.model().conv.weight.val().cast(half.float());
        assert_eq!(floats(copy.conv.weight.val()), floats(rounded));
        assert_eq!(floats(copy.counts.val().float()), [1.0, 2.0, 3.0]);
    }
}

#[test]
fn a_copy_checkpoints_gradients_as_the_master_does() {
    let record = Net::init(&device()).into_record();
    let gradients = [device(), device().gradient_checkpointing()].map(|device| {
        let model = Net::init(&device).load_record(record.clone());
        let copy = Master::new(model, Half::Bf16).unwrap().compute_copy();
        assert_eq!(copy.conv.weight.val().gradient_checkpointing_strategy(), device.gradient_checkpointing_strategy());
        let loss = copy.loss(images(&device, DType::BF16));
        let gradients = GradientsParams::from_grads(loss.backward(), &copy);
        assert_eq!(gradients.len(), 6);
        floats(gradients.get::<4>(copy.conv.weight.id).unwrap())
    });
    assert_eq!(gradients[0], gradients[1]);
}

#[test]
fn gradients_of_a_copy_train_the_master_in_f32() {
    let mut master = Master::new(Net::init(&device()), Half::Bf16).unwrap();
    let before = master.model().conv.weight.val();
    let copy = master.compute_copy();
    let gradients = GradientsParams::from_grads(copy.loss(images(&device(), DType::BF16)).backward(), &copy);
    let gradients = widen(gradients, &copy).unwrap();
    let gradient = gradients.get::<4>(master.model().conv.weight.id).unwrap();
    assert_eq!(gradient.dtype(), DType::F32);
    // So small a step that in bf16 it would be rounded away.
    master = master.update(|model| SgdConfig::new().init().step(1e-5, model, gradients));
    let right: Vec<f32> = floats(before).iter().zip(floats(gradient)).map(|(old, slope)| old - 1e-5 * slope).collect();
    let after = floats(master.model().conv.weight.val());
    for (found, right) in after.iter().zip(&right) {
        assert!((found - right).abs() <= f32::EPSILON * right.abs(), "{found} is not {right}");
    }
    assert!(seen(master.model()).iter().all(|(_, dtype, _)| *dtype == DType::F32));
}

#[test]
fn a_copy_updates_the_statistics_of_the_master() {
    let device = device();
    let master = Master::new(Net::init(&device), Half::Bf16).unwrap();
    let images = images(&device, DType::BF16);
    for _ in 0..3 {
        let copy = master.compute_copy();
        let _ = copy.loss(images.clone());
    }
    // Burn's own layer, in f32, given the same activations.
    let right = BatchNormConfig::new(4).init(&device);
    let activations = master.compute_copy().conv.forward(images).cast(FloatDType::F32);
    for _ in 0..3 {
        let _ = right.forward(activations.clone());
    }
    let found = master.model().norm.module();
    assert_eq!(floats(found.running_mean.value_sync()), floats(right.running_mean.value_sync()));
    assert_eq!(floats(found.running_var.value_sync()), floats(right.running_var.value_sync()));
}

#[test]
fn statistics_outside_of_an_island_are_an_error_that_names_them() {
    #[derive(Module, Debug)]
    struct Deep {
        blocks: Vec<(Linear, BatchNorm)>,
        fine: InF32<BatchNorm>,
    }
    let device = device();
    for device in [device.clone(), device.gradient_checkpointing()] {
        let block = || (LinearConfig::new(2, 2).init(&device), BatchNormConfig::new(2).init(&device));
        let model = Deep { blocks: vec![block(), block()], fine: BatchNormConfig::new(2).init(&device).into() };
        let frozen = model.clone().no_grad();
        for model in [model, frozen] {
            let error = Master::new(model, Half::Bf16).unwrap_err();
            let MixedError::HalfStatistics { paths } = error else { panic!("{error}") };
            let right = ["0.1.running_mean", "0.1.running_var", "1.1.running_mean", "1.1.running_var"];
            assert_eq!(paths, right.map(|path| format!("blocks.{path}")));
        }
    }
}

#[test]
fn the_look_for_statistics_leaves_a_model_as_it_is() {
    let model = Net { head: LinearConfig::new(4, 2).init(&device()).no_grad(), ..Net::init(&device()) };
    let (before, mean) = (seen(&model), model.norm.module().running_mean.clone());
    let master = Master::new(model, Half::Bf16).unwrap();
    assert_eq!(seen(master.model()), before);
    assert!(!mean.value().is_require_grad());
}

#[test]
fn what_is_in_16_bits_is_widened_and_keeps_its_mappers() {
    struct ToBf16;
    impl ModuleMapper for ToBf16 {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            param.map(|tensor| tensor.detach().cast(FloatDType::BF16)).save_mapper(|tensor| tensor * 2.0)
        }
    }
    let model: Linear = LinearConfig::new(3, 2).init(&device()).map(&mut ToBf16);
    let values = floats(model.weight.val());
    let master = Master::new(model, Half::Bf16).unwrap();
    assert_eq!(master.model().weight.dtype(), DType::F32);
    assert_eq!(floats(master.model().weight.val()), values);
    for model in [master.model(), &master.compute_copy()] {
        let doubled: Vec<f32> = values.iter().map(|value| 2.0 * value).collect();
        assert_eq!(floats(model.weight.transform_for_save().val()), doubled);
    }
}

/// A linear layer with an adapter of rank 2, whose base is packed if asked for.
fn adapted(packed: bool) -> Linear {
    let device = device();
    let layer: Linear = LinearConfig::new(32, 32).with_bias(false).init(&device);
    if !packed {
        return layer.apply_lora(Lora::new(2, 2.0));
    }
    let scheme = device.settings().quantization.scheme.with_value(QuantValue::Q8S);
    layer.quantize_weights(&mut Quantizer::new(Calibration::MinMax, scheme)).apply_lora(Lora::new(2, 2.0))
}

#[test]
fn adapters_are_trained_over_a_base_that_is_frozen_or_packed() {
    for packed in [false, true] {
        let mut master = Master::new(adapted(packed), Half::Bf16).unwrap();
        let copy = master.compute_copy();
        let base = |model: &Linear| model.weight.base();
        let expected = if packed { base(master.model()).dtype() } else { DType::BF16 };
        assert_eq!(base(&copy).dtype(), expected, "packed: {packed}");
        let adapter = copy.weight.adapter().unwrap();
        assert_eq!([adapter.a.dtype(), adapter.b.dtype()], [DType::BF16; 2]);
        let input = Tensor::<2>::ones([4, 32], (&device(), DType::BF16));
        let loss = in_f32(copy.forward(input)).sub_scalar(1.0).square().mean();
        let gradients = widen(GradientsParams::from_grads(loss.backward(), &copy), &copy).unwrap();
        assert!(gradients.get::<2>(copy.weight.id).is_none(), "the base is frozen");
        let before = floats(adapter.b.val());
        master = master.update(|model| SgdConfig::new().init().step(1e-3, model, gradients));
        let adapter = master.model().weight.adapter().unwrap();
        assert_eq!([adapter.a.dtype(), adapter.b.dtype()], [DType::F32; 2]);
        assert_ne!(floats(adapter.b.val()), before);
    }
}

#[test]
fn an_island_adds_nothing_to_paths_and_a_record_fits_with_and_without_it() {
    #[derive(Module, Debug)]
    struct Plain {
        norm: BatchNorm,
        head: Linear,
    }
    #[derive(Module, Debug)]
    struct Island {
        norm: InF32<BatchNorm>,
        head: Linear,
    }
    let device = device();
    let norm = BatchNormConfig::new(3).init(&device);
    let _ = norm.forward(Tensor::<2>::random([8, 3], burn::tensor::Distribution::Default, &device));
    let plain = Plain { norm, head: LinearConfig::new(3, 1).init(&device) }.valid();
    let island =
        Island { norm: BatchNormConfig::new(3).init(&device).into(), head: LinearConfig::new(3, 1).init(&device) };
    let loaded = island.load_record(plain.clone().into_record());
    let mean = |norm: &BatchNorm| floats(norm.running_mean.value());
    assert_eq!(mean(loaded.norm.module()), mean(&plain.norm));
    assert_eq!(floats(loaded.head.weight.val()), floats(plain.head.weight.val()));
    let back = Plain { norm: BatchNormConfig::new(3).init(&device), head: LinearConfig::new(3, 1).init(&device) };
    let back = back.load_record(loaded.into_record());
    assert_eq!(mean(&back.norm), mean(&plain.norm));
}

#[test]
fn a_norm_of_nn_in_an_island_is_burns() {
    let device = device();
    let burns: InF32<burn::nn::LayerNorm> = burn::nn::LayerNormConfig::new(4).init(&device).into();
    let ours: InF32<nn::LayerNorm> = nn::LayerNormConfig::new(4).init(&device).into();
    let ours = ours.load_record(burns.clone().into_record());
    let input = Tensor::<2>::from_data([[1.0, -2.0, 300.0, 0.1]], (&device, DType::BF16));
    let (found, expected) = (ours.forward(input.clone()), burns.forward(input));
    assert_eq!(found.dtype(), DType::BF16);
    found.into_data().assert_eq(&expected.into_data(), true);
}

#[test]
fn an_island_prints_what_it_holds() {
    let printed = Net::init(&device()).to_string();
    assert!(printed.contains("InF32") && printed.contains("BatchNorm {num_features: 4"), "{printed}");
}

#[test]
fn a_copy_is_refreshed_in_the_parameters_that_changed_and_is_a_copy_all_the_same() {
    for half in HALVES {
        let device = device();
        let master = Master::new(Net::init(&device), half).unwrap();
        let old = master.compute_copy();
        let (weight, norm) = (old.head.weight.id, old.norm.module().gamma.id);
        let master = master.update(|model| model.map(&mut Add(1.0)));
        let new = master.compute_copy();
        let refreshed = master.refreshed(old.clone(), Some(&[weight, norm]));
        assert_eq!(seen(&refreshed), seen(&new));
        assert_eq!(floats(refreshed.head.weight.val()), floats(new.head.weight.val()));
        assert_eq!(floats(refreshed.norm.module().gamma.val()), floats(new.norm.module().gamma.val()));
        assert_eq!(floats(refreshed.conv.weight.val()), floats(old.conv.weight.val()));
        let gradients = refreshed.loss(images(&device, half.float().into())).backward();
        let gradients = GradientsParams::from_grads(gradients, &refreshed);
        assert_eq!(gradients.get::<2>(weight).unwrap().dtype(), half.float().into());
        assert_eq!(gradients.get::<1>(norm).unwrap().dtype(), DType::F32);
    }
}

/// Adds to every trained parameter.
struct Add(f32);

impl ModuleMapper for Add {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !param.is_require_grad() {
            return param;
        }
        param.map(|tensor| tensor.detach().add_scalar(self.0).detach().require_grad())
    }
}

#[test]
fn pairs_turn_by_powers_of_theta() {
    let device = Device::flex();
    let encoding = rotary(&RotaryEncodingConfig::new(8, 4).with_theta(100.0), &device);
    let turned = encoding.forward(Tensor::<2>::from_data([[1.0, 0.0, 1.0, 0.0]; 8], &device));
    let turned: Vec<f32> = turned.into_data().iter().collect();
    for (position, components) in (0_u8..).zip(turned.chunks(4)) {
        let angles = [f32::from(position), f32::from(position) / 10.0];
        let expected = [angles[0].cos(), angles[0].sin(), angles[1].cos(), angles[1].sin()];
        let is_near = components.iter().zip(expected).all(|(found, expected)| (found - expected).abs() < 1e-6);
        assert!(is_near, "{position}: {components:?}, not {expected:?}");
    }
}
