//! The guide's training run, after `examples/guide/src/training.rs` of Burn (MIT or Apache-2.0).

use burn::config::Config;
use burn::optim::AdamConfig;

use crate::networks::digits::ModelConfig;

/// Training settings of the guide.
#[derive(Config, Debug)]
pub struct TrainingConfig {
    /// The network.
    pub model: ModelConfig,
    /// Adam.
    pub optimizer: AdamConfig,
    /// Passes over the images.
    #[config(default = 10)]
    pub num_epochs: usize,
    /// Images in a batch.
    #[config(default = 64)]
    pub batch_size: usize,
    /// Threads that load them.
    #[config(default = 4)]
    pub num_workers: usize,
    /// Seed of weights and order.
    #[config(default = 42)]
    pub seed: u64,
    /// Learning rate of every step.
    #[config(default = 1.0e-4)]
    pub learning_rate: f64,
}

/// Ten digits, from 512 hidden units.
pub fn config() -> TrainingConfig {
    TrainingConfig::new(ModelConfig::new(10, 512), AdamConfig::new())
}
