//! Costs of a transformer over tokens.

use super::Transformer;
use crate::Bytes;
use crate::workload::tensors::limited;
use crate::workload::{Family, Matrix, ModelCosts, Product, Role, Tensors};

/// Kernels of a layer, forward and backward, in Burn 0.22.1: a step of 6 layers took about 6 ms however small the batch.
pub(in crate::workload) const KERNELS_PER_LAYER: u64 = 100;

/// Kernels of an attention, forward and backward: half of a layer's. Not measured.
pub(in crate::workload) const KERNELS_PER_ATTENTION: u64 = KERNELS_PER_LAYER / 2;

/// Kernels of one expert, forward and backward: three matrices with two gradients each, their activation, and the copies
/// of its tokens. Not measured.
const KERNELS_PER_EXPERT: u64 = 20;

impl Transformer {
    fn tensors(&self) -> Vec<Tensors> {
        let d = self.d_model;
        let one = |rows, columns, role| Tensors::matrices(1, rows, columns, role);
        let mut all = vec![one(self.vocab, d, Role::Embedding)];
        all.extend(self.position_tensor());
        if self.segments > 0 {
            all.push(one(self.segments, d, Role::Embedding));
        }
        all.extend(self.layer_tensors());
        let once = u64::from(self.final_norm) + u64::from(self.embedding_norm);
        all.push(self.norm_tensors(self.norms_per_layer * self.layers + once));
        if self.pooler {
            all.extend([one(d, d, Role::Dense), Tensors::vectors(1, d)]);
        }
        match self.classes {
            Some(classes) => all.extend([one(d, classes, Role::Head), Tensors::vectors(1, classes)]),
            None if self.tied_head => {}
            None => {
                all.push(one(d, self.vocab, Role::Head));
                all.extend(self.has_bias(Matrix::Head).then(|| Tensors::vectors(1, self.vocab)));
            }
        }
        all
    }

    fn multiplications(&self) -> f64 {
        let d = self.d_model as f64;
        let tokens = self.seq as f64 * self.vocab as f64;
        self.layer_multiplications() + d * self.classes.map_or(tokens, |classes| classes as f64)
    }

    /// Values of the logits of a sequence.
    fn result(&self) -> u64 {
        self.classes.unwrap_or_else(|| self.seq.saturating_mul(self.vocab))
    }

    /// Tensors outside the layers: of the residual stream, and of the result's size.
    pub(in crate::workload) const fn kept_once(&self, checkpointed: bool) -> [u64; 2] {
        match (checkpointed, self.final_norm) {
            (true, _) => [1, 2],
            (false, true) => [3, 1],
            (false, false) => [1, 1],
        }
    }

    fn kept(&self, checkpointed: bool) -> u64 {
        let [hidden, results] = self.kept_once(checkpointed);
        let all = self.layers_kept(checkpointed)
            + u128::from(self.seq) * u128::from(self.d_model * hidden)
            + u128::from(self.result()) * u128::from(results);
        limited(all)
    }

    pub(in crate::workload) fn costs(&self) -> ModelCosts {
        let experts = self.experts.map_or(0, |experts| experts.saturating_mul(KERNELS_PER_EXPERT));
        ModelCosts {
            tensors: self.tensors(),
            buffers: self.position_table(),
            kept: self.kept(false),
            kept_checkpointed: Some(self.kept(true)),
            kept_for: self.kept_for(),
            // A tied head keeps the embedding turned round.
            copies: if self.tied_head && self.classes.is_none() { self.d_model.saturating_mul(self.vocab) } else { 0 },
            largest: Some(self.largest_in_layers(self.seq).max(self.result())),
            result: self.result(),
            // Token ids and targets, as 64-bit integers.
            input: Some(Bytes(self.seq).times(16)),
            multiplications: self.multiplications(),
            tokens: Some(self.seq),
            kernels: self.layers.saturating_mul(KERNELS_PER_LAYER + experts) + KERNELS_PER_LAYER,
            family: Family::Transformer,
            dominant_product: Some(Product { rows_per_sample: self.seq, inner: self.d_model, columns: self.d_ff() }),
            ..ModelCosts::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::workload::Transformer;

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
