//! Attention with library products.

pub use burn::nn::attention::*;

use burn::nn::attention as burn_attention;
use std::cell::OnceCell;

use burn::tensor::activation::{quiet_softmax, softmax};
use burn::tensor::{Bool, DType, Device, Tensor};

pub use super::config::MultiHeadAttentionConfig;
use super::{ByLibrary, linear};
use crate::product::{self, matmul};

/// Attention with several heads.
pub type MultiHeadAttention = ByLibrary<burn_attention::MultiHeadAttention>;

/// Input of [`MultiHeadAttention::forward`].
#[derive(Clone, Debug)]
pub struct MhaInput {
    query: Tensor<3>,
    key: Tensor<3>,
    value: Tensor<3>,
    mask_pad: Option<Tensor<2, Bool>>,
    mask_attn: Option<Tensor<3, Bool>>,
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
        let MhaInput { query, key, value, mask_pad, mask_attn } = input;
        weighted(self, heads(self, [query, key, value]), &Masks::new(mask_pad, mask_attn))
    }

    /// The context of [`forward`](Self::forward) without the weights, by [`product::attention`] where cuDNN computes it. With
    /// dropout, quiet softmax or a `min_float` above -10,000, by the operations of `forward`.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_context(&self, input: MhaInput) -> Tensor<3> {
        let MhaInput { query, key, value, mask_pad, mask_attn } = input;
        context(self, [query, key, value], &Masks::new(mask_pad, mask_attn))
    }

    /// Applies attention with a cache, by Burn's kernels.
    pub fn forward_cache(&self, input: MhaInput, cache: &mut MhaCache) -> MhaOutput {
        self.0.forward_cache(input.into(), cache)
    }
}

/// Masks of attention.
#[derive(Clone, Debug)]
pub(super) struct Masks {
    pad: Option<Tensor<2, Bool>>,
    attn: Option<Tensor<3, Bool>>,
    /// Both as a bias, which all layers share.
    bias: OnceCell<Option<Tensor<3>>>,
}

/// Bias of masked scores. Their weights are 0, as with Burn's `min_float`. Queries without any other keys have the weights of an
/// attention without masks, where Burn's are equal.
const EXCLUDED: f64 = -1e4;

impl Masks {
    pub(super) fn new(pad: Option<Tensor<2, Bool>>, attn: Option<Tensor<3, Bool>>) -> Self {
        Self { pad, attn, bias: OnceCell::new() }
    }

    /// Number of sequences with a bias: all, or none without masks.
    fn biases(&self) -> usize {
        let of_attn = self.attn.as_ref().map(|mask| mask.dims()[0]);
        of_attn.or_else(|| self.pad.as_ref().map(|mask| mask.dims()[0])).unwrap_or(0)
    }

    /// Numbers to add to the scores `[batch, length_1, length_2]`.
    fn bias(&self, scores: [usize; 3], device: &Device, dtype: DType) -> Option<Tensor<3>> {
        let joined = || {
            let pad = self.pad.clone().map(|mask| mask.unsqueeze_dim::<3>(1).expand(scores));
            let mask = match (pad, self.attn.clone()) {
                (Some(pad), Some(attn)) => pad.bool_or(attn),
                (pad, attn) => pad.or(attn)?,
            };
            Some(Tensor::<3>::zeros(scores, (device, dtype)).mask_fill(mask, EXCLUDED))
        };
        self.bias.get_or_init(joined).clone()
    }
}

/// Query, key and value of each head: `[batch, length, heads, d_k]`.
type Heads = [Tensor<4>; 3];

fn heads(layer: &burn_attention::MultiHeadAttention, [query, key, value]: [Tensor<3>; 3]) -> Heads {
    let ([batch, ..], [_, length_2, _]) = (query.dims(), key.dims());
    assert_eq!(key.dims()[0], batch, "batch of attention's keys");
    assert_eq!(value.dims()[..2], [batch, length_2], "batch and length of attention's values");
    let heads = |layer_of: &burn::nn::Linear, tensor: Tensor<3>| {
        let [batch, length, _] = tensor.dims();
        linear(layer_of, tensor).reshape([batch, length, layer.n_heads, layer.d_k])
    };
    [heads(&layer.query, query), heads(&layer.key, key), heads(&layer.value, value)]
}

