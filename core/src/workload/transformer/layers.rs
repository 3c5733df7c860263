//! Tensors, arithmetic and kept values of a transformer's layers.

use super::{Norm, Positions, Transformer};
use crate::workload::{Matrix, Role, Tensors};

/// Values kept for the backward pass, counted in Burn 0.22.1 operation by operation: `tests/models/KEPT.md`. An H200
/// confirmed the counts for one encoder: 98.57 MiB a sample, 70.57 MiB with checkpointing.
struct Kept {
    /// `[seq, d_model]` tensors of a layer.
    hidden: u64,
    /// `[seq, width of queries]` tensors of a layer.
    attended: u64,
    /// `[seq, width of keys]` tensors of a layer.
    keys: u64,
    /// `[heads, seq, seq]` tensors of a layer.
    scores: u64,
    /// `[seq, d_ff]` tensors of a layer, for each expert of a token.
    feed_forward: u64,
}

/// Buckets of distances with a bias each: `relative_attention_num_buckets` of every T5.
const BUCKETS: u64 = 32;

impl Transformer {
    /// Tensors of the layers, but for the norms' vectors of the residual stream.
    pub(in crate::workload) fn layer_tensors(&self) -> Vec<Tensors> {
        let (d, ff, [experts, _]) = (self.d_model, self.d_ff(), self.experts());
        let mut all = self.attention_tensors();
        let mut feed_forward = |matrix: Matrix, rows, columns| {
            all.push(Tensors::matrices(self.layers * experts, rows, columns, matrix.role()));
            all.extend(self.has_bias(matrix).then(|| Tensors::vectors(self.layers * experts, columns)));
        };
        feed_forward(Matrix::Up, d, ff);
        feed_forward(Matrix::Down, ff, d);
        if self.gated {
            feed_forward(Matrix::Gate, d, ff);
        }
        all.extend(self.experts.map(|experts| Tensors::matrices(self.layers, d, experts, Role::Dense)));
        if self.qk_norm {
            all.push(Tensors::vectors(2 * self.layers * self.norm.vectors(), self.head_dim()));
        }
        if self.positions == Positions::Relative {
            all.push(Tensors::matrices(1, BUCKETS, self.heads(), Role::Embedding));
        }
        all
    }

    /// Tensors of one attention in each layer.
    pub(in crate::workload) fn attention_tensors(&self) -> Vec<Tensors> {
        let (d, width, kv) = (self.d_model, self.query_width(), self.kv_width());
        let mut all = Vec::new();
        for (matrix, rows, columns) in
            [(Matrix::Query, d, width), (Matrix::Key, d, kv), (Matrix::Value, d, kv), (Matrix::Output, width, d)]
        {
            all.push(Tensors::matrices(self.layers, rows, columns, matrix.role()));
            all.extend(self.has_bias(matrix).then(|| Tensors::vectors(self.layers, columns)));
        }
        all
    }

    /// Vectors of `count` norms of the residual stream.
    pub(in crate::workload) fn norm_tensors(&self, count: u64) -> Tensors {
        Tensors::vectors(count * self.norm.vectors(), self.d_model)
    }

    /// Multiplications of the layers for one sequence: one for each weight and token (Kaplan et al., 2020, section 2.1),
    /// plus the two attention products. Burn computes these products in full, masked or not.
    pub(in crate::workload) fn layer_multiplications(&self) -> f64 {
        let is_matrix = |group: &&Tensors| !matches!(group.role, Role::Vector | Role::Embedding);
        let tensors = self.layer_tensors();
        let values: f64 = tensors.iter().filter(is_matrix).map(|group| group.values() as f64).sum();
        let seq = self.seq as f64;
        seq * (values - self.idle_values() as f64) + self.attention_products(self.seq)
    }

    /// Multiplications of queries and keys, and of weights and values, for as many keys.
    pub(in crate::workload) fn attention_products(&self, keys: u64) -> f64 {
        self.layers as f64 * 2.0 * self.seq as f64 * keys as f64 * self.query_width() as f64
    }

    /// Values of the experts that do not process a token.
    pub(in crate::workload) fn idle_values(&self) -> u64 {
        let [experts, active] = self.experts();
        let matrices = if self.gated { 3 } else { 2 };
        let expert = self.d_model.saturating_mul(self.d_ff()).saturating_mul(matrices);
        self.layers.saturating_mul(experts.saturating_sub(active)).saturating_mul(expert)
    }

    /// Tensors kept without checkpointing. A norm keeps two, and its output if a matrix reads it. Queries, repeated keys
    /// and values, and the input of the attention's last matrix count one each. Attention keeps shifted scores,
    /// exponentials and weights. Tokens of an expert are copied, and scores weight the outputs.
    fn kept_plain(&self) -> Kept {
        let dropout = u64::from(self.dropout);
        let norms_of_heads = if self.qk_norm { 2 } else { 0 };
        let (before, after) = (self.norms_per_layer.min(2), self.norms_per_layer.saturating_sub(2));
        Kept {
            hidden: 3 * before + 2 * after + 2 * dropout + 2 * self.copies_for_experts(),
            attended: 4 + norms_of_heads,
            keys: norms_of_heads,
            scores: 3 + dropout,
            feed_forward: if self.gated { 5 } else { 2 } + dropout,
        }
    }

