#[path = "../model.rs"]
mod model;

use burn::config::Config;
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataset::InMemDataset;
use burn::optim::AdamConfig;
use burn::tensor::Device;
use burn::train::metric::LossMetric;
use burn::train::{ExecutionStrategy, Learner, SupervisedTraining, TrainingStrategy};
use model::{Gather, Model};

const BASE: usize = 4;

#[derive(Config, Debug)]
pub struct TrainingConfig {
    pub optimizer: AdamConfig,
    #[config(default = "BASE * 2")]
    pub batch_size: usize,
    #[config(default = 4)]
    pub grad_accum_steps: usize,
    #[config(default = 2)]
    pub num_workers: usize,
    #[config(default = 1.0e-4)]
    pub learning_rate: f64,
}

fn train(config: TrainingConfig) -> Result<(), String> {
    let device = Device::flex();
    let loader = || {
        DataLoaderBuilder::new(Gather)
            .batch_size(config.batch_size)
            .num_workers(config.num_workers)
            .build(InMemDataset::new(vec![[0.0, 1.0]; 64]))
    };
    let training = SupervisedTraining::new("out", loader(), loader())
        .metric_train_numeric(LossMetric::new())
        .with_training_strategy(TrainingStrategy::Default(ExecutionStrategy::single(device.clone())))
        .grads_accumulation(config.grad_accum_steps)
        .num_epochs(3);
    let learner = Learner::new(Model::new(&device), config.optimizer.init(), config.learning_rate);
    match training.launch(learner).error {
        None => Ok(()),
        Some(error) => Err(error.to_string()),
    }
}

fn main() {
    if let Err(error) = train(TrainingConfig::new(AdamConfig::new())) {
        eprintln!("{error}");
    }
}
