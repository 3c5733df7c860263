//! A classifier over an encoder, after `examples/text-classification/src/model.rs` of Burn (MIT or Apache-2.0).

use burn::config::Config;
use burn::module::Module;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::Device;

/// The shape of the network.
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// The encoder.
    pub transformer: TransformerEncoderConfig,
    /// Classes.
    pub n_classes: usize,
    /// Tokens in the vocabulary.
    pub vocab_size: usize,
    /// Tokens in a text.
    pub seq_length: usize,
}

/// The network.
#[derive(Module, Debug)]
pub struct Model {
    tokens: Embedding,
    positions: Embedding,
    encoder: TransformerEncoder,
    output: Linear,
}

impl ModelConfig {
    /// A network with random weights.
    pub fn init(&self, device: &Device) -> Model {
        let width = self.transformer.d_model;
        Model {
            tokens: EmbeddingConfig::new(self.vocab_size, width).init(device),
            positions: EmbeddingConfig::new(self.seq_length, width).init(device),
            encoder: self.transformer.init(device),
            output: LinearConfig::new(width, self.n_classes).init(device),
        }
    }
}
