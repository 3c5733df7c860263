pub mod model;

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataset::InMemDataset;
use burn::optim::AdamWConfig;
use burn::tensor::Device;
use burn::train::metric::LossMetric;
use burn::train::{Learner, SupervisedTraining};
use miette::{Result, miette};

use crate::model::{Gather, Model};

#[derive(Clone)]
pub struct TrainSettings {
    pub batch_size: usize,
    pub epochs: usize,
    pub learning_rate: f64,
    pub num_workers: usize,
}

impl Default for TrainSettings {
    fn default() -> Self {
        TrainSettings { batch_size: 24, epochs: 3, learning_rate: 1e-3, num_workers: 2 }
    }
}

pub fn fit(settings: &TrainSettings, device: &Device) -> Result<()> {
    let loader = || {
        let builder = DataLoaderBuilder::new(Gather).batch_size(settings.batch_size).num_workers(settings.num_workers);
        builder.build(InMemDataset::new(vec![[0.0, 1.0]; 64]))
    };
    let training = SupervisedTraining::new("out", loader(), loader())
        .metric_train_numeric(LossMetric::new())
        .num_epochs(settings.epochs);
    let learner = Learner::new(Model::new(device), AdamWConfig::new().init(), settings.learning_rate);
    match training.launch(learner).error {
        None => Ok(()),
        Some(error) => Err(miette!("{error}")),
    }
}
