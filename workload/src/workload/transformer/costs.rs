//! Costs of a transformer.

use super::{Positions, Transformer};
use crate::Bytes;
use crate::workload::{Family, ModelCosts, Product, Role, Tensors};

/// Values kept for the backward pass, counted in Burn 0.22.1 operation by operation: `tests/models/KEPT.md`. An H200
/// confirmed the counts for one encoder: 98.57 MiB a sample, 70.57 MiB with checkpointing.
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

impl Transformer {
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

    /// Multiplications of a forward pass for one sequence: one for each weight and token (Kaplan et al., 2020,
    /// section 2.1), plus the two attention products. Burn computes these products in full, masked or not.
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

    /// Tensors kept without checkpointing. Each norm keeps three. Queries, repeated keys and values, and the input of
    /// the attention's last matrix count one each. Attention keeps shifted scores, exponentials and weights.
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
        // Burn's encoder builds a new mask in each layer: a byte for each pair of tokens.
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

    /// Values kept for gradients of weights: the inputs of matrices, and the factors of the norms' scales.
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

    pub(in crate::workload) fn costs(&self) -> ModelCosts {
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
            dominant_product: Some(Product { rows_per_sample: self.seq, inner: self.d_model, columns: self.d_ff() }),
            ..ModelCosts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::{Norm, Positions, Transformer};

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
        // `num_parameters()` of the model class in Hugging Face transformers, without its task head.
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
