use super::convnet::Convolution;
use super::tensors::limited;
use super::transformer::{KERNELS_PER_ATTENTION, KERNELS_PER_LAYER};
use super::{Matrix, ModelCosts, Norm, Positions, Product, Role, Tensors, Transformer};
use crate::Bytes;
use crate::dims::{LARGEST, schema};

schema! {
    /// The dimensions of an encoder-decoder transformer: layers over a source, and layers that attend to it over a target.
    /// By default both embed tokens of one vocabulary.
    pub struct EncoderDecoder {
        layers: u64, Count(1..=65_536), "layers of the decoder";
        d_model: u64, Count(1..=1 << 24), "width of the residual stream";
        vocab: u64, Count(1..=LARGEST), "tokens in the vocabulary";
        seq: u64, Count(1..=1 << 28), "tokens in a target; one sample is a source and a target";
        encoder_layers?: u64, Count(1..=65_536), "layers of the encoder (default: as many as the decoder's)";
        source_seq?: u64, Count(1..=1 << 28), "tokens in a source (default `seq`)";
        /// Two convolutions over time make a token of two frames.
        spectrogram?: u64, Count(1..=65_536), "channels of a spectrogram, in place of source tokens (Whisper: 80)";
        heads?: u64, Count(1..=65_536), "attention heads (default `d_model / 64`)";
        head_dim?: u64, Count(1..=65_536), "width of a head (default `d_model / heads`)";
        d_ff?: u64, Count(1..=1 << 26), "width of the feed-forward layer (default `4 * d_model`)";
        gated: bool = false, Flag, "gate in the feed-forward layer (default false)";
        dropout: bool = true, Flag, "dropout in the layers, as in Burn (default true)";
        bias: bool = true, Flag, "biases of the layers' matrices (default true)";
        #[serde(skip_serializing_if = "Vec::is_empty")]
        biases: Vec<Matrix> = Vec::new(), ChoiceList(&Matrix::MATRICES), "matrices with biases (default: by `bias`)";
        norm: Norm = Norm::Layer, Choice(&Norm::CHOICES), "kind of norm (default layer)";
        positions: Positions = Positions::Learned, Choice(&Positions::CHOICES),
            "encoding of the order of tokens (default learned)";
        source_positions?: Positions, Choice(&Positions::CHOICES),
            "encoding of the order of source tokens (default `positions`)";
        max_seq?: u64, Count(1..=1 << 28), "rows of each table of learned positions (default: the tokens)";
        final_norm: bool = true, Flag, "norms after the last layers (default true)";
        embedding_norm: bool = false, Flag, "norms after the embeddings (default false)";
        tied_head: bool = true, Flag, "output layer shares the embedding's weights (default true)";
    }
}

/// Width of the convolutions over a spectrogram.
const KERNEL: u64 = 3;

/// Frames of a spectrogram for each source token: the second convolution has stride 2.
const FRAMES_PER_TOKEN: u64 = 2;

impl EncoderDecoder {
    fn decoder(&self) -> Transformer {
        Transformer {
            heads: self.heads,
            head_dim: self.head_dim,
            d_ff: self.d_ff,
            gated: self.gated,
            dropout: self.dropout,
            bias: self.bias,
            biases: self.biases.clone(),
            norm: self.norm,
            positions: self.positions,
            max_seq: self.max_seq,
            final_norm: self.final_norm,
            embedding_norm: self.embedding_norm,
            tied_head: self.tied_head,
            ..Transformer::new(self.layers, self.d_model, self.vocab, self.seq)
        }
    }

    fn encoder(&self) -> Transformer {
        Transformer {
            layers: self.encoder_layers.unwrap_or(self.layers),
            seq: self.source_seq(),
            positions: self.source_positions.unwrap_or(self.positions),
            causal: false,
            ..self.decoder()
        }
    }

    fn source_seq(&self) -> u64 {
        self.source_seq.unwrap_or(self.seq)
    }

    fn frames(&self) -> u64 {
        FRAMES_PER_TOKEN * self.source_seq()
    }

    /// Inputs and outputs of the convolutions, and the length of the output.
    fn convolutions(&self) -> impl Iterator<Item = (u64, u64)> {
        let (d, frames, tokens) = (self.d_model, self.frames(), self.source_seq());
        self.spectrogram.into_iter().flat_map(move |channels| [(channels, frames), (d, tokens)])
    }

