//! The network: a causal transformer in GPT-2's layout, with norms before attention and feed-forward layers.
//!
//! The network has no dropout, so steps draw no random numbers, and a resumed run needs no random state.

use burn::{
    module::{Initializer, Module},
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
        attention::{MhaInput, MultiHeadAttention, MultiHeadAttentionConfig, generate_autoregressive_mask},
        loss::CrossEntropyLossConfig,
        transformer::{PositionWiseFeedForward, PositionWiseFeedForwardConfig},
    },
    tensor::{Bool, Device, Int, Tensor},
};
use gpu_tuned::mixed::in_f32;

use crate::{config::TrainingConfig, windows::Batch};

const EMBEDDING_INIT: Initializer = Initializer::Normal { mean: 0.0, std: 0.02 };

/// The network.
#[derive(Module, Debug)]
pub struct Model {
    characters: Embedding,
    positions: Embedding,
    blocks: Vec<Block>,
    norm: LayerNorm,
    head: Linear,
}

impl Model {
    /// Creates the network with random weights.
    pub fn new(config: &TrainingConfig, device: &Device) -> Self {
        let embedding = |count| EmbeddingConfig::new(count, config.d_model).with_initializer(EMBEDDING_INIT);
        Self {
            characters: embedding(config.vocabulary).init(device),
            positions: embedding(config.window).init(device),
            blocks: (0..config.n_layers).map(|_| Block::new(config, device)).collect(),
            norm: LayerNormConfig::new(config.d_model).init(device),
            head: LinearConfig::new(config.d_model, config.vocabulary).init(device),
        }
    }

    /// Logits of the next character, `[windows, length, vocabulary]`, for characters `[windows, length]`. The length
    /// is at most the config's window.
    pub fn forward(&self, characters: Tensor<2, Int>) -> Tensor<3> {
        let [windows, length] = characters.dims();
        let device = characters.device();
        let positions = self.positions.weight.val().narrow(0, 0, length).unsqueeze();
        let mask = generate_autoregressive_mask(windows, length, &device);
        let mut hidden = self.characters.forward(characters) + positions;
        for block in &self.blocks {
            hidden = block.forward(hidden, mask.clone());
        }
        self.head.forward(self.norm.forward(hidden))
    }

    /// Mean negative log-likelihood of a batch's targets, in nats a character.
    pub fn loss(&self, Batch { inputs, targets }: Batch) -> Tensor<1> {
        let scores = in_f32(self.forward(inputs)).flatten(0, 1);
        CrossEntropyLossConfig::new().init(&scores.device()).forward(scores, targets.flatten(0, 1))
    }
}

#[derive(Module, Debug)]
struct Block {
    attention_norm: LayerNorm,
    attention: MultiHeadAttention,
    feed_forward_norm: LayerNorm,
    feed_forward: PositionWiseFeedForward,
}

impl Block {
    fn new(config: &TrainingConfig, device: &Device) -> Self {
        let width = config.d_model;
        let norm = || LayerNormConfig::new(width).init(device);
        Self {
            attention_norm: norm(),
            attention: MultiHeadAttentionConfig::new(width, config.n_heads).with_dropout(0.0).init(device),
            feed_forward_norm: norm(),
            feed_forward: PositionWiseFeedForwardConfig::new(width, 4 * width).with_dropout(0.0).init(device),
        }
    }

    fn forward(&self, input: Tensor<3>, mask: Tensor<3, Bool>) -> Tensor<3> {
        let attended = MhaInput::self_attn(self.attention_norm.forward(input.clone())).mask_attn(mask);
        let hidden = input + self.attention.forward(attended).context;
        self.feed_forward.forward(self.feed_forward_norm.forward(hidden.clone())) + hidden
    }
}
