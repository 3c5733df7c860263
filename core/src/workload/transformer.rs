use serde::{Deserialize, Serialize};

use super::{Family, ModelCosts, Product, Role, Tensors};
use crate::dims::Presence::{Defaulted, Optional, Required};
use crate::dims::{Choices, Described, Dim};
use crate::{Bytes, Provenance};

/// The dimensions of a transformer over token sequences: by default GPT-2's layout (causal, layer norms, learned
/// positions, biases, a tied head).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a dimension that users name")]
pub struct Transformer {
    /// Layers.
    pub layers: u64,
    /// Width of the residual stream.
    pub d_model: u64,
    /// Tokens in the vocabulary.
    pub vocab: u64,
    /// Tokens in a sequence; one sample is one sequence.
    pub seq: u64,
    /// Attention heads; `d_model / 64`, at least 1, when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heads: Option<u64>,
    /// Heads of keys and values, under grouped-query attention; as many as `heads` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<u64>,
    /// Width of the feed-forward layer; `4 * d_model` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d_ff: Option<u64>,
    /// Whether the feed-forward layer has a gate (SwiGLU, GEGLU).
    pub gated: bool,
    /// Whether a token sees only those before it.
    pub causal: bool,
    /// Whether the layers have dropout, as Burn's have unless told otherwise.
    pub dropout: bool,
    /// Whether the matrices of the layers have biases.
    pub bias: bool,
    /// The norms.
    pub norm: Norm,
    /// Where the order of tokens comes from.
    pub positions: Positions,
    /// Whether there is a norm behind the last layer.
    pub final_norm: bool,
    /// Whether there is a norm behind the embedding.
    pub embedding_norm: bool,
    /// Kinds of segments that have an embedding (BERT: 2).
    pub segments: u64,
    /// Whether the output layer shares the token embedding's weights.
    pub tied_head: bool,
    /// Classes of a classifier, which has a dense layer on one token in place of logits over the vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<u64>,
    /// Whether a dense layer of the model's width stands before the head (BERT's pooler).
    pub pooler: bool,
}

/// GPT-2's layout without any size: what is required is missing.
impl Default for Transformer {
    fn default() -> Self {
        Self {
            layers: 0,
            d_model: 0,
            vocab: 0,
            seq: 0,
            heads: None,
            kv_heads: None,
            d_ff: None,
            gated: false,
            causal: true,
            dropout: true,
            bias: true,
            norm: Norm::Layer,
            positions: Positions::Learned,
            final_norm: true,
            embedding_norm: false,
            segments: 0,
            tied_head: true,
            classes: None,
            pooler: false,
        }
    }
}

/// A kind of norm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// Mean and variance, with a scale and a shift.
    #[default]
    Layer,
    /// Root of the mean square, with a scale.
    Rms,
}

impl Norm {
    const CHOICES: Choices =
        Choices { what: "norm", path: "workload::Norm", names: &[("layer", "Layer"), ("rms", "Rms")] };

    const fn vectors(self) -> u64 {
        match self {
            Self::Layer => 2,
            Self::Rms => 1,
        }
    }
}

/// Where the order of tokens comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Positions {
    /// An embedding of each position.
    #[default]
    Learned,
    /// A fixed table that is added.
    Sinusoidal,
    /// A rotation of queries and keys.
    Rotary,
    /// Nowhere.
    None,
}

impl Positions {
    const CHOICES: Choices = Choices {
        what: "kind of positions",
        path: "workload::Positions",
        names: &[("learned", "Learned"), ("sinusoidal", "Sinusoidal"), ("rotary", "Rotary"), ("none", "None")],
    };
}

/// Values kept for the backward pass, counted in Burn 0.22.1 operation by operation: `tests/models/KEPT.md`. On an H200 they
/// came out the same, 98.57 MiB a sample and 70.57 with checkpointing for one encoder.
struct Kept {
    /// `[seq, d_model]` tensors of a layer.
    hidden: u64,
    /// `[seq, width of keys]` tensors of a layer.
    keys: u64,
    /// `[heads, seq, seq]` tensors of a layer.
    scores: u64,
    /// `[seq, d_ff]` tensors of a layer.
    feed_forward: u64,
    /// `[seq, d_model]` tensors outside the layers.
    hidden_once: u64,
    /// Tensors of the result's size.
    results: u64,
}

