//! Attention with library products.

pub use burn::nn::attention::*;

use burn::nn::attention as burn_attention;
use burn::tensor::activation::{quiet_softmax, softmax};
use burn::tensor::{Bool, Tensor};

pub use super::config::MultiHeadAttentionConfig;
use super::{ByLibrary, linear};
use crate::product::matmul;

/// Attention with several heads.
pub type MultiHeadAttention = ByLibrary<burn_attention::MultiHeadAttention>;

/// Input of [`MultiHeadAttention::forward`].
#[derive(Clone, Debug)]
pub struct MhaInput {
    pub(super) query: Tensor<3>,
    pub(super) key: Tensor<3>,
    pub(super) value: Tensor<3>,
    pub(super) mask_pad: Option<Tensor<2, Bool>>,
    pub(super) mask_attn: Option<Tensor<3, Bool>>,
}

impl MhaInput {
    /// Queries, keys and values from one tensor `[batch, length, d_model]`.
    pub fn self_attn(tensor: Tensor<3>) -> Self {
        Self::new(tensor.clone(), tensor.clone(), tensor)
    }

    /// A query `[batch, length_1, d_model]`, and a key and a value `[batch, length_2, d_model]`.
    pub fn new(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>) -> Self {
        Self { query, key, value, mask_pad: None, mask_attn: None }
    }

    /// Excludes keys where `[batch, length_2]` is true.
    #[must_use]
    pub fn mask_pad(mut self, mask_pad: Tensor<2, Bool>) -> Self {
        self.mask_pad = Some(mask_pad);
        self
    }

    /// Excludes pairs where `[batch, length_1, length_2]` is true.
    #[must_use]
    pub fn mask_attn(mut self, mask_attn: Tensor<3, Bool>) -> Self {
        self.mask_attn = Some(mask_attn);
        self
    }
}

impl From<MhaInput> for burn_attention::MhaInput {
    fn from(input: MhaInput) -> Self {
        let mut burns = Self::new(input.query, input.key, input.value);
        if let Some(mask) = input.mask_pad {
            burns = burns.mask_pad(mask);
        }
        if let Some(mask) = input.mask_attn {
            burns = burns.mask_attn(mask);
        }
        burns
    }
}

impl MultiHeadAttention {
    /// Applies attention: `[batch, length_1, d_model]`, and weights `[batch, heads, length_1, length_2]`.
    ///
    /// # Panics
    ///
    /// Panics if the shapes of query, key and value differ in batch, key length or `d_model`.
    pub fn forward(&self, input: MhaInput) -> MhaOutput {
        attention(self, input)
    }

    /// Applies attention with a cache, by Burn's kernels.
    pub fn forward_cache(&self, input: MhaInput, cache: &mut MhaCache) -> MhaOutput {
        self.0.forward_cache(input.into(), cache)
    }
}

/// [`burn_attention::MultiHeadAttention::forward`] with library products.
pub(super) fn attention(layer: &burn_attention::MultiHeadAttention, input: MhaInput) -> MhaOutput {
    let [batch, length_1, _] = input.query.dims();
    let [_, length_2, _] = input.key.dims();
    assert_eq!(input.key.dims()[0], batch, "batch of attention's keys");
    assert_eq!(input.value.dims()[..2], [batch, length_2], "batch and length of attention's values");
    let heads = |layer_of: &burn::nn::Linear, tensor: Tensor<3>, length| {
        linear(layer_of, tensor).reshape([batch, length, layer.n_heads, layer.d_k]).swap_dims(1, 2)
    };
    let query = heads(&layer.query, input.query, length_1);
    let key = heads(&layer.key, input.key, length_2);
    let value = heads(&layer.value, input.value, length_2);

    let mut scores = matmul(query, key.transpose()).div_scalar((layer.d_k as f32).sqrt());
    if let Some(mask) = input.mask_pad {
        scores = scores.mask_fill(mask.reshape([batch, 1, 1, length_2]), layer.min_float);
    }
    if let Some(mask) = input.mask_attn {
        scores = scores.mask_fill(mask.reshape([batch, 1, length_1, length_2]), layer.min_float);
    }
    let weights = if layer.quiet_softmax { quiet_softmax(scores, 3) } else { softmax(scores, 3) };
    let weights = layer.dropout.forward(weights);

    let context = matmul(weights.clone(), value).swap_dims(1, 2).reshape([batch, length_1, layer.d_model]);
    MhaOutput { weights, context: linear(&layer.output, context) }
}
