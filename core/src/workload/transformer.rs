use serde::{Deserialize, Serialize};

use super::{Dim, Family, Optimizer, Product, SampleCost, Workload, dims};
use crate::{Bytes, Provenance};

/// The dimensions of a transformer over token sequences (GPT-2's layout: pre-norm, learned positions, biases).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub heads: Option<u64>,
    /// Width of the feed-forward layer; `4 * d_model` when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub d_ff: Option<u64>,
    /// Whether the output layer shares the token embedding's weights.
    #[serde(default = "yes")]
    pub tied_head: bool,
    /// The optimizer.
    #[serde(default)]
    pub optimizer: Optimizer,
}

const fn yes() -> bool {
    true
}

/// Tensors kept for the backward pass, in units of one tensor of the named shape.
///
/// Fitted to one model in Burn 0.22.1 on an H200 (vocabulary 8192, width 512, 6 layers, 8 heads, sequence 256): 98.57 MiB
/// a sample, 70.6 with checkpointing, which recomputes memory-bound operations only.
struct Kept {
    /// `[seq, d_model]` tensors of a layer: norms, queries, keys, values, residuals.
    hidden: u64,
    /// `[heads, seq, seq]` tensors of a layer: attention scores and weights.
    scores: u64,
    /// `[seq, d_ff]` tensors of a layer: around the activation function.
    feed_forward: u64,
    /// `[seq, vocab]` tensors: logits and their log-softmax.
    logits: u64,
}

const KEPT: Kept = Kept { hidden: 12, scores: 2, feed_forward: 2, logits: 2 };
const KEPT_CHECKPOINTED: Kept = Kept { hidden: 10, scores: 1, feed_forward: 1, logits: 2 };

/// Kernels of a layer, forward and backward, in Burn 0.22.1: a step of 6 layers took about 6 ms however small the batch.
const KERNELS_PER_LAYER: u64 = 100;

impl Transformer {
    /// What users give.
    pub const DIMS: &[Dim] = &[
        Dim::count("layers", true, "layers"),
        Dim::count("d_model", true, "width of the residual stream"),
        Dim::count("vocab", true, "tokens in the vocabulary"),
        Dim::count("seq", true, "tokens in a sequence; one sample is one sequence"),
        Dim::count("heads", false, "attention heads (default d_model / 64)"),
        Dim::count("d_ff", false, "width of the feed-forward layer (default 4 * d_model)"),
        Dim::flag("tied_head", "whether the output layer shares the embedding's weights (default true)"),
        Dim::OPTIMIZER,
    ];

    /// A transformer with the defaults of the dimensions that are not named here.
    pub const fn new(layers: u64, d_model: u64, vocab: u64, seq: u64) -> Self {
        Self { layers, d_model, vocab, seq, heads: None, d_ff: None, tied_head: true, optimizer: Optimizer::AdamW }
    }

    fn heads(&self) -> u64 {
        self.heads.unwrap_or((self.d_model / 64).max(1))
    }

    fn d_ff(&self) -> u64 {
        self.d_ff.unwrap_or(self.d_model.saturating_mul(4))
    }

    /// Trainable parameters.
    pub fn parameters(&self) -> u64 {
        let (d, ff, vocab) = (u128::from(self.d_model), u128::from(self.d_ff()), u128::from(self.vocab));
        let norm = 2 * d;
        let attention = 4 * (d * d + d);
        let feed_forward = d * ff + ff + ff * d + d;
        let layer = 2 * norm + attention + feed_forward;
        let embeddings = vocab * d + u128::from(self.seq) * d;
        let head = if self.tied_head { 0 } else { vocab * d + vocab };
        let all = u128::from(self.layers) * layer + embeddings + norm + head;
        u64::try_from(all).unwrap_or(u64::MAX)
    }

    /// Forward and backward for one sequence: 2 operations for each weight and token forward, twice that backward
    /// (Kaplan et al., 2020, section 2.1), and the two attention products.
    fn flops(&self) -> f64 {
        let (d, seq) = (self.d_model as f64, self.seq as f64);
        let weights = self.layers as f64 * (4.0 * d * d + 2.0 * d * self.d_ff() as f64) + self.vocab as f64 * d;
        let attention = self.layers as f64 * 2.0 * seq * d;
        6.0 * seq * (weights + attention)
    }

    fn activations(&self, kept: &Kept) -> Bytes {
        let token =
            self.d_model * kept.hidden + self.heads() * self.seq * kept.scores + self.d_ff() * kept.feed_forward;
        let all =
            u128::from(self.seq) * (u128::from(self.layers) * u128::from(token) + u128::from(self.vocab * kept.logits));
        Bytes(u64::try_from(all).unwrap_or(u64::MAX)).times(4)
    }

    /// What one training step costs.
    pub fn workload(&self) -> Workload {
        let widest = self.vocab.max(self.heads() * self.seq).max(self.d_ff());
        Workload {
            parameters: self.parameters(),
            optimizer: self.optimizer,
            sample: SampleCost {
                activations: self.activations(&KEPT),
                checkpointed_activations: Some(self.activations(&KEPT_CHECKPOINTED)),
                largest_tensor: Some(Bytes(self.seq).times(widest).times(4)),
                // Token ids and targets, as 64-bit integers.
                input: Some(Bytes(self.seq).times(16)),
                flops: self.flops(),
            },
            kernels: self.layers * KERNELS_PER_LAYER + KERNELS_PER_LAYER,
            family: Family::Transformer,
            batch_statistics: false,
            dominant_product: Some(Product { rows_per_sample: self.seq, inner: self.d_model, columns: self.d_ff() }),
            provenance: Provenance::Derived,
        }
    }

    pub(super) fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = dims::out_of_range(&[
            ("layers", self.layers),
            ("d_model", self.d_model),
            ("vocab", self.vocab),
            ("seq", self.seq),
            ("heads", self.heads.unwrap_or(1)),
            ("d_ff", self.d_ff.unwrap_or(1)),
        ]);
        if found.is_empty() && !self.d_model.is_multiple_of(self.heads()) {
            found.push(("heads", format!("heads = {} does not divide d_model = {}", self.heads(), self.d_model)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::Transformer;

    #[test]
    fn gpt2_small_has_its_published_parameters() {
        // Hugging Face transformers, `GPT2LMHeadModel.from_pretrained("gpt2").num_parameters()`.
        assert_eq!(Transformer::new(12, 768, 50257, 1024).parameters(), 124_439_808);
    }

    #[test]
    fn gpt2_medium_large_and_xl_have_their_published_parameters() {
        for (layers, width, published) in [(24, 1024, 354_823_168), (36, 1280, 774_030_080), (48, 1600, 1_557_611_200)]
        {
            let heads = width / 64;
            let model = Transformer { heads: Some(heads), ..Transformer::new(layers, width, 50257, 1024) };
            assert_eq!(model.parameters(), published);
        }
    }

    #[test]
    fn kept_bytes_are_near_those_burn_held_on_an_h200() {
        let model = Transformer { heads: Some(8), tied_head: false, ..Transformer::new(6, 512, 8192, 256) };
        let sample = model.workload().sample;
        let checkpointed = sample.checkpointed_activations.expect("transformers can be checkpointed");
        // Burn 0.22.1, bytes in use after the forward pass: the slope over batches 8 to 256.
        for (ours, measured_mib) in [(sample.activations, 98.57), (checkpointed, 70.6)] {
            assert!((ours.mib() / measured_mib - 1.0).abs() < 0.03, "{ours} against {measured_mib} MiB");
        }
    }
}
