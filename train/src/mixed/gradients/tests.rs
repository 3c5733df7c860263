use burn::module::{Module, Param};
use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Distribution, Tensor};

use super::{LossScale, StepOutcome, TOGETHER, clip, global_norm, norm_in_parts, widen, widen_onto};
use crate::mixed::MixedError;

#[derive(Module, Debug)]
struct Ranks {
    one: Param<Tensor<1>>,
    two: Param<Tensor<2>>,
    four: Param<Tensor<4>>,
    without_gradient: Param<Tensor<1>>,
}

fn model() -> Ranks {
    let device = Device::flex().autodiff();
    Ranks {
        one: Param::from_tensor(Tensor::zeros([7], &device)),
        two: Param::from_tensor(Tensor::zeros([3, 5], &device)),
        four: Param::from_tensor(Tensor::zeros([2, 3, 2, 2], &device)),
        without_gradient: Param::from_tensor(Tensor::zeros([9], &device)),
    }
}

fn gradients(model: &Ranks, dtype: DType) -> GradientsParams {
    let random = Distribution::Normal(0.0, 3.0);
    let device = Device::flex();
    let mut gradients = GradientsParams::new();
    gradients.register(model.one.id, Tensor::<1>::random([7], random, &device).cast(dtype));
    gradients.register(model.two.id, Tensor::<2>::random([3, 5], random, &device).cast(dtype));
    gradients.register(model.four.id, Tensor::<4>::random([2, 3, 2, 2], random, &device).cast(dtype));
    gradients
}

fn values(gradients: &GradientsParams, model: &Ranks) -> Vec<f64> {
    let one = gradients.get::<1>(model.one.id).unwrap().into_data();
    let two = gradients.get::<2>(model.two.id).unwrap().into_data();
    let four = gradients.get::<4>(model.four.id).unwrap().into_data();
    [one, two, four].iter().flat_map(|data| data.iter::<f64>().collect::<Vec<_>>()).collect()
}

fn norm_of(values: &[f64]) -> f64 {
    values.iter().map(|value| value * value).sum::<f64>().sqrt()
}

#[test]
fn the_norm_is_the_same_however_gradients_are_put_together() {
    let model = model();
    for dtype in [DType::F32, DType::BF16] {
        let mut gradients = gradients(&model, DType::F32);
        let two = gradients.remove::<2>(model.two.id).unwrap().cast(dtype);
        gradients.register(model.two.id, two);
        let right = norm_of(&values(&gradients, &model));
        // 7, 15 and 24 values: each alone, the first two, the last two, all.
        for part in [1, 7, 8, 22, 23, 24, 25, 39, 45, 46, 47, 1000] {
            let norm = norm_in_parts(&gradients, &model, part).unwrap().into_scalar::<f64>();
            assert!((norm / right - 1.0).abs() < 1e-6, "{norm} is not {right}, in parts of {part}");
        }
        let norm = global_norm(&gradients, &model).unwrap().into_scalar::<f64>();
        assert!((norm / right - 1.0).abs() < 1e-6, "{norm} is not {right}");
    }
}

#[test]
fn the_norm_is_that_of_any_number_of_gradients() {
    assert!(global_norm(&GradientsParams::new(), &model()).is_none());
    for count in [TOGETHER - 1, TOGETHER, TOGETHER + 1, 3 * TOGETHER] {
        let ones = || Tensor::<1>::ones([3], &Device::flex());
        let model: Vec<_> = (0..count).map(|_| Param::from_tensor(ones())).collect();
        let mut gradients = GradientsParams::new();
        for param in &model {
            gradients.register(param.id, ones());
        }
        let norm = global_norm(&gradients, &model).unwrap().into_scalar::<f64>();
        assert!((norm / (3.0 * count as f64).sqrt() - 1.0).abs() < 1e-6, "{norm} of {count}");
    }
}

#[test]
fn the_norm_of_many_values_is_exact_enough() {
    let device = Device::flex();
    let mut model = model();
    let random = |shape| Tensor::<2>::random(shape, Distribution::Normal(0.1, 3.0), &device);
    // One vector of the first and some of the second size, and one gradient that is a part of its own.
    for shapes in [[[700, 1000], [300, 1000]], [[2100, 2000], [10, 10]]] {
        let [large, small] = shapes.map(random);
        let mut gradients = GradientsParams::new();
        model.one = Param::from_tensor(Tensor::zeros([small.shape().num_elements()], &device));
        gradients.register(model.two.id, large.clone());
        gradients.register(model.one.id, small.clone().reshape([small.shape().num_elements()]));
        let values = [large, small].map(Tensor::into_data);
        let right = values.iter().flat_map(|data| data.iter::<f64>()).map(|value| value * value).sum::<f64>().sqrt();
        let norm = global_norm(&gradients, &model).unwrap().into_scalar::<f64>();
        assert!((norm / right - 1.0).abs() < 1e-6, "{norm} is not {right}");
    }
}

