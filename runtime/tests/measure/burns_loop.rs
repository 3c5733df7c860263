//! A program that trains with Burn's own loop.

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use burn::train::{InferenceStep, Learner, RegressionOutput, SupervisedTraining, TrainOutput, TrainStep};

use super::{WIDTH, session};

#[derive(Module, Debug)]
struct Model {
    layer: Linear,
}

impl Model {
    fn mean(&self, batch: Tensor<2>) -> RegressionOutput {
        let output = self.layer.forward(batch);
        RegressionOutput::new(output.clone().mean(), output.clone(), output)
    }
}

impl TrainStep for Model {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, batch: Tensor<2>) -> TrainOutput<RegressionOutput> {
        let item = self.mean(batch);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Model {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, batch: Tensor<2>) -> RegressionOutput {
        self.mean(batch)
    }
}

struct Ones;

impl Batcher<usize, Tensor<2>> for Ones {
    fn batch(&self, samples: Vec<usize>, device: &Device) -> Tensor<2> {
        Tensor::ones([samples.len(), WIDTH], device)
    }
}

#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let (session, device) = (session(), Device::flex());
    let loader = || DataLoaderBuilder::new(Ones).batch_size(7).build(InMemDataset::new((0..21).collect()));
    let folder = tempfile::tempdir().expect("a folder");
    let training = SupervisedTraining::new(folder.path(), loader(), loader())
        .with_training_strategy(session.strategy().expect("one device"))
        .with_application_logger(None)
        .num_epochs(1);
    // On another device than the session's, as programs are that know nothing of it.
    let model = Model { layer: LinearConfig::new(WIDTH, WIDTH).init(&device.autodiff()) };
    let result = training.launch(Learner::new(model, AdamWConfig::new().init(), 1e-3));
    match result.error {
        None => println!("went on"),
        Some(error) => panic!("{error}"),
    }
}
