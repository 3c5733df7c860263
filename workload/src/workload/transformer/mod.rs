mod costs;

use crate::dims::{LARGEST, choices, schema};

schema! {
    /// The dimensions of a transformer over token sequences: by default GPT-2's layout (causal, layer norms, learned
    /// positions, biases, a tied head).
    pub struct Transformer {
        /// Layers.
        layers: u64, Count(1..=65_536), "layers";
        /// Width of the residual stream.
        d_model: u64, Count(1..=1 << 24), "width of the residual stream";
        /// Tokens in the vocabulary.
        vocab: u64, Count(1..=LARGEST), "tokens in the vocabulary";
        /// Tokens in a sequence; one sample is one sequence.
        seq: u64, Count(1..=1 << 28), "tokens in a sequence; one sample is one sequence";
        /// Attention heads; `d_model / 64`, at least 1, when absent.
        heads?: u64, Count(1..=65_536), "attention heads (default `d_model / 64`)";
        /// Heads of keys and values under grouped-query attention; equals `heads` when absent.
        kv_heads?: u64, Count(1..=65_536), "heads of keys and values (default: as many as heads)";
        /// Width of the feed-forward layer; `4 * d_model` when absent.
        d_ff?: u64, Count(1..=1 << 26), "width of the feed-forward layer (default `4 * d_model`)";
        /// True if the feed-forward layer has a gate (SwiGLU, GEGLU).
        gated: bool = false, Flag, "gate in the feed-forward layer, as in SwiGLU (default false)";
        /// True if a token sees only earlier ones.
        causal: bool = true, Flag, "tokens see only earlier ones (default true)";
        /// True if the layers have dropout, Burn's default.
        dropout: bool = true, Flag, "dropout in the layers, as in Burn (default true)";
        /// True if the matrices of the layers have biases.
        bias: bool = true, Flag, "biases of the layers' matrices (default true)";
        /// The norms.
        norm: Norm = Norm::Layer, Choice(&Norm::CHOICES), "kind of norm (default layer)";
        /// Encoding of the order of tokens.
        positions: Positions = Positions::Learned, Choice(&Positions::CHOICES),
            "encoding of the order of tokens (default learned)";
        /// True if a norm follows the last layer.
        final_norm: bool = true, Flag, "norm after the last layer (default true)";
        /// True if a norm follows the embedding.
        embedding_norm: bool = false, Flag, "norm after the embedding (default false)";
        /// Kinds of segments that have an embedding (BERT: 2).
        segments: u64 = 0, Count(0..=65_536), "kinds of segments with an embedding (default 0)";
        /// True if the output layer shares the token embedding's weights.
        tied_head: bool = true, Flag, "output layer shares the embedding's weights (default true)";
        /// Classes of a classifier: a dense layer on one token replaces the logits over the vocabulary.
        classes?: u64, Count(1..=LARGEST), "classes of a classifier (default: logits over the vocabulary)";
        /// True if a dense layer of the model's width precedes the head (BERT's pooler).
        pooler: bool = false, Flag, "dense layer of the model's width before the head (default false)";
    }
}

choices! {
    /// A kind of norm.
    #[derive(Default)]
    pub enum Norm: "norm", "workload::Norm" {
        /// Mean and variance, with a scale and a shift.
        #[default]
        Layer = "layer",
        /// Root of the mean square, with a scale.
        Rms = "rms",
    }
}

impl Norm {
    const fn vectors(self) -> u64 {
        match self {
            Self::Layer => 2,
            Self::Rms => 1,
        }
    }
}

choices! {
    /// Encoding of the order of tokens.
    #[derive(Default)]
    pub enum Positions: "kind of positions", "workload::Positions" {
        /// An embedding of each position.
        #[default]
        Learned = "learned",
        /// A fixed table that is added.
        Sinusoidal = "sinusoidal",
        /// A rotation of queries and keys.
        Rotary = "rotary",
        /// Nowhere.
        None = "none",
    }
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