    /// Every tensor, from the decoder's; they include the head and the token embedding.
    fn tensors(&self, encoder: &Transformer, decoder: &Transformer, mut all: Vec<Tensors>) -> Vec<Tensors> {
        all.extend(decoder.attention_tensors());
        all.push(decoder.norm_tensors(decoder.layers));
        all.extend(encoder.layer_tensors());
        all.extend(encoder.position_tensor());
        let once = u64::from(self.final_norm) + u64::from(self.embedding_norm);
        all.push(encoder.norm_tensors(encoder.norms_per_layer * encoder.layers + once));
        for (inputs, _) in self.convolutions() {
            let kernel =
                Tensors { planes: self.d_model, rows: inputs, columns: KERNEL, ..Tensors::kernels(1, 1, 1, 1) };
            all.extend([kernel, Tensors::vectors(1, self.d_model)]);
        }
        all
    }

    fn kept(&self, encoder: &Transformer, decoder: &Transformer, checkpointed: bool) -> u64 {
        let [hidden, results] = decoder.kept_once(checkpointed);
        let result = u128::from(self.seq) * u128::from(self.vocab);
        // GELU keeps its input, and the next convolution or the sum with the positions its output.
        let of_convolutions: u64 = self.convolutions().map(|(_, length)| length * self.d_model).sum();
        let stem = self.spectrogram.map_or(0, |channels| {
            let rest = if checkpointed { 0 } else { self.frames() * self.d_model };
            channels * self.frames() + of_convolutions + rest
        });
        let once = self.d_model * hidden;
        let all = encoder.layers_kept(checkpointed)
            + decoder.layers_kept(checkpointed)
            + decoder.cross_kept(encoder.seq, checkpointed)
            + u128::from(self.seq + self.source_seq()) * u128::from(once)
            + result * u128::from(results)
            + u128::from(stem);
        limited(all)
    }

    fn multiplications(&self, encoder: &Transformer, decoder: &Transformer) -> f64 {
        let d = self.d_model as f64;
        let (source, target) = (self.source_seq() as f64, self.seq as f64);
        let matrices = decoder.attention_tensors();
        let values = |roles: &[Role]| {
            let of_roles = matrices.iter().filter(|group| roles.contains(&group.role));
            of_roles.map(|group| group.values() as f64).sum::<f64>()
        };
        let cross = target * values(&[Role::Query, Role::Output])
            + source * values(&[Role::Key, Role::Value])
            + decoder.attention_products(encoder.seq);
        let of_convolutions: f64 =
            self.convolutions().map(|(inputs, length)| (inputs * KERNEL * length) as f64 * d).sum();
        let head = target * d * self.vocab as f64;
        encoder.layer_multiplications() + decoder.layer_multiplications() + cross + head + of_convolutions
    }

    pub(super) fn costs(&self) -> ModelCosts {
        let (encoder, decoder) = (self.encoder(), self.decoder());
        let mut costs = decoder.costs();
        let mut kept_for = encoder.kept_for();
        kept_for.extend(decoder.kept_for());
        kept_for.extend(decoder.cross_kept_for());
        if self.final_norm {
            // The norm after the encoder, which the decoder's keys and values read.
            kept_for.push((&[Role::Vector], self.source_seq().saturating_mul(self.d_model)));
        }
        let source =
            self.spectrogram.map_or(Bytes(8 * self.source_seq()), |channels| Bytes(4 * channels * self.frames()));
        let stem = self.spectrogram.map_or(0, |_| self.frames() * self.d_model);
        let longest = costs.largest.unwrap_or(0).max(decoder.largest_in_layers(encoder.seq));
        costs.tensors = self.tensors(&encoder, &decoder, costs.tensors);
        costs.buffers += encoder.position_table();
        costs.kept = self.kept(&encoder, &decoder, false);
        costs.kept_checkpointed = Some(self.kept(&encoder, &decoder, true));
        costs.kept_for = kept_for;
        costs.largest = Some(longest.max(encoder.largest_in_layers(encoder.seq)).max(stem));
        // Source, and target twice: read and predicted.
        costs.input = Some(source + Bytes(self.seq).times(16));
        costs.multiplications = self.multiplications(&encoder, &decoder);
        costs.tokens = Some(self.seq + self.source_seq());
        let of_convolutions = self.convolutions().count() as u64 * Convolution::KERNELS;
        costs.kernels += encoder.layers * KERNELS_PER_LAYER + decoder.layers * KERNELS_PER_ATTENTION + of_convolutions;
        let rows = self.seq.max(self.source_seq());
        costs.dominant_product = Some(Product { rows_per_sample: rows, inner: self.d_model, columns: decoder.d_ff() });
        costs
    }

    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = self.decoder().contradictions();
        if let Some(rows) = self.max_seq.filter(|rows| self.positions_are_too_few(*rows)) {
            found.push(("max_seq", format!("max_seq = {rows} is less than source_seq = {}", self.source_seq())));
        }
        found
    }

    fn positions_are_too_few(&self, rows: u64) -> bool {
        let is_reported = self.positions == Positions::Learned && rows < self.seq;
        self.encoder().positions == Positions::Learned && rows < self.source_seq() && !is_reported
    }
}