#[test]
fn one_gradient_that_is_not_finite_shows_in_the_norm() {
    let model = model();
    for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN] {
        let mut gradients = gradients(&model, DType::F32);
        let with_bad = gradients.remove::<2>(model.two.id).unwrap().slice_fill([2..3, 4..5], bad);
        gradients.register(model.two.id, with_bad);
        assert!(!global_norm(&gradients, &model).unwrap().into_scalar::<f32>().is_finite(), "{bad}");
    }
}

#[test]
fn clipping_keeps_the_direction_and_bounds_the_norm() {
    let model = model();
    let gradients = gradients(&model, DType::F32);
    let before = values(&gradients, &model);
    let norm = global_norm(&gradients, &model).unwrap();
    let gradients = clip(gradients, &model, &norm, 1e6);
    assert_eq!(values(&gradients, &model), before, "a norm below the bound changes nothing");
    let clipped = values(&clip(gradients, &model, &norm, 0.5), &model);
    let factor = 0.5 / (norm_of(&before) + 1e-6);
    for (found, before) in clipped.iter().zip(&before) {
        assert!((found - before * factor).abs() < 1e-6, "{found} is not {before} times {factor}");
    }
}

#[test]
fn gradients_are_added_to_the_sum_before_in_f32() {
    let model = model();
    let (first, second) = (gradients(&model, DType::F32), gradients(&model, DType::F32));
    let right: Vec<f64> =
        values(&first, &model).iter().zip(values(&second, &model)).map(|(first, second)| first + second).collect();
    // The second has no gradient for this one; the sum keeps the first's.
    let alone = Tensor::<1>::ones([9], &Device::flex());
    let mut first = first;
    first.register(model.without_gradient.id, alone);
    let sum = widen_onto(widen(first, &model).unwrap(), second, &model).unwrap();
    for (found, right) in values(&sum, &model).iter().zip(right) {
        assert!((found - right).abs() < 1e-6, "{found} is not {right}");
    }
    let alone = sum.get::<1>(model.without_gradient.id).unwrap();
    assert_eq!(alone.into_data().iter::<f32>().collect::<Vec<_>>(), [1.0; 9]);
}

#[test]
fn gradients_of_zero_are_clipped_to_zero() {
    let model = model();
    let mut gradients = GradientsParams::new();
    gradients.register(model.one.id, Tensor::<1>::zeros([7], &Device::flex()));
    let norm = global_norm(&gradients, &model).unwrap();
    let clipped = clip(gradients, &model, &norm, 1.0).get::<1>(model.one.id).unwrap();
    assert_eq!(clipped.into_data().iter::<f32>().collect::<Vec<_>>(), [0.0; 7]);
}

#[test]
fn a_gradient_of_another_type_than_its_parameter_is_an_error_that_names_it() {
    let model = model();
    let error = widen(gradients(&model, DType::BF16), &model).unwrap_err();
    let MixedError::MixedTypes { path, parameter, gradient } = error else { panic!("{error}") };
    assert_eq!((path.as_str(), parameter, gradient), ("one", DType::F32, DType::BF16));
}

#[test]
fn the_scale_is_that_of_pytorch_between_floor_and_ceiling() {
    // Outcome, number of such steps, and scale after the last of them.
    type Steps = &'static [(bool, usize, f64)];
    let cases: [(LossScale, Steps); 4] = [
        // `torch.amp.GradScaler(init_scale=4.0, growth_interval=3)` (PyTorch's `_amp_update_scale_`): a step that is not
        // finite halves the scale and restarts the count; the third finite step in a row doubles it.
        (
            LossScale::default().with_init_scale(4.0).with_growth_interval(3),
            &[
                (true, 1, 4.0),
                (true, 1, 4.0),
                (true, 1, 8.0),
                (true, 1, 8.0),
                (false, 1, 4.0),
                (true, 2, 4.0),
                (true, 1, 8.0),
                (false, 1, 4.0),
                (false, 1, 2.0),
            ],
        ),
        (LossScale::default(), &[(true, 1999, 65536.0), (true, 1, 131_072.0)]),
        (LossScale::default().with_growth_interval(1), &[(false, 64, 1.0), (true, 64, 16_777_216.0)]),
        (LossScale::none().with_growth_interval(1), &[(true, 1, 1.0), (false, 1, 1.0), (true, 1, 1.0)]),
    ];
    assert!((LossScale::default().value() - 65536.0).abs() < f64::EPSILON, "PyTorch's first scale");
    for (mut scale, steps) in cases {
        for &(finite, count, after) in steps {
            let outcome = if finite { StepOutcome::Applied } else { StepOutcome::Skipped };
            assert!((0..count).all(|_| scale.update(finite) == outcome));
            assert!((scale.value() - after).abs() < f64::EPSILON, "{} is not {after}", scale.value());
        }
    }
}

#[test]
fn a_saved_one_goes_on_as_the_one_that_was_saved() {
    let mut scale = LossScale::default().with_growth_interval(3);
    for finite in [true, false, true, true] {
        let _ = scale.update(finite);
    }
    let mut restored: LossScale = serde_json::from_str(&serde_json::to_string(&scale).unwrap()).unwrap();
    for finite in [true, true, false, true] {
        assert_eq!(scale.update(finite), restored.update(finite));
        assert_eq!(scale, restored);
    }
}