/// Kernels of a layer, forward and backward, in Burn 0.22.1: a step of 6 layers took about 6 ms however small the batch.
const KERNELS_PER_LAYER: u64 = 100;

impl Described for Transformer {
    const DIMS: &'static [Dim] = &[
        Dim::count_in("layers", Required, 1..=65_536, "layers"),
        Dim::count_in("d_model", Required, 1..=1 << 24, "width of the residual stream"),
        Dim::count("vocab", Required, "tokens in the vocabulary"),
        Dim::count_in("seq", Required, 1..=1 << 28, "tokens in a sequence; one sample is one sequence"),
        Dim::count_in("heads", Optional, 1..=65_536, "attention heads (default `d_model / 64`)"),
        Dim::count_in("kv_heads", Optional, 1..=65_536, "heads of keys and values (default: as many as heads)"),
        Dim::count_in("d_ff", Optional, 1..=1 << 26, "width of the feed-forward layer (default `4 * d_model`)"),
        Dim::flag("gated", "whether the feed-forward layer has a gate, as in SwiGLU (default false)"),
        Dim::flag("causal", "whether a token sees only those before it (default true)"),
        Dim::flag("dropout", "whether the layers have dropout, as Burn's have by default (default true)"),
        Dim::flag("bias", "whether the layers' matrices have biases (default true)"),
        Dim::choice("norm", &Norm::CHOICES, "the norms (default layer)"),
        Dim::choice("positions", &Positions::CHOICES, "where the order of tokens comes from (default learned)"),
        Dim::flag("final_norm", "whether there is a norm behind the last layer (default true)"),
        Dim::flag("embedding_norm", "whether there is a norm behind the embedding (default false)"),
        Dim::count_in("segments", Defaulted, 0..=65_536, "kinds of segments with an embedding (default 0)"),
        Dim::flag("tied_head", "whether the output layer shares the embedding's weights (default true)"),
        Dim::count("classes", Optional, "classes of a classifier (default: logits over the vocabulary)"),
        Dim::flag("pooler", "whether a dense layer of the model's width stands before the head (default false)"),
    ];
}

impl Transformer {
    /// GPT-2's layout in this size.
    pub fn new(layers: u64, d_model: u64, vocab: u64, seq: u64) -> Self {
        Self { layers, d_model, vocab, seq, ..Self::default() }
    }

    fn heads(&self) -> u64 {
        self.heads.unwrap_or((self.d_model / 64).max(1))
    }

    fn d_ff(&self) -> u64 {
        self.d_ff.unwrap_or(self.d_model.saturating_mul(4))
    }

    /// Width of the keys, and of the values.
    fn kv_width(&self) -> u64 {
        self.d_model / self.heads() * self.kv_heads.unwrap_or(self.heads())
    }

    fn tensors(&self) -> Vec<Tensors> {
        let d = self.d_model;
        let one = |rows, columns, role| Tensors::matrices(1, rows, columns, role);
        let mut all = vec![one(self.vocab, d, Role::Embedding)];
        if self.positions == Positions::Learned {
            all.push(one(self.seq, d, Role::Embedding));
        }
        if self.segments > 0 {
            all.push(one(self.segments, d, Role::Embedding));
        }
        all.extend(self.layer_tensors());
        let norms = 2 * self.layers + u64::from(self.final_norm) + u64::from(self.embedding_norm);
        all.push(Tensors::vectors(norms * self.norm.vectors(), d));
        if self.pooler {
            all.extend([one(d, d, Role::Dense), Tensors::vectors(1, d)]);
        }
        match self.classes {
            Some(classes) => all.extend([one(d, classes, Role::Head), Tensors::vectors(1, classes)]),
            None if self.tied_head => {}
            None => {
                all.push(one(d, self.vocab, Role::Head));
                all.extend(self.bias.then(|| Tensors::vectors(1, self.vocab)));
            }
        }
        all
    }

    fn layer_tensors(&self) -> Vec<Tensors> {
        let (d, kv, ff) = (self.d_model, self.kv_width(), self.d_ff());
        let each = |rows, columns, role| Tensors::matrices(self.layers, rows, columns, role);
        let mut all = vec![
            each(d, d, Role::Query),
            each(d, kv, Role::Key),
            each(d, kv, Role::Value),
            each(d, d, Role::Output),
            each(d, ff, Role::Up),
            each(ff, d, Role::Down),
        ];
        if self.gated {
            all.push(each(d, ff, Role::Gate));
        }
        if self.bias {
            let wide = if self.gated { 2 } else { 1 };
            let vectors = |count, length| Tensors::vectors(count * self.layers, length);
            all.extend([vectors(3, d), vectors(2, kv), vectors(wide, ff)]);
        }
        all
    }