/// [`MultiHeadAttention::forward_context`] of query, key and value.
pub(super) fn context(layer: &burn_attention::MultiHeadAttention, tensors: [Tensor<3>; 3], masks: &Masks) -> Tensor<3> {
    let heads = heads(layer, tensors);
    let dropout = &layer.dropout;
    let drops = dropout.prob > 0.0 && dropout.training.is_enabled() && heads[0].device().is_autodiff();
    let excludes = masks.biases() == 0 || layer.min_float <= EXCLUDED;
    let is_plain = !drops && !layer.quiet_softmax && excludes;
    if is_plain && product::is_attention_by_library(heads.each_ref(), masks.biases()) {
        fused(layer, heads, masks)
    } else {
        weighted(layer, heads, masks).context
    }
}

/// The context by [`product::attention`].
fn fused(layer: &burn_attention::MultiHeadAttention, [query, key, value]: Heads, masks: &Masks) -> Tensor<3> {
    let ([batch, length_1, ..], [_, length_2, ..]) = (query.dims(), key.dims());
    let bias = masks.bias([batch, length_1, length_2], &query.device(), query.dtype());
    let context = product::attention(query, key, value, bias, false);
    linear(&layer.output, context.reshape([batch, length_1, layer.d_model]))
}

/// [`burn_attention::MultiHeadAttention::forward`] with library products.
fn weighted(layer: &burn_attention::MultiHeadAttention, heads: Heads, masks: &Masks) -> MhaOutput {
    let [query, key, value] = heads.map(|tensor| tensor.swap_dims(1, 2));
    let ([batch, _, length_1, _], [_, _, length_2, _]) = (query.dims(), key.dims());
    let mut scores = matmul(query, key.transpose()).div_scalar((layer.d_k as f32).sqrt());
    if let Some(mask) = masks.pad.clone() {
        scores = scores.mask_fill(mask.reshape([batch, 1, 1, length_2]), layer.min_float);
    }
    if let Some(mask) = masks.attn.clone() {
        scores = scores.mask_fill(mask.reshape([batch, 1, length_1, length_2]), layer.min_float);
    }
    let weights = if layer.quiet_softmax { quiet_softmax(scores, 3) } else { softmax(scores, 3) };
    let weights = layer.dropout.forward(weights);

    let context = matmul(weights.clone(), value).swap_dims(1, 2).reshape([batch, length_1, layer.d_model]);
    MhaOutput { weights, context: linear(&layer.output, context) }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Distribution, Int, TensorData, Tolerance};

    use super::*;

    /// The CPU computes attention with a bias by products.
    #[test]
    fn attention_with_masks_as_a_bias_is_burns() {
        let device = Device::flex().autodiff();
        let (batch, length_1, length_2) = (3, 5, 6);
        let layer = burn_attention::MultiHeadAttentionConfig::new(8, 2).with_dropout(0.0).init(&device);
        let random = |length| Tensor::<3>::random([batch, length, 8], Distribution::Default, &device).require_grad();
        let tensors = [random(length_1), random(length_2), random(length_2)];
        // The first key is nowhere excluded.
        let columns = Tensor::<1, Int>::arange(0..6, &device);
        let lengths = Tensor::<2, Int>::from_data(TensorData::from([[6_i64], [3], [1]]), &device);
        let pad =
            columns.clone().unsqueeze::<2>().expand([batch, length_2]).greater_equal(lengths.expand([batch, length_2]));
        let attn = Tensor::<2, Bool>::tril_mask([length_1, length_2], 0, &device).expand([batch, length_1, length_2]);
        for (pad, attn) in
            [(None, None), (Some(pad.clone()), None), (None, Some(attn.clone())), (Some(pad), Some(attn))]
        {
            let masks = Masks::new(pad.clone(), attn.clone());
            assert_eq!(masks.biases(), if pad.is_some() || attn.is_some() { batch } else { 0 });
            let found = fused(&layer, heads(&layer, tensors.clone()), &masks);
            let [query, key, value] = tensors.clone();
            let mut input = burn_attention::MhaInput::new(query, key, value);
            input = pad.into_iter().fold(input, burn_attention::MhaInput::mask_pad);
            input = attn.into_iter().fold(input, burn_attention::MhaInput::mask_attn);
            let expected = layer.forward(input).context;
            let of = |context: Tensor<3>| {
                let gradients = context.clone().square().sum().backward();
                let gradients = tensors.each_ref().map(|tensor| tensor.grad(&gradients).expect("it is trained"));
                [context.inner()].into_iter().chain(gradients)
            };
            for (found, expected) in of(found).zip(of(expected)) {
                found.into_data().assert_approx_eq::<f32>(&expected.into_data(), Tolerance::absolute(1e-5));
            }
        }
    }
}
