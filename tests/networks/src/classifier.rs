use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::Module;
use burn::nn::Linear;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{Device, Int, Tensor};
use burn::train::{ClassificationOutput, InferenceStep, TrainOutput, TrainStep};

use crate::{CLASSES, Countdown, FEATURES, constant, fail};

/// One linear layer that learns the class of [`Labelled`](crate::Labelled) samples.
#[derive(Module, Debug)]
pub struct Classifier {
    /// The layer.
    pub layer: Linear,
    /// Training steps that still fail without memory.
    #[module(skip)]
    pub failing: Countdown,
    /// Inference steps that still fail without memory.
    #[module(skip)]
    pub failing_in_validation: Countdown,
    /// Samples of the largest training step.
    #[module(skip)]
    pub largest: Arc<AtomicUsize>,
}

type Batch = (Tensor<2>, Tensor<1, Int>);

impl Classifier {
    /// Makes the network, whose steps do not fail.
    pub fn new(device: &Device) -> Self {
        Self {
            layer: constant(FEATURES, CLASSES, 0.1, device),
            failing: Arc::default(),
            failing_in_validation: Arc::default(),
            largest: Arc::default(),
        }
    }

    fn classify(&self, (input, targets): Batch) -> ClassificationOutput {
        let output = self.layer.forward(input);
        let loss = CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), targets.clone());
        ClassificationOutput::new(loss, output, targets)
    }
}

impl TrainStep for Classifier {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        self.largest.fetch_max(batch.0.dims()[0], Ordering::Relaxed);
        let item = self.classify(batch);
        fail(&self.failing);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Classifier {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        fail(&self.failing_in_validation);
        self.classify(batch)
    }
}
