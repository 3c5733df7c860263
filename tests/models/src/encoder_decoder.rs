//! Burn's encoder and decoder with norms before: from tokens as in T5, or from a spectrogram as in Whisper.

use burn::{
    module::Module,
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, PaddingConfig1d,
        attention::generate_autoregressive_mask,
        conv::{Conv1d, Conv1dConfig},
        transformer::{
            TransformerDecoder, TransformerDecoderConfig, TransformerDecoderInput, TransformerEncoder,
            TransformerEncoderConfig, TransformerEncoderInput,
        },
    },
    tensor::{Device, Int, Tensor, activation::gelu, module::linear},
};
use gpu_tuned_core::workload::{self, Positions};

use crate::{cross_entropy, transformer::positions};

/// The dimensions of an encoder-decoder.
#[derive(Clone, Copy, Debug)]
pub struct Dimensions {
    /// Layers of the encoder, and of the decoder.
    pub layers: [usize; 2],
    /// Width of the residual stream.
    pub d_model: usize,
    /// Width of the feed-forward layer.
    pub d_ff: usize,
    /// Attention heads.
    pub heads: usize,
    /// Tokens in the vocabulary.
    pub vocab: usize,
    /// Tokens of a source, and of a target.
    pub seq: [usize; 2],
    /// Channels of a spectrogram, with two frames for each source token, in place of source tokens.
    pub spectrogram: Option<usize>,
    /// Share of activations that training drops.
    pub dropout: f64,
}

impl Dimensions {
    /// The model as core describes it.
    pub fn spec(&self) -> workload::EncoderDecoder {
        let [encoder_layers, layers] = self.layers.map(|layers| layers as u64);
        let [source_seq, seq] = self.seq.map(|seq| seq as u64);
        workload::EncoderDecoder {
            layers,
            encoder_layers: Some(encoder_layers),
            d_model: self.d_model as u64,
            d_ff: Some(self.d_ff as u64),
            heads: Some(self.heads as u64),
            vocab: self.vocab as u64,
            seq,
            source_seq: Some(source_seq),
            spectrogram: self.spectrogram.map(|channels| channels as u64),
            source_positions: self.spectrogram.map(|_| Positions::Sinusoidal),
            dropout: self.dropout > 0.0,
            ..workload::EncoderDecoder::default()
        }
    }
}

/// Convolutions over a spectrogram, and a fixed table of positions.
#[derive(Module, Debug)]
struct Stem {
    first: Conv1d,
    second: Conv1d,
}

/// From one sequence to another, with a head that shares the embedding.
#[derive(Module, Debug)]
pub struct EncoderDecoder {
    tokens: Embedding,
    stem: Option<Stem>,
    source_positions: Option<Embedding>,
    target_positions: Embedding,
    encoder: TransformerEncoder,
    decoder: TransformerDecoder,
    norms: [LayerNorm; 2],
}

impl EncoderDecoder {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let Dimensions { d_model, d_ff, heads, layers, seq, .. } = *dimensions;
        let embedding = |rows| EmbeddingConfig::new(rows, d_model).init(device);
        let conv = |inputs, stride| {
            let conv = Conv1dConfig::new(inputs, d_model, 3).with_stride(stride);
            conv.with_padding(PaddingConfig1d::Explicit(1, 1)).init(device)
        };
        let encoder = TransformerEncoderConfig::new(d_model, d_ff, heads, layers[0]).with_norm_first(true);
        let decoder = TransformerDecoderConfig::new(d_model, d_ff, heads, layers[1]).with_norm_first(true);
        Self {
            tokens: embedding(dimensions.vocab),
            stem: dimensions.spectrogram.map(|channels| Stem { first: conv(channels, 1), second: conv(d_model, 2) }),
            source_positions: dimensions.spectrogram.is_none().then(|| embedding(seq[0])),
            target_positions: embedding(seq[1]),
            encoder: encoder.with_dropout(dimensions.dropout).init(device),
            decoder: decoder.with_dropout(dimensions.dropout).init(device),
            norms: [(); 2].map(|()| LayerNormConfig::new(d_model).init(device)),
        }
    }

    /// The loss over all target tokens of some pairs.
    pub fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        let [source, target] = dimensions.seq;
        let embedded = |seq| self.tokens.forward(Tensor::<2, Int>::zeros([samples, seq], device));
        let input = match (&self.stem, &self.source_positions) {
            (Some(stem), _) => {
                let channels = dimensions.spectrogram.unwrap_or_default();
                let frames = Tensor::<3>::zeros([samples, channels, 2 * source], device);
                let hidden = gelu(stem.second.forward(gelu(stem.first.forward(frames))));
                hidden.swap_dims(1, 2) + Tensor::zeros([1, source, dimensions.d_model], device)
            }
            (None, Some(places)) => embedded(source) + places.forward(positions(source, device)),
            (None, None) => embedded(source),
        };
        let memory = self.norms[0].forward(self.encoder.forward(TransformerEncoderInput::new(input)));
        let hidden = embedded(target) + self.target_positions.forward(positions(target, device));
        let mask = generate_autoregressive_mask(samples, target, device);
        let hidden = self.decoder.forward(TransformerDecoderInput::new(hidden, memory).target_mask_attn(mask));
        let hidden = self.norms[1].forward(hidden);
        let logits = linear(hidden, self.tokens.weight.val().transpose(), None);
        cross_entropy(logits.reshape([samples * target, dimensions.vocab]))
    }
}
