//! The settings of a training run.

use burn::config::Config;
use gpu_tuned::{Precision, gpu_tuned};

/// Settings of a training run.
#[gpu_tuned(transformer(tied_head = false, dropout = false), global_batch = 64)]
#[derive(Config, Debug)]
pub struct TrainingConfig {
    /// Number of characters in the vocabulary, with one for unknown ones.
    #[tuned(dim = vocab, default = 80)]
    pub vocabulary: usize,
    /// Characters in a window; one sample is one window.
    #[tuned(dim = seq, default = 64)]
    pub window: usize,
    /// Transformer blocks.
    #[tuned(dim = layers, default = 3)]
    pub n_layers: usize,
    /// Width of the residual stream.
    #[tuned(dim = d_model, default = 96)]
    pub d_model: usize,
    /// Attention heads of a block; must divide the width.
    #[tuned(dim = heads, default = 4)]
    pub n_heads: usize,
    /// Windows in one micro-batch.
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
    /// Windows in one batch when measuring perplexity.
    #[tuned]
    pub eval_batch_size: usize,
    /// Optimizer steps of the whole run.
    #[config(default = 300)]
    pub steps: usize,
    /// Optimizer steps of rising learning rate; at most half of all steps.
    #[config(default = 30)]
    pub warm_up_steps: usize,
    /// Highest learning rate, after warm-up; decays to zero along a cosine.
    #[config(default = 0.003)]
    pub learning_rate: f64,
    /// Seed of the initial weights and of the order of the windows.
    #[config(default = 1)]
    pub seed: u64,
}

impl TrainingConfig {
    /// Returns the config with this build's tuned settings, for a machine that may differ.
    #[must_use]
    pub fn replanned(self) -> Self {
        let Self { batch_size, gradient_accumulation, precision, gradient_checkpointing, eval_batch_size, .. } =
            Self::new();
        Self { batch_size, gradient_accumulation, precision, gradient_checkpointing, eval_batch_size, ..self }
    }
}
