//! The settings of a training run.

use burn::config::Config;
use gpu_tuned::{Precision, gpu_tuned};

use crate::model::ModelConfig;

/// Settings of a training run.
#[gpu_tuned(workload = "digits", global_batch = 256)]
#[derive(Config, Debug)]
pub struct TrainingConfig {
    /// The network to train.
    pub model: ModelConfig,
    /// Samples in one micro-batch.
    #[tuned]
    pub batch_size: usize,
    /// Micro-batches in one optimizer step.
    #[tuned]
    pub gradient_accumulation: usize,
    /// Number formats of the training step: fp32, or mixed precision where the GPU gains from it.
    #[tuned]
    pub precision: Precision,
    /// True if activations are recomputed in the backward pass.
    #[tuned]
    pub gradient_checkpointing: bool,
    /// Threads that assemble batches; 0 assembles them on the training thread.
    #[tuned]
    pub num_workers: usize,
    /// Samples in one batch when measuring accuracy.
    #[tuned]
    pub eval_batch_size: usize,
    /// Passes over the training images.
    #[config(default = 8)]
    pub num_epochs: usize,
    /// Learning rate of the first step; decays to zero along a cosine.
    #[config(default = 0.01)]
    pub learning_rate: f64,
    /// Seed of the initial weights and of the order of the images.
    #[config(default = 1)]
    pub seed: u64,
}
