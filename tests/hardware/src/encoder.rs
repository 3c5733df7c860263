//! The transformer that is measured.

use burn::{
    module::Module,
    tensor::{Device, Int, Tensor},
};
use gpu_tuned::nn::{
    Embedding, EmbeddingConfig, Linear, LinearConfig,
    transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
};

/// The dimensions of an [`Encoder`].
#[derive(Clone, Copy, Debug)]
pub struct EncoderDimensions {
    /// Layers.
    pub layers: usize,
    /// Width; the feed-forward layers have four times as much.
    pub d_model: usize,
    /// Heads of attention.
    pub heads: usize,
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Tokens in a sequence.
    pub tokens: usize,
}

/// Embedded tokens, Burn's encoder with norms after, a head over every token; no positions.
#[derive(Module, Debug)]
pub struct Encoder {
    tokens: Embedding,
    layers: TransformerEncoder,
    head: Linear,
}

impl Encoder {
    /// A network with random weights.
    pub fn new(dimensions: &EncoderDimensions, device: &Device) -> Self {
        let EncoderDimensions { layers, d_model, heads, vocab, .. } = *dimensions;
        let encoder = TransformerEncoderConfig::new(d_model, 4 * d_model, heads, layers);
        Self {
            tokens: EmbeddingConfig::new(vocab, d_model).init(device),
            layers: encoder.with_dropout(0.0).init(device),
            head: LinearConfig::new(d_model, vocab).init(device),
        }
    }

    /// The next token at every place, as `[samples x tokens, vocabulary]`.
    pub fn logits(&self, tokens: Tensor<2, Int>) -> Tensor<2> {
        let hidden = self.layers.forward(TransformerEncoderInput::new(self.tokens.forward(tokens)));
        // Rows of logits have padding, which a reshape of the logits would copy away.
        self.head.forward(hidden.flatten(0, 1))
    }
}
