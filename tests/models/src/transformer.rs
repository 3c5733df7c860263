//! Transformers over Burn's encoder: GPT-2's layout, and a classifier.

use burn::{
    module::Module,
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
        attention::generate_autoregressive_mask,
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    tensor::{Device, Int, Tensor, module::linear},
};
use gpu_tuned_core::workload::{ModelSpec, Transformer};

use crate::{Network, cross_entropy, sizes};

/// Share of activations that training drops.
pub(crate) fn dropout(drops: bool) -> f64 {
    if drops { 0.1 } else { 0.0 }
}

pub(crate) fn positions(seq: usize, device: &Device) -> Tensor<2, Int> {
    let seq = i64::try_from(seq).expect("BUG: a sequence is short");
    Tensor::arange(0..seq, device).unsqueeze()
}

pub(crate) fn embedding(rows: u64, width: u64, device: &Device) -> Embedding {
    let [rows, width] = sizes([rows, width]);
    EmbeddingConfig::new(rows, width).init(device)
}

fn encoder(dimensions: &Transformer, norm_first: bool, device: &Device) -> TransformerEncoder {
    let Transformer { d_model, layers, heads, d_ff, .. } = *dimensions;
    let (heads, d_ff) = (heads.unwrap_or(d_model / 64), d_ff.unwrap_or(4 * d_model));
    let [d_model, d_ff, heads, layers] = sizes([d_model, d_ff, heads, layers]);
    let encoder = TransformerEncoderConfig::new(d_model, d_ff, heads, layers);
    encoder.with_norm_first(norm_first).with_dropout(dropout(dimensions.dropout)).init(device)
}

/// GPT-2: learned positions, biases. Norms precede attention and feed-forward layers where one follows the last layer, and
/// else follow them.
#[derive(Module, Debug)]
pub struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    encoder: TransformerEncoder,
    norm: Option<LayerNorm>,
    head: Option<Linear>,
}

impl Network for Gpt {
    type Dimensions = Transformer;

    fn new(dimensions: &Transformer, device: &Device) -> Self {
        let Transformer { d_model, vocab, seq, final_norm, .. } = *dimensions;
        let [width, words] = sizes([d_model, vocab]);
        Self {
            tokens: embedding(vocab, d_model, device),
            positions: embedding(seq, d_model, device),
            encoder: encoder(dimensions, final_norm, device),
            norm: final_norm.then(|| LayerNormConfig::new(width).init(device)),
            head: (!dimensions.tied_head).then(|| LinearConfig::new(width, words).init(device)),
        }
    }

    /// The loss over all tokens of some sequences.
    fn loss(&self, dimensions: &Transformer, samples: usize, device: &Device) -> Tensor<1> {
        cross_entropy(self.logits(dimensions, samples, device))
    }
}

impl Gpt {
    /// Logits for every token of some sequences, `[tokens, vocabulary]`.
    pub fn logits(&self, dimensions: &Transformer, samples: usize, device: &Device) -> Tensor<2> {
        let [seq, width, vocab] = sizes([dimensions.seq, dimensions.d_model, dimensions.vocab]);
        let places = self.positions.forward(positions(seq, device));
        let embedded = self.tokens.forward(Tensor::zeros([samples, seq], device)) + places;
        let mut input = TransformerEncoderInput::new(embedded);
        if dimensions.causal {
            input = input.mask_attn(generate_autoregressive_mask(samples, seq, device));
        }
        let mut hidden = self.encoder.forward(input);
        if let Some(norm) = &self.norm {
            hidden = norm.forward(hidden);
        }
        match &self.head {
            // Rows of logits have padding, which a reshape of the logits would copy away.
            Some(head) => head.forward(hidden.reshape([samples * seq, width])),
            None => linear(hidden, self.tokens.weight.val().transpose(), None).reshape([samples * seq, vocab]),
        }
    }
}

/// The dimensions of a [`Classifier`].
#[derive(Clone, Debug)]
pub struct Classes {
    /// The transformer.
    pub transformer: Transformer,
    /// True if norms precede attention and feed-forward layers.
    pub norm_first: bool,
}

impl From<Classes> for ModelSpec {
    fn from(dimensions: Classes) -> Self {
        dimensions.transformer.into()
    }
}

/// Burn's text-classification example: its encoder, learned positions, classes from the first token.
#[derive(Module, Debug)]
pub struct Classifier {
    tokens: Embedding,
    positions: Embedding,
    encoder: TransformerEncoder,
    head: Linear,
}

fn classes(dimensions: &Transformer) -> usize {
    dimensions.classes.expect("BUG: a classifier has classes") as usize
}

impl Network for Classifier {
    type Dimensions = Classes;

    fn new(Classes { transformer, norm_first }: &Classes, device: &Device) -> Self {
        let Transformer { d_model, vocab, seq, .. } = *transformer;
        Self {
            tokens: embedding(vocab, d_model, device),
            positions: embedding(seq, d_model, device),
            encoder: encoder(transformer, *norm_first, device),
            head: LinearConfig::new(d_model as usize, classes(transformer)).init(device),
        }
    }

    /// The loss over the classes of some sequences.
    fn loss(&self, Classes { transformer, .. }: &Classes, samples: usize, device: &Device) -> Tensor<1> {
        let seq = transformer.seq as usize;
        let places = self.positions.forward(positions(seq, device));
        let tokens = Tensor::<2, Int>::zeros([samples, seq], device);
        let embedded = (places + self.tokens.forward(tokens.clone())) / 2;
        let padding = tokens.equal_scalar(1);
        let encoded = self.encoder.forward(TransformerEncoderInput::new(embedded).mask_pad(padding));
        let logits = self.head.forward(encoded);
        cross_entropy(logits.slice([0..samples, 0..1]).reshape([samples, classes(transformer)]))
    }
}
