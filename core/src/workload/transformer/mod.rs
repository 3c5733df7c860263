mod costs;
mod layers;

pub(super) use costs::{KERNELS_PER_ATTENTION, KERNELS_PER_LAYER};

use super::Matrix;
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
        /// Width of a head; `d_model / heads` when absent.
        head_dim?: u64, Count(1..=65_536), "width of a head (default `d_model / heads`)";
        /// True if queries and keys have a norm over the width of a head (Qwen3, Gemma 3).
        qk_norm: bool = false, Flag, "norms of queries and keys, as in Qwen3 (default false)";
        /// Width of the feed-forward layer; `4 * d_model` when absent.
        d_ff?: u64, Count(1..=1 << 26), "width of the feed-forward layer (default `4 * d_model`)";
        /// True if the feed-forward layer has a gate (SwiGLU, GEGLU).
        gated: bool = false, Flag, "gate in the feed-forward layer, as in SwiGLU (default false)";
        /// Experts in each feed-forward layer, of width `d_ff` each, and a matrix that scores them.
        experts?: u64, Count(1..=65_536), "experts of a feed-forward layer (default: one layer for all tokens)";
        /// Experts that process each token.
        experts_per_token: u64 = 2, Count(1..=65_536), "experts that process a token (default 2)";
        /// True if a token sees only earlier ones.
        causal: bool = true, Flag, "tokens see only earlier ones (default true)";
        /// True if the layers have dropout, Burn's default.
        dropout: bool = true, Flag, "dropout in the layers, as in Burn (default true)";
        /// True if the matrices of the layers have biases.
        bias: bool = true, Flag, "biases of the layers' matrices (default true)";
        /// Matrices with biases, in place of `bias`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        biases: Vec<Matrix> = Vec::new(), ChoiceList(&Matrix::CHOICES),
            "matrices with biases, such as `[\"query\", \"key\", \"value\"]` in Qwen2 (default: by `bias`)";
        /// The norms.
        norm: Norm = Norm::Layer, Choice(&Norm::CHOICES), "kind of norm (default layer)";
        /// Norms of a layer: 1 if attention and feed-forward layer share one, 4 if norms also follow them (Gemma 2).
        norms_per_layer: u64 = 2, Count(0..=8), "norms of a layer, such as 4 in Gemma 2 (default 2)";
        /// Encoding of the order of tokens.
        positions: Positions = Positions::Learned, Choice(&Positions::CHOICES),
            "encoding of the order of tokens (default learned)";
        /// Rows of the table of learned positions; equals `seq` when absent.
        max_seq?: u64, Count(1..=1 << 28), "rows of the table of learned positions (default `seq`)";
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
        /// A learned bias of the scores for each head and distance, in 32 buckets (T5).
        Relative = "relative",
        /// Nowhere.
        None = "none",
    }
}

impl Transformer {
    /// GPT-2's layout in this size.
    pub fn new(layers: u64, d_model: u64, vocab: u64, seq: u64) -> Self {
        Self { layers, d_model, vocab, seq, ..Self::default() }
    }

    pub(super) fn heads(&self) -> u64 {
        self.heads.unwrap_or((self.d_model / 64).max(1))
    }

    pub(super) fn d_ff(&self) -> u64 {
        self.d_ff.unwrap_or(self.d_model.saturating_mul(4))
    }

    fn head_dim(&self) -> u64 {
        self.head_dim.unwrap_or(self.d_model / self.heads())
    }

    /// Width of the queries.
    fn query_width(&self) -> u64 {
        self.heads().saturating_mul(self.head_dim())
    }

    /// Width of the keys, and of the values.
    fn kv_width(&self) -> u64 {
        self.head_dim().saturating_mul(self.kv_heads.unwrap_or(self.heads()))
    }

    /// Returns true if the matrices of this kind have biases.
    fn has_bias(&self, matrix: Matrix) -> bool {
        if self.biases.is_empty() { self.bias } else { self.biases.contains(&matrix) }
    }

    /// Experts of a feed-forward layer, and those that process a token; 1 and 1 without experts.
    fn experts(&self) -> [u64; 2] {
        self.experts.map_or([1, 1], |experts| [experts, self.experts_per_token])
    }

    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let heads = self.heads();
        let mut found = Vec::new();
        if self.head_dim.is_none() && !self.d_model.is_multiple_of(heads) {
            let message = format!("heads = {heads} does not divide d_model = {}; give head_dim", self.d_model);
            found.push(("heads", message));
        }
        if let Some(shared) = self.kv_heads.filter(|shared| !heads.is_multiple_of(*shared)) {
            found.push(("kv_heads", format!("kv_heads = {shared} does not divide heads = {heads}")));
        }
        if let Some(experts) = self.experts.filter(|experts| *experts < self.experts_per_token) {
            let message = format!("experts_per_token = {} is more than experts = {experts}", self.experts_per_token);
            found.push(("experts_per_token", message));
        }
        if let Some(matrix) = self.biases.iter().find(|matrix| matches!(matrix, Matrix::Dense | Matrix::Embedding)) {
            found.push(("biases", format!("biases: {matrix} is no matrix of a layer, nor the head")));
        }
        let is_learned = self.positions == Positions::Learned;
        if let Some(rows) = self.max_seq.filter(|rows| is_learned && *rows < self.seq) {
            found.push(("max_seq", format!("max_seq = {rows} is less than seq = {}", self.seq)));
        }
        found
    }
}