    /// Multiplications forward for one sequence: one for each weight and token (Kaplan et al., 2020, section 2.1), and the
    /// two attention products, which Burn computes whole, masked or not.
    fn multiplications(&self) -> f64 {
        let (d, seq) = (self.d_model as f64, self.seq as f64);
        let of_layers: f64 = self
            .layer_tensors()
            .iter()
            .filter(|group| group.role != Role::Vector)
            .map(|group| group.values() as f64)
            .sum();
        let head = self.classes.map_or(self.vocab as f64 * d, |classes| classes as f64 * d / seq);
        seq * (of_layers + head + self.layers as f64 * 2.0 * seq * d)
    }

    /// Values of a fixed table of positions; a rotation has a sine and a cosine for each width of a head.
    fn position_table(&self) -> u64 {
        match self.positions {
            Positions::Sinusoidal => self.seq * self.d_model,
            Positions::Rotary => self.seq * 2 * (self.d_model / self.heads()),
            Positions::Learned | Positions::None => 0,
        }
    }

    /// Values of the logits of a sequence.
    fn result(&self) -> u64 {
        self.classes.unwrap_or_else(|| self.seq.saturating_mul(self.vocab))
    }

    /// Without checkpointing: each norm keeps three tensors, and queries, repeated keys and values, and what enters the
    /// attention's last matrix one each. Of the scores shifted ones, exponentials and weights are kept.
    fn kept_plain(&self) -> Kept {
        let dropout = u64::from(self.dropout);
        Kept {
            hidden: 10 + 2 * dropout,
            keys: 0,
            scores: 3 + dropout,
            feed_forward: if self.gated { 5 } else { 2 } + dropout,
            hidden_once: if self.final_norm { 3 } else { 1 },
            results: 1,
        }
    }

    /// With it, outputs of matrix products stay, and whatever meets a tensor without gradients: constants of a rotation,
    /// the random masks of dropout.
    fn kept_checkpointed(&self) -> Kept {
        let dropout = u64::from(self.dropout);
        let rotation = if self.positions == Positions::Rotary { 3 } else { 0 };
        Kept {
            hidden: 4 + rotation + 4 * dropout,
            keys: 2 + rotation,
            scores: 2 + 2 * dropout,
            feed_forward: if self.gated { 2 } else { 1 } + 2 * dropout,
            hidden_once: 1,
            results: 2,
        }
    }

    fn kept(&self, kept: &Kept) -> u64 {
        let (d, seq, heads) = (self.d_model, self.seq, self.heads());
        // Burn's encoder makes its mask anew in each layer: a byte for each pair of tokens.
        let mask = if self.causal { seq / 4 } else { 0 };
        let token = d * kept.hidden
            + self.kv_width() * kept.keys
            + heads * (seq * kept.scores + 1)
            + self.d_ff() * kept.feed_forward
            + mask
            + 2;
        let all = u128::from(seq) * (u128::from(self.layers) * u128::from(token) + u128::from(d * kept.hidden_once))
            + u128::from(self.result()) * u128::from(kept.results);
        u64::try_from(all).unwrap_or(u64::MAX / 8)
    }

    /// What is kept for the gradients of weights: the inputs of matrices, and what the norms' scales are multiplied with.
    fn kept_for(&self) -> Vec<(&'static [Role], u64)> {
        let each = |width: u64| self.layers.saturating_mul(self.seq.saturating_mul(width));
        vec![
            (&[Role::Query, Role::Key, Role::Value], each(self.d_model)),
            (&[Role::Output], each(self.d_model)),
            (&[Role::Gate, Role::Up], each(self.d_model)),
            (&[Role::Down], each(self.d_ff())),
            (&[Role::Vector], each(2 * self.d_model)),
        ]
    }

