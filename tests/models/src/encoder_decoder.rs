//! Burn's encoder and decoder with norms before: from tokens as in T5, or from a spectrogram as in Whisper.

use burn::{
    module::Module,
    nn::{
        Embedding, LayerNorm, LayerNormConfig, PaddingConfig1d,
        attention::generate_autoregressive_mask,
        conv::{Conv1d, Conv1dConfig},
        transformer::{
            TransformerDecoder, TransformerDecoderConfig, TransformerDecoderInput, TransformerEncoder,
            TransformerEncoderConfig, TransformerEncoderInput,
        },
    },
    tensor::{Device, Int, Tensor, activation::gelu, module::linear},
};
use gpu_tuned_core::workload;

use crate::{
    Network, cross_entropy, sizes,
    transformer::{dropout, embedding, positions},
};

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

impl Network for EncoderDecoder {
    type Dimensions = workload::EncoderDecoder;

    fn new(dimensions: &workload::EncoderDecoder, device: &Device) -> Self {
        let workload::EncoderDecoder { layers, d_model, vocab, seq, spectrogram, .. } = *dimensions;
        let embedding = |rows| embedding(rows, d_model, device);
        let encoder_layers = dimensions.encoder_layers.unwrap_or(layers);
        let (heads, d_ff) = (dimensions.heads.unwrap_or(d_model / 64), dimensions.d_ff.unwrap_or(4 * d_model));
        let [layers, d_model, encoder_layers, heads, d_ff] = sizes([layers, d_model, encoder_layers, heads, d_ff]);
        let conv = |inputs, stride| {
            let conv = Conv1dConfig::new(inputs, d_model, 3).with_stride(stride);
            conv.with_padding(PaddingConfig1d::Explicit(1, 1)).init(device)
        };
        let encoder = TransformerEncoderConfig::new(d_model, d_ff, heads, encoder_layers).with_norm_first(true);
        let decoder = TransformerDecoderConfig::new(d_model, d_ff, heads, layers).with_norm_first(true);
        Self {
            tokens: embedding(vocab),
            stem: spectrogram.map(|channels| Stem { first: conv(channels as usize, 1), second: conv(d_model, 2) }),
            source_positions: spectrogram.is_none().then(|| embedding(dimensions.source_seq.unwrap_or(seq))),
            target_positions: embedding(seq),
            encoder: encoder.with_dropout(dropout(dimensions.dropout)).init(device),
            decoder: decoder.with_dropout(dropout(dimensions.dropout)).init(device),
            norms: [(); 2].map(|()| LayerNormConfig::new(d_model).init(device)),
        }
    }

    /// The loss over all target tokens of some pairs.
    fn loss(&self, dimensions: &workload::EncoderDecoder, samples: usize, device: &Device) -> Tensor<1> {
        let workload::EncoderDecoder { d_model, vocab, seq, source_seq, spectrogram, .. } = *dimensions;
        let [d_model, vocab, target, source, channels] =
            sizes([d_model, vocab, seq, source_seq.unwrap_or(seq), spectrogram.unwrap_or_default()]);
        let embedded = |seq| self.tokens.forward(Tensor::<2, Int>::zeros([samples, seq], device));
        let input = match (&self.stem, &self.source_positions) {
            (Some(stem), _) => {
                let frames = Tensor::<3>::zeros([samples, channels, 2 * source], device);
                let hidden = gelu(stem.second.forward(gelu(stem.first.forward(frames))));
                hidden.swap_dims(1, 2) + Tensor::zeros([1, source, d_model], device)
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
        cross_entropy(logits.reshape([samples * target, vocab]))
    }
}
