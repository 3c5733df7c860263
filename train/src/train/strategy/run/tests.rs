use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{DType, Device, Tensor};
use burn::train::{InferenceStep, Learner, RegressionOutput, TrainOutput, TrainStep};

use super::Learning;
use crate::mixed::{Factor, Half, Master, accumulate, in_f32, widen};
use crate::train::update::Weights;

#[derive(Module, Debug)]
struct Model {
    layer: Linear,
}

type Pair = (Tensor<2>, Tensor<2>);

impl Model {
    fn new(device: &Device) -> Self {
        let layer = LinearConfig::new(2, 1).with_initializer(Initializer::Constant { value: 0.3 });
        Self { layer: layer.init(device) }
    }

    fn loss(&self, (input, target): Pair) -> RegressionOutput {
        let output = self.layer.forward(input);
        let loss = (in_f32(output.clone()) - in_f32(target.clone())).square().mean();
        RegressionOutput::new(loss, output, target)
    }
}

impl TrainStep for Model {
    type Input = Pair;
    type Output = RegressionOutput;

    fn step(&self, pair: Pair) -> TrainOutput<RegressionOutput> {
        let item = self.loss(pair);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Model {
    type Input = Pair;
    type Output = RegressionOutput;

    fn step(&self, pair: Pair) -> RegressionOutput {
        self.loss(pair)
    }
}

#[test]
fn a_learner_in_mixed_precision_keeps_f32_weights_and_takes_the_steps_of_a_master() {
    let device = Device::flex().autodiff();
    let bf16 = |values: [[f32; 2]; 2]| Tensor::<2>::from_data(values, (&device, DType::BF16));
    let pair = || (bf16([[0.5, 1.5], [-1.0, 0.25]]), Tensor::<2>::ones([2, 1], (&device, DType::BF16)));
    let optimizer = || AdamWConfig::new().init();

    let learner = Learner::new(Model::new(&device), optimizer(), 1e-3);
    let mut learning = Learning::new(learner, Some(Half::Bf16), &device).unwrap();
    let (mut master, mut by_hand) = (Master::new(Model::new(&device), Half::Bf16).unwrap(), optimizer());
    for step in 0..4 {
        learning.learner.lr_step();
        let model = learning.model();
        let all = [model.layer.weight.id, model.layer.bias.as_ref().unwrap().id];
        assert_eq!(model.layer.weight.dtype(), DType::BF16);
        let gradients = TrainStep::step(&model, pair()).grads;
        let gradients = accumulate(&model, GradientsParams::new(), gradients, &Factor::Number(1.0), true).unwrap();
        // In one group it is the same.
        learning = learning.updated(gradients, (step % 2 == 1).then_some(&all[..]));

        let copy = master.compute_copy();
        let gradients = widen(GradientsParams::from_grads(copy.loss(pair()).loss.backward(), &copy), &copy).unwrap();
        master = master.update(|model| by_hand.step(1e-3, model, gradients));
    }
    let values = |model: &Model| model.layer.weight.val().into_data().iter::<f32>().collect::<Vec<_>>();
    assert_eq!(learning.master().layer.weight.dtype(), DType::F32);
    assert_eq!(values(&learning.master()), values(master.model()));
    assert_eq!(values(&learning.model()), values(&master.compute_copy()));
    assert!(values(master.model()).iter().all(|value| (value - 0.3).abs() > 1e-3), "it learned");
}
