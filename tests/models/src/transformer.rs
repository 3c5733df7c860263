//! Transformers: GPT-2's layout, Llama's, and a classifier over Burn's encoder.

use burn::{
    module::Module,
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig, RmsNorm, RmsNormConfig,
        RotaryEncoding, RotaryEncodingConfig, SwiGlu, SwiGluConfig,
        attention::generate_autoregressive_mask,
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    tensor::{Bool, Device, Int, Tensor, activation::softmax, module::linear},
};

use gpu_tuned_core::workload::{self, Norm, Positions};

use crate::cross_entropy;

/// The dimensions of a transformer.
#[derive(Clone, Copy, Debug)]
pub struct Dimensions {
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Width of the feed-forward layer.
    pub d_ff: usize,
    /// Attention heads.
    pub heads: usize,
    /// Heads of keys and values.
    pub kv_heads: usize,
    /// Tokens in the vocabulary, or classes of a classifier's head.
    pub vocab: usize,
    /// Tokens in a sequence.
    pub seq: usize,
    /// Share of activations that training drops.
    pub dropout: f64,
    /// True if a token sees only earlier ones.
    pub causal: bool,
    /// True if the head shares the embedding's weights.
    pub tied: bool,
    /// True if norms precede attention and feed-forward layers, with one more after the last layer. False if norms
    /// follow them.
    pub norm_first: bool,
}

impl Dimensions {
    /// [`Gpt`] as core describes it.
    pub fn gpt(&self) -> workload::Transformer {
        workload::Transformer {
            heads: Some(self.heads as u64),
            d_ff: Some(self.d_ff as u64),
            causal: self.causal,
            dropout: self.dropout > 0.0,
            final_norm: self.norm_first,
            tied_head: self.tied,
            ..workload::Transformer::new(self.layers as u64, self.d_model as u64, self.vocab as u64, self.seq as u64)
        }
    }

    /// [`Classifier`] over this many words as core describes it.
    pub fn classifier(&self, words: usize) -> workload::Transformer {
        workload::Transformer {
            vocab: words as u64,
            causal: false,
            final_norm: false,
            tied_head: false,
            classes: Some(self.vocab as u64),
            ..self.gpt()
        }
    }

    /// [`Llama`] as core describes it.
    pub fn llama(&self) -> workload::Transformer {
        workload::Transformer {
            kv_heads: Some(self.kv_heads as u64),
            gated: true,
            causal: true,
            dropout: false,
            bias: false,
            norm: Norm::Rms,
            positions: Positions::Rotary,
            final_norm: true,
            tied_head: false,
            ..self.gpt()
        }
    }

    fn tokens(&self, samples: usize, device: &Device) -> Tensor<2, Int> {
        Tensor::zeros([samples, self.seq], device)
    }

    fn encoder(&self, device: &Device) -> TransformerEncoder {
        TransformerEncoderConfig::new(self.d_model, self.d_ff, self.heads, self.layers)
            .with_norm_first(self.norm_first)
            .with_dropout(self.dropout)
            .init(device)
    }

    fn mask(&self, samples: usize, device: &Device) -> Tensor<3, Bool> {
        generate_autoregressive_mask(samples, self.seq, device)
    }
}

pub(crate) fn positions(seq: usize, device: &Device) -> Tensor<2, Int> {
    let seq = i64::try_from(seq).expect("BUG: a sequence is short");
    Tensor::arange(0..seq, device).unsqueeze()
}

/// GPT-2: learned positions, biases.
#[derive(Module, Debug)]
pub struct Gpt {
    tokens: Embedding,
    positions: Embedding,
    encoder: TransformerEncoder,
    norm: Option<LayerNorm>,
    head: Option<Linear>,
}

impl Gpt {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let head = LinearConfig::new(dimensions.d_model, dimensions.vocab);
        Self {
            tokens: EmbeddingConfig::new(dimensions.vocab, dimensions.d_model).init(device),
            positions: EmbeddingConfig::new(dimensions.seq, dimensions.d_model).init(device),
            encoder: dimensions.encoder(device),
            norm: dimensions.norm_first.then(|| LayerNormConfig::new(dimensions.d_model).init(device)),
            head: (!dimensions.tied).then(|| head.init(device)),
        }
    }

    /// The loss over all tokens of some sequences.
    pub fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        cross_entropy(self.logits(dimensions, samples, device))
    }

    /// Logits for every token of some sequences, `[tokens, vocabulary]`.
    pub fn logits(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<2> {
        let places = self.positions.forward(positions(dimensions.seq, device));
        let embedded = self.tokens.forward(dimensions.tokens(samples, device)) + places;
        let mut input = TransformerEncoderInput::new(embedded);
        if dimensions.causal {
            input = input.mask_attn(dimensions.mask(samples, device));
        }
        let mut hidden = self.encoder.forward(input);
        if let Some(norm) = &self.norm {
            hidden = norm.forward(hidden);
        }
        let logits = match &self.head {
            Some(head) => head.forward(hidden),
            None => linear(hidden, self.tokens.weight.val().transpose(), None),
        };
        logits.reshape([samples * dimensions.seq, dimensions.vocab])
    }
}

/// Burn's text-classification example: its encoder with norms after, learned positions, classes from the first token.
#[derive(Module, Debug)]
pub struct Classifier {
    tokens: Embedding,
    positions: Embedding,
    encoder: TransformerEncoder,
    head: Linear,
}

