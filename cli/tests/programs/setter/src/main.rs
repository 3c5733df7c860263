mod model;

use burn::config::Config;
use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataset::InMemDataset;
use burn::tensor::Device;
use model::{Gather, Model};

#[derive(Config, Debug)]
struct TrainingConfig {
    learning_rate: f64,
    batch_size: usize,
    num_workers: usize,
    #[config(default = 3)]
    num_epochs: usize,
}

impl TrainingConfig {
    fn quick() -> Self {
        Self::new(0.1, 64, 2).with_num_epochs(1)
    }

    fn with_batch_size(mut self, batch_size: usize) -> Self {
        self.batch_size = batch_size;
        self
    }
}

fn main() {
    let config = if std::env::args().len() > 1 {
        TrainingConfig::quick()
    } else {
        TrainingConfig::new(1e-2, 64, 2).with_batch_size(64)
    };
    let device = Device::flex();
    let model = Model::new(&device);
    let loader = DataLoaderBuilder::new(Gather)
        .batch_size(config.batch_size)
        .num_workers(config.num_workers)
        .set_device(device)
        .build(InMemDataset::new(vec![[0.0, 1.0]; 64]));
    for points in loader.iter().flatten().take(config.num_epochs) {
        println!("{} at {}", model.classify(points).loss, config.learning_rate);
    }
}
