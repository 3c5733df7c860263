use burn::module::{Module, Param};
use burn::nn::LinearConfig;
use burn::optim::{GradientsParams, SgdConfig};
use burn::tensor::{DType, Device, Tensor};

use super::{ModelAndOptimizer, ModelWeights, SharedGraphs, Weights};
use crate::mixed::{Factor, Half, Master, accumulate};
use crate::train::tests::parameters;

#[test]
fn frozen_weights_are_cast_once() {
    let device = Device::flex().autodiff();
    let (frozen, trained) = (LinearConfig::new(3, 3).init(&device).no_grad(), LinearConfig::new(3, 1).init(&device));
    let master = Master::new((frozen, trained), Half::Bf16).unwrap();
    let mut copy = master.compute_copy();
    // Cast again, it would be as the master has it.
    let marked = Tensor::full([3, 3], 7.0, (&device, DType::BF16));
    copy.0.weight = Param::initialized(copy.0.weight.id, marked.set_require_grad(false));
    let weights = ModelWeights::Mixed { master, copy };
    let optimizer = SgdConfig::new().init();
    let weights = ModelAndOptimizer { weights, optimizer, learning_rate: 0.5, graphs: SharedGraphs::new(&device) };

    let model = weights.model();
    let input = Tensor::<2>::ones([2, 3], (&device, DType::BF16));
    let loss = crate::mixed::in_f32(model.1.forward(model.0.forward(input))).mean();
    let gradients = GradientsParams::from_grads(loss.backward(), &model);
    let gradients = accumulate(&model, GradientsParams::new(), gradients, &Factor::Number(1.0), true).unwrap();
    let new = weights.updated(gradients, None);
    assert_eq!(parameters(&new.model().0.weight), [7.0; 9]);
    assert_ne!(parameters(&new.model().1), parameters(&model.1));
    let ModelWeights::Mixed { master, copy } = new.weights else { panic!("it is mixed") };
    assert_eq!(parameters(&master.compute_copy().1), parameters(&copy.1));
}