impl Classifier {
    /// A model with random weights for a vocabulary, with [`Dimensions::vocab`] classes.
    pub fn new(dimensions: &Dimensions, words: usize, device: &Device) -> Self {
        Self {
            tokens: EmbeddingConfig::new(words, dimensions.d_model).init(device),
            positions: EmbeddingConfig::new(dimensions.seq, dimensions.d_model).init(device),
            encoder: dimensions.encoder(device),
            head: LinearConfig::new(dimensions.d_model, dimensions.vocab).init(device),
        }
    }

    /// The loss over the classes of some sequences.
    pub fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        let places = self.positions.forward(positions(dimensions.seq, device));
        let embedded = (places + self.tokens.forward(dimensions.tokens(samples, device))) / 2;
        let padding = Tensor::<2, Int>::zeros([samples, dimensions.seq], device).equal_scalar(1);
        let encoded = self.encoder.forward(TransformerEncoderInput::new(embedded).mask_pad(padding));
        let logits = self.head.forward(encoded);
        cross_entropy(logits.slice([0..samples, 0..1]).reshape([samples, dimensions.vocab]))
    }
}

/// Llama: RMS norms, rotary positions, grouped-query attention, a gated feed-forward layer, no biases.
#[derive(Module, Debug)]
pub struct Llama {
    tokens: Embedding,
    layers: Vec<LlamaLayer>,
    norm: RmsNorm,
    head: Linear,
    rotary: RotaryEncoding,
}

#[derive(Module, Debug)]
struct LlamaLayer {
    attention_norm: RmsNorm,
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    feed_forward_norm: RmsNorm,
    swiglu: SwiGlu,
    down: Linear,
}

impl Llama {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let head_width = dimensions.d_model / dimensions.heads;
        Self {
            tokens: EmbeddingConfig::new(dimensions.vocab, dimensions.d_model).init(device),
            layers: (0..dimensions.layers).map(|_| LlamaLayer::new(dimensions, device)).collect(),
            norm: RmsNormConfig::new(dimensions.d_model).init(device),
            head: unbiased(dimensions.d_model, dimensions.vocab, device),
            rotary: RotaryEncodingConfig::new(dimensions.seq, head_width).init(device),
        }
    }

    /// The loss over all tokens of some sequences.
    pub fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        let mut hidden = self.tokens.forward(dimensions.tokens(samples, device));
        let mask = dimensions.mask(samples, device).unsqueeze_dim::<4>(1);
        for layer in &self.layers {
            hidden = layer.forward(dimensions, hidden, &mask, &self.rotary);
        }
        let logits = self.head.forward(self.norm.forward(hidden));
        cross_entropy(logits.reshape([samples * dimensions.seq, dimensions.vocab]))
    }
}

pub(crate) fn unbiased(inputs: usize, outputs: usize, device: &Device) -> Linear {
    LinearConfig::new(inputs, outputs).with_bias(false).init(device)
}

impl LlamaLayer {
    fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let width = dimensions.d_model;
        let kv_width = width / dimensions.heads * dimensions.kv_heads;
        let norm = || RmsNormConfig::new(width).init(device);
        Self {
            attention_norm: norm(),
            query: unbiased(width, width, device),
            key: unbiased(width, kv_width, device),
            value: unbiased(width, kv_width, device),
            output: unbiased(width, width, device),
            feed_forward_norm: norm(),
            swiglu: SwiGluConfig::new(width, dimensions.d_ff).init(device),
            down: unbiased(dimensions.d_ff, width, device),
        }
    }

    fn forward(
        &self,
        dimensions: &Dimensions,
        input: Tensor<3>,
        mask: &Tensor<4, Bool>,
        rotary: &RotaryEncoding,
    ) -> Tensor<3> {
        let normed = self.attention_norm.forward(input.clone());
        let attended = input + self.attention(dimensions, normed, mask, rotary);
        let normed = self.feed_forward_norm.forward(attended.clone());
        attended + self.down.forward(self.swiglu.forward(normed))
    }

    fn attention(
        &self,
        dimensions: &Dimensions,
        normed: Tensor<3>,
        mask: &Tensor<4, Bool>,
        rotary: &RotaryEncoding,
    ) -> Tensor<3> {
        let [samples, seq, width] = normed.dims();
        let head_width = width / dimensions.heads;
        let split = |projected: Tensor<3>, heads| projected.reshape([samples, seq, heads, head_width]).swap_dims(1, 2);
        let query = rotary.forward(split(self.query.forward(normed.clone()), dimensions.heads));
        let key = rotary.forward(split(self.key.forward(normed.clone()), dimensions.kv_heads));
        let value = split(self.value.forward(normed), dimensions.kv_heads);
        let (key, value) = (repeated(key, dimensions), repeated(value, dimensions));
        let scores = query.matmul(key.transpose()) / (head_width as f64).sqrt();
        let weights = softmax(scores.mask_fill(mask.clone(), -1.0e4), 3);
        let context = weights.matmul(value).swap_dims(1, 2).reshape([samples, seq, width]);
        self.output.forward(context)
    }
}

/// Every head of keys or values as often as query heads share it.
fn repeated(heads: Tensor<4>, dimensions: &Dimensions) -> Tensor<4> {
    let [samples, kv_heads, seq, width] = heads.dims();
    let times = dimensions.heads / kv_heads;
    if times == 1 {
        return heads;
    }
    heads.unsqueeze_dim::<5>(2).repeat_dim(2, times).reshape([samples, dimensions.heads, seq, width])
}