    /// With it, outputs of matrix products stay, and whatever meets a tensor without gradients: constants of a rotation,
    /// the random masks of dropout.
    fn kept_checkpointed(&self) -> Kept {
        let dropout = u64::from(self.dropout);
        let rotation = if self.positions == Positions::Rotary { 3 } else { 0 };
        Kept {
            hidden: 2 + 4 * dropout + self.copies_for_experts(),
            attended: 2 + rotation,
            keys: 2 + rotation,
            scores: 2 + 2 * dropout,
            feed_forward: if self.gated { 2 } else { 1 } + 2 * dropout,
        }
    }

    fn copies_for_experts(&self) -> u64 {
        self.experts.map_or(0, |_| self.experts_per_token)
    }

    /// Values that the layers keep for one sequence.
    pub(in crate::workload) fn layers_kept(&self, checkpointed: bool) -> u128 {
        let kept = if checkpointed { self.kept_checkpointed() } else { self.kept_plain() };
        let (seq, heads, [_, experts]) = (self.seq, self.heads(), self.experts());
        // Burn's encoder builds a new mask in each layer: a byte for each pair of tokens.
        let mask = if self.causal { seq / 4 } else { 0 };
        let means = if self.qk_norm { heads + self.kv_heads.unwrap_or(heads) } else { 0 };
        let token = self.d_model * kept.hidden
            + self.query_width() * kept.attended
            + self.kv_width() * kept.keys
            + heads * (seq * kept.scores + 1)
            + self.d_ff() * kept.feed_forward * experts
            + mask
            + means
            + self.norms_per_layer;
        u128::from(seq) * u128::from(self.layers) * u128::from(token)
    }

    /// Values that the layers keep for one sequence because they attend to the states of another one, which has `keys`
    /// tokens, after a norm of their own.
    pub(in crate::workload) fn cross_kept(&self, keys: u64, checkpointed: bool) -> u128 {
        let dropout = u64::from(self.dropout);
        let [hidden, scores] =
            if checkpointed { [1 + 2 * dropout, 2 + 2 * dropout] } else { [3 + dropout, 3 + dropout] };
        let of_queries = self.d_model * hidden + 2 * self.query_width() + self.heads() * (keys * scores + 1) + 1;
        let of_keys = 2 * if checkpointed { self.kv_width() } else { self.query_width() };
        u128::from(self.layers)
            * (u128::from(self.seq) * u128::from(of_queries) + u128::from(keys) * u128::from(of_keys))
    }

    /// Values kept for gradients of weights: the inputs of matrices, and the factors of the norms' scales.
    pub(in crate::workload) fn kept_for(&self) -> Vec<(&'static [Role], u64)> {
        let each = |width: u64| self.layers.saturating_mul(self.seq.saturating_mul(width));
        let [_, experts] = self.experts();
        vec![
            (&[Role::Query, Role::Key, Role::Value], each(self.d_model)),
            (&[Role::Output], each(self.query_width())),
            (&[Role::Gate, Role::Up], each(self.d_model)),
            (&[Role::Down], each(self.d_ff().saturating_mul(experts))),
            (&[Role::Vector], each(self.norms_per_layer * self.d_model)),
        ]
    }

    /// Values that [`cross_kept`](Self::cross_kept) counts for gradients of weights. The states attended to are the caller's.
    pub(in crate::workload) fn cross_kept_for(&self) -> Vec<(&'static [Role], u64)> {
        let each = |width: u64| self.layers.saturating_mul(self.seq.saturating_mul(width));
        vec![
            (&[Role::Query], each(self.d_model)),
            (&[Role::Output], each(self.query_width())),
            (&[Role::Vector], each(self.d_model)),
        ]
    }

    /// Values of a fixed table of positions; a rotation has a sine and a cosine for each width of a head.
    pub(in crate::workload) fn position_table(&self) -> u64 {
        match self.positions {
            Positions::Sinusoidal => self.seq * self.d_model,
            Positions::Rotary => self.seq * 2 * self.head_dim(),
            Positions::Learned | Positions::Relative | Positions::None => 0,
        }
    }

    /// The table of learned positions.
    pub(in crate::workload) fn position_tensor(&self) -> Option<Tensors> {
        let rows = self.max_seq.unwrap_or(self.seq);
        (self.positions == Positions::Learned).then(|| Tensors::matrices(1, rows, self.d_model, Role::Embedding))
    }

    /// Values of the largest tensor within the layers for one sequence.
    pub(in crate::workload) fn largest_in_layers(&self, keys: u64) -> u64 {
        let [_, experts] = self.experts();
        let widest = (self.heads() * keys).max(self.d_ff() * experts).max(self.d_model).max(self.query_width());
        self.seq.saturating_mul(widest)
    }
}

impl Norm {
    pub(super) const fn vectors(self) -> u64 {
        match self {
            Self::Layer => 2,
            Self::Rms => 1,
        }
    }
}