    pub(super) fn costs(&self) -> ModelCosts {
        let widest = (self.heads() * self.seq).max(self.d_ff()).max(self.d_model);
        ModelCosts {
            tensors: self.tensors(),
            buffers: self.position_table(),
            kept: self.kept(&self.kept_plain()),
            kept_checkpointed: Some(self.kept(&self.kept_checkpointed())),
            kept_for: self.kept_for(),
            // A tied head keeps the embedding turned round.
            copies: if self.tied_head && self.classes.is_none() { self.d_model.saturating_mul(self.vocab) } else { 0 },
            largest: Some(self.seq.saturating_mul(widest).max(self.result())),
            result: self.result(),
            // Token ids and targets, as 64-bit integers.
            input: Some(Bytes(self.seq).times(16)),
            multiplications: self.multiplications(),
            tokens: Some(self.seq),
            kernels: self.layers * KERNELS_PER_LAYER + KERNELS_PER_LAYER,
            family: Family::Transformer,
            batch_statistics: false,
            dominant_product: Some(Product { rows_per_sample: self.seq, inner: self.d_model, columns: self.d_ff() }),
            provenance: Provenance::Derived,
        }
    }

    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let heads = self.heads();
        let mut found = Vec::new();
        if !self.d_model.is_multiple_of(heads) {
            found.push(("heads", format!("heads = {heads} does not divide d_model = {}", self.d_model)));
        }
        if let Some(shared) = self.kv_heads.filter(|shared| !heads.is_multiple_of(*shared)) {
            found.push(("kv_heads", format!("kv_heads = {shared} does not divide heads = {heads}")));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{Norm, Positions, Transformer};

    fn llama(layers: u64, d_model: u64, vocab: u64, d_ff: u64, heads: [u64; 2]) -> Transformer {
        Transformer {
            heads: Some(heads[0]),
            kv_heads: Some(heads[1]),
            d_ff: Some(d_ff),
            gated: true,
            bias: false,
            norm: Norm::Rms,
            positions: Positions::Rotary,
            tied_head: false,
            ..Transformer::new(layers, d_model, vocab, 2048)
        }
    }

    fn bert(layers: u64, d_model: u64) -> Transformer {
        Transformer {
            causal: false,
            final_norm: false,
            embedding_norm: true,
            segments: 2,
            pooler: true,
            ..Transformer::new(layers, d_model, 30522, 512)
        }
    }

    #[test]
    fn well_known_models_have_their_published_parameters() {
        let gpt2 = |layers, d_model, heads| Transformer {
            heads: Some(heads),
            ..Transformer::new(layers, d_model, 50257, 1024)
        };
        let distilbert = Transformer { segments: 0, pooler: false, ..bert(6, 768) };
        // `num_parameters()` of the model class in Hugging Face transformers, without what the class adds to the task.
        for (name, model, published) in [
            ("gpt2", gpt2(12, 768, 12), 124_439_808),
            ("gpt2-medium", gpt2(24, 1024, 16), 354_823_168),
            ("gpt2-large", gpt2(36, 1280, 20), 774_030_080),
            ("gpt2-xl", gpt2(48, 1600, 25), 1_557_611_200),
            ("bert-base-uncased", bert(12, 768), 109_482_240),
            ("bert-large-uncased", bert(24, 1024), 335_141_888),
            ("distilbert-base-uncased", distilbert, 66_362_880),
            ("Llama-2-7b", llama(32, 4096, 32000, 11008, [32, 32]), 6_738_415_616),
            ("Llama-2-13b", llama(40, 5120, 32000, 13824, [40, 40]), 13_015_864_320),
            ("Meta-Llama-3-8B", llama(32, 4096, 128_256, 14336, [32, 8]), 8_030_261_248),
            ("Mistral-7B-v0.1", llama(32, 4096, 32000, 14336, [32, 8]), 7_241_732_096),
            ("TinyLlama-1.1B", llama(22, 2048, 32000, 5632, [32, 4]), 1_100_048_384),
        ] {
            assert_eq!(model.parameters(), published, "{name}");
        }
    }

    #[test]
    fn kept_bytes_are_near_those_burn_held_on_an_h200() {
        let model = Transformer {
            heads: Some(8),
            tied_head: false,
            causal: false,
            dropout: false,
            final_norm: false,
            ..Transformer::new(6, 512, 8192, 256)
        };
        let sample = model.workload().sample;
        let checkpointed = sample.checkpointed_activations.expect("transformers can be checkpointed");
        // Burn 0.22.1, bytes in use after the forward pass: the slope over batches 8 to 256.
        for (ours, measured_mib) in [(sample.activations, 98.57), (checkpointed, 70.6)] {
            assert!((ours.mib() / measured_mib - 1.0).abs() < 0.001, "{ours} against {measured_mib} MiB");
        }
    }
}
