use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Tensor};
use proptest::collection::vec;
use proptest::prelude::{Just, prop_assert_eq, prop_oneof, proptest};

use super::{Buckets, Packed};

proptest! {
    #[test]
    fn tensors_keep_their_values_in_vectors(
        lengths in vec(1..400_usize, 1..12),
        dtype in prop_oneof![Just(FloatDType::F32), Just(FloatDType::BF16)],
    ) {
        let tensor = |(value, length): (usize, &usize)| Tensor::<1>::full([*length], value as f64, &Device::flex());
        let tensors: Vec<_> = lengths.iter().enumerate().map(tensor).collect();
        let packed = Packed::new(tensors.iter().map(|tensor| tensor.clone().cast(dtype)).collect(), 2.0);
        let values = |tensor: Tensor<1>| tensor.cast(FloatDType::F32).into_data().iter::<f32>().collect::<Vec<_>>();
        let parts: Vec<_> = packed.parts().map(values).collect();
        prop_assert_eq!(parts, tensors.into_iter().map(|tensor| values(tensor * 2.0)).collect::<Vec<_>>());
    }
}

#[derive(Module, Debug)]
struct Two {
    used: Linear,
    unused: Linear,
}

fn model(width: usize) -> Two {
    let device = Device::flex().autodiff();
    let linear = |config: LinearConfig| config.init(&device);
    Two { used: linear(LinearConfig::new(width, 3)), unused: linear(LinearConfig::new(4, 2)) }
}

fn gradients(model: &Two, width: usize) -> GradientsParams {
    let row: Vec<f32> = (0..width).map(|column| column as f32).collect();
    let input = Tensor::<1>::from_floats(&row[..], &Device::flex().autodiff()).unsqueeze::<2>();
    let loss = model.used.forward(input).powi_scalar(2).sum();
    GradientsParams::from_grads(loss.backward(), model)
}

#[test]
fn what_is_split_again_is_what_was_put_together() {
    let model = model(5);
    let (whole, put) = (gradients(&model, 5), gradients(&model, 5));
    let buckets = Buckets::new(put, &model, 0.5, true);
    assert_eq!((buckets.packed.vectors.len(), &buckets.present[..]), (1, &[true, true, false, false][..]));
    let present = buckets.present.clone();
    let split = buckets.split(&model, &present, Some(&Tensor::from_floats([0.5], &Device::flex())));
    for (id, shape) in [(model.used.weight.id, 2), (model.used.bias.as_ref().unwrap().id, 1)] {
        let values = |gradients: &GradientsParams| match shape {
            1 => gradients.get::<1>(id).unwrap().into_data().iter::<f32>().collect::<Vec<_>>(),
            _ => gradients.get::<2>(id).unwrap().into_data().iter::<f32>().collect::<Vec<_>>(),
        };
        assert_eq!(values(&split), values(&whole).into_iter().map(|value| value / 4.0).collect::<Vec<_>>());
    }
    assert!(split.get::<2>(model.unused.weight.id).is_none());
}

#[test]
fn a_parameter_without_a_gradient_here_may_have_one_elsewhere() {
    let model = model(5);
    let buckets = Buckets::new(GradientsParams::new(), &model, 1.0, true);
    assert_eq!(buckets.present, [false; 4]);
    let split = buckets.split(&model, &[false, true, false, true], None);
    assert_eq!(split.len(), 2);
}
