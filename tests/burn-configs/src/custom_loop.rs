//! A loop of one's own, after `examples/custom-training-loop/src/lib.rs` of Burn (MIT or Apache-2.0).

use burn::config::Config;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::optim::{AdamConfig, GradientsParams};
use burn::tensor::{Device, Int, Tensor};
use gpu_tuned::gpu_tuned;

use crate::networks::digits::{Model, ModelConfig};

/// Training settings of the loop.
#[gpu_tuned(workload = "guide", global_batch = 64)]
#[derive(Config, Debug)]
pub struct LoopConfig {
    /// Passes over the images.
    #[config(default = 10)]
    pub num_epochs: usize,
    /// Images in a batch.
    #[tuned]
    pub batch_size: usize,
    /// Threads that load them.
    #[tuned]
    pub num_workers: usize,
    /// Seed of weights and order.
    #[config(default = 42)]
    pub seed: u64,
    /// Learning rate of every step.
    #[config(default = 1e-4)]
    pub lr: f64,
    /// The network.
    pub model: ModelConfig,
    /// Adam.
    pub optimizer: AdamConfig,
}

/// Ten digits, from 512 hidden units.
pub fn config() -> LoopConfig {
    LoopConfig::new(ModelConfig::new(10, 512), AdamConfig::new())
}

/// Trains on images `[samples, height, width]` and their digits, batch by batch, and returns the trained network.
pub fn run(config: &LoopConfig, images: &Tensor<3>, digits: &Tensor<1, Int>, device: &Device) -> Model {
    let mut model = config.model.init(device);
    let mut optimizer = config.optimizer.init();
    for _ in 0..config.num_epochs {
        for (images, digits) in
            images.clone().split(config.batch_size, 0).into_iter().zip(digits.clone().split(config.batch_size, 0))
        {
            let loss = CrossEntropyLossConfig::new().init(device).forward(model.forward(images), digits);
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(config.lr, model, gradients);
        }
    }
    model.valid()
}
