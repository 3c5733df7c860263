//! The run of the larger network on digits, after `examples/mnist/src/training.rs` of Burn (MIT or Apache-2.0).

use burn::config::Config;
use burn::optim::AdamWConfig;

/// Training settings of the example; its network has no config.
#[derive(Config, Debug)]
pub struct MnistTrainingConfig {
    /// Passes over the images.
    #[config(default = 1)]
    pub num_epochs: usize,
    /// Images in a batch.
    #[config(default = 256)]
    pub batch_size: usize,
    /// Threads that load them.
    #[config(default = 8)]
    pub num_workers: usize,
    /// Seed of weights and order.
    #[config(default = 42)]
    pub seed: u64,
    /// `AdamW`.
    pub optimizer: AdamWConfig,
}

/// With the decay that the example sets.
pub fn config() -> MnistTrainingConfig {
    MnistTrainingConfig::new(AdamWConfig::new().with_cautious_weight_decay(true).with_weight_decay(5e-5))
}
