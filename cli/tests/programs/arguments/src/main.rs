mod model;

use burn::data::dataloader::DataLoaderBuilder;
use burn::data::dataset::InMemDataset;
use burn::tensor::Device;
use clap::Parser;
use model::{Gather, Model};

#[derive(Clone, Debug, Parser)]
struct TrainConfig {
    /// Samples of a batch.
    #[arg(long, default_value_t = 32)]
    batch_size: usize,
    #[arg(default_value = "2", long = "workers")]
    num_workers: usize,
    #[arg(long, default_value_t = 3)]
    epochs: usize,
    #[arg(long, default_value_t = 1e-2)]
    lr: f64,
}

fn main() -> anyhow::Result<()> {
    let config = TrainConfig::parse();
    let device = Device::flex().autodiff();
    let model = Model::new(&device);
    let loader = DataLoaderBuilder::new(Gather)
        .batch_size(config.batch_size)
        .num_workers(config.num_workers)
        .set_device(device)
        .build(InMemDataset::new(vec![[0.0, 1.0]; 64]));
    for _ in 0..config.epochs {
        for points in loader.iter().flatten() {
            println!("{} at {}", model.classify(points).loss, config.lr);
        }
    }
    Ok(())
}
