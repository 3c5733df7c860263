mod costs;

use serde::{Deserialize, Serialize};

use crate::dims::Presence::{Defaulted, Optional, Required};
use crate::dims::{Choices, Dim, Schema};

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
    /// Heads of keys and values under grouped-query attention; equals `heads` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kv_heads: Option<u64>,
    /// Width of the feed-forward layer; `4 * d_model` when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub d_ff: Option<u64>,
    /// True if the feed-forward layer has a gate (SwiGLU, GEGLU).
    pub gated: bool,
    /// True if a token sees only earlier ones.
    pub causal: bool,
    /// True if the layers have dropout, Burn's default.
    pub dropout: bool,
    /// True if the matrices of the layers have biases.
    pub bias: bool,
    /// The norms.
    pub norm: Norm,
    /// Encoding of the order of tokens.
    pub positions: Positions,
    /// True if a norm follows the last layer.
    pub final_norm: bool,
    /// True if a norm follows the embedding.
    pub embedding_norm: bool,
    /// Kinds of segments that have an embedding (BERT: 2).
    pub segments: u64,
    /// True if the output layer shares the token embedding's weights.
    pub tied_head: bool,
    /// Classes of a classifier: a dense layer on one token replaces the logits over the vocabulary.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub classes: Option<u64>,
    /// True if a dense layer of the model's width precedes the head (BERT's pooler).
    pub pooler: bool,
}

/// GPT-2's layout without the required sizes.
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

/// Encoding of the order of tokens.
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

impl Schema for Transformer {
    const DIMS: &'static [Dim] = &[
        Dim::count_in("layers", Required, 1..=65_536, "layers"),
        Dim::count_in("d_model", Required, 1..=1 << 24, "width of the residual stream"),
        Dim::count("vocab", Required, "tokens in the vocabulary"),
        Dim::count_in("seq", Required, 1..=1 << 28, "tokens in a sequence; one sample is one sequence"),
        Dim::count_in("heads", Optional, 1..=65_536, "attention heads (default `d_model / 64`)"),
        Dim::count_in("kv_heads", Optional, 1..=65_536, "heads of keys and values (default: as many as heads)"),
        Dim::count_in("d_ff", Optional, 1..=1 << 26, "width of the feed-forward layer (default `4 * d_model`)"),
        Dim::flag("gated", "gate in the feed-forward layer, as in SwiGLU (default false)"),
        Dim::flag("causal", "tokens see only earlier ones (default true)"),
        Dim::flag("dropout", "dropout in the layers, as in Burn (default true)"),
        Dim::flag("bias", "biases of the layers' matrices (default true)"),
        Dim::choice("norm", &Norm::CHOICES, "kind of norm (default layer)"),
        Dim::choice("positions", &Positions::CHOICES, "encoding of the order of tokens (default learned)"),
        Dim::flag("final_norm", "norm after the last layer (default true)"),
        Dim::flag("embedding_norm", "norm after the embedding (default false)"),
        Dim::count_in("segments", Defaulted, 0..=65_536, "kinds of segments with an embedding (default 0)"),
        Dim::flag("tied_head", "output layer shares the embedding's weights (default true)"),
        Dim::count("classes", Optional, "classes of a classifier (default: logits over the vocabulary)"),
        Dim::flag("pooler", "dense layer of the model's width before the head (default false)"),
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
