use burn::data::dataloader::batcher::Batcher;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::prelude::*;
use burn::tensor::activation::relu;
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};

#[derive(Clone, Debug)]
pub struct Points {
    pub positions: Tensor<2>,
    pub classes: Tensor<1, Int>,
}

#[derive(Clone, Debug)]
pub struct Gather;

impl Batcher<[f32; 2], Points> for Gather {
    fn batch(&self, points: Vec<[f32; 2]>, device: &Device) -> Points {
        let classes: Vec<i32> = points.iter().map(|[x, y]| i32::from(x * x + y * y < 0.5)).collect();
        let positions = Tensor::<1>::from_floats(points.as_flattened(), device).reshape([points.len(), 2]);
        Points { positions, classes: Tensor::from_ints(&classes[..], device) }
    }
}

#[derive(Module, Debug)]
pub struct Model {
    hidden: Linear,
    out: Linear,
}

impl Model {
    pub fn new(device: &Device) -> Self {
        Self { hidden: LinearConfig::new(2, 64).init(device), out: LinearConfig::new(64, 2).init(device) }
    }

    pub fn classify(&self, batch: Points) -> ClassificationOutput {
        let logits = self.out.forward(relu(self.hidden.forward(batch.positions)));
        let loss = CrossEntropyLossConfig::new().init(&logits.device()).forward(logits.clone(), batch.classes.clone());
        ClassificationOutput::new(loss, logits, batch.classes)
    }
}

impl TrainStep for Model {
    type Input = Points;
    type Output = ClassificationOutput;

    fn step(&self, batch: Points) -> TrainOutput<ClassificationOutput> {
        let item = self.classify(batch);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Model {
    type Input = Points;
    type Output = ClassificationOutput;

    fn step(&self, batch: Points) -> ClassificationOutput {
        self.classify(batch)
    }
}
