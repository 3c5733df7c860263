mod model;

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataset::InMemDataset;
use burn::optim::{GradientsAccumulator, GradientsParams, SgdConfig};
use burn::tensor::Device;
use model::{Gather, Model};

const BATCH: usize = 1 << 3;

#[derive(Clone, Debug)]
struct TrainConfig {
    name: String,
    batch_size: usize,
    batches_per_step: usize,
    epochs: usize,
    learning_rate: f64,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self {
            name: "points".to_owned(),
            batch_size: BATCH * 2,
            batches_per_step: 4,
            epochs: 3,
            learning_rate: 1e-2,
        }
    }
}

#[cfg(test)]
mod tests {
    struct TestConfig {
        batch_size: usize,
        num_workers: usize,
        epochs: usize,
        learning_rate: f64,
        seed: u64,
    }
}

fn main() {
    let config = TrainConfig::default();
    println!("{}", config.name);
    let device = Device::flex().autodiff();
    let mut model = Model::new(&device);
    let mut optimizer = SgdConfig::new().init();
    let loader = DataLoaderBuilder::new(Gather)
        .batch_size(config.batch_size)
        .set_device(device)
        .build(InMemDataset::new(vec![[0.0, 1.0]; 64]));
    let mut sum = GradientsAccumulator::new();
    for _ in 0..config.epochs {
        for (batch, points) in loader.iter().flatten().enumerate() {
            let gradients = GradientsParams::from_grads(model.classify(points).loss.backward(), &model);
            sum.accumulate(&model, gradients);
            if (batch + 1) % config.batches_per_step == 0 {
                model = optimizer.step(config.learning_rate, model, sum.grads());
            }
        }
    }
}
