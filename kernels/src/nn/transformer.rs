//! Transformers with library products.

pub use burn::nn::transformer::*;

use burn::nn::activation::Activation;
use burn::nn::transformer as burn_transformer;
use burn::tensor::{Bool, Tensor};

use super::attention::{Masks, context};
pub use super::config::{PositionWiseFeedForwardConfig, TransformerEncoderConfig};
use super::{ByLibrary, layer_norm, linear};
use crate::product;

/// A feed-forward network at each position.
pub type PositionWiseFeedForward = ByLibrary<burn_transformer::PositionWiseFeedForward>;
/// Layers of attention and feed-forward networks.
pub type TransformerEncoder = ByLibrary<burn_transformer::TransformerEncoder>;

impl PositionWiseFeedForward {
    /// Applies the network: `[.., d_model]` to `[.., d_model]`.
    ///
    /// With the library selected, the first product computes GELU by its tanh approximation.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        feed_forward(self, input)
    }
}

fn feed_forward<const D: usize>(layer: &burn_transformer::PositionWiseFeedForward, input: Tensor<D>) -> Tensor<D> {
    let hidden = match (&layer.activation, &layer.linear_inner.bias) {
        (Activation::Gelu(gelu), Some(bias)) if gelu.approximate => {
            product::linear_with_gelu(input, layer.linear_inner.weight.val(), bias.val())
        }
        _ => layer.activation.forward(linear(&layer.linear_inner, input)),
    };
    linear(&layer.linear_outer, layer.dropout.forward(hidden))
}

/// Input of [`TransformerEncoder::forward`].
#[derive(Clone, Debug)]
pub struct TransformerEncoderInput {
    tensor: Tensor<3>,
    mask_pad: Option<Tensor<2, Bool>>,
    mask_attn: Option<Tensor<3, Bool>>,
}

impl TransformerEncoderInput {
    /// A tensor `[batch, length, d_model]`.
    pub fn new(tensor: Tensor<3>) -> Self {
        Self { tensor, mask_pad: None, mask_attn: None }
    }

    /// Excludes positions where `[batch, length]` is true.
    #[must_use]
    pub fn mask_pad(mut self, mask_pad: Tensor<2, Bool>) -> Self {
        self.mask_pad = Some(mask_pad);
        self
    }

    /// Excludes pairs where `[batch, length, length]` is true.
    #[must_use]
    pub fn mask_attn(mut self, mask_attn: Tensor<3, Bool>) -> Self {
        self.mask_attn = Some(mask_attn);
        self
    }
}

impl From<TransformerEncoderInput> for burn_transformer::TransformerEncoderInput {
    fn from(input: TransformerEncoderInput) -> Self {
        let mut burns = Self::new(input.tensor);
        if let Some(mask) = input.mask_pad {
            burns = burns.mask_pad(mask);
        }
        if let Some(mask) = input.mask_attn {
            burns = burns.mask_attn(mask);
        }
        burns
    }
}

impl TransformerEncoder {
    /// Applies all layers: `[batch, length, d_model]` to `[batch, length, d_model]`.
    pub fn forward(&self, input: TransformerEncoderInput) -> Tensor<3> {
        let TransformerEncoderInput { tensor, mask_pad, mask_attn } = input;
        let masks = Masks::new(mask_pad, mask_attn);
        self.layers.iter().fold(tensor, |tensor, layer| encoder_layer(layer, tensor, &masks))
    }

    /// Applies all layers with a cache, by Burn's kernels.
    pub fn forward_autoregressive_inference(
        &self,
        input: TransformerEncoderInput,
        cache: &mut TransformerEncoderAutoregressiveCache,
    ) -> Tensor<3> {
        self.0.forward_autoregressive_inference(input.into(), cache)
    }
}

/// [`TransformerEncoderLayer::forward`] with library products.
fn encoder_layer(layer: &TransformerEncoderLayer, input: Tensor<3>, masks: &Masks) -> Tensor<3> {
    let attended = if layer.norm_first { layer_norm(&layer.norm_2, input.clone()) } else { input.clone() };
    let attended = context(&layer.mha, [attended.clone(), attended.clone(), attended], masks);
    let mut sum = input + layer.dropout.forward(attended);
    if !layer.norm_first {
        sum = layer_norm(&layer.norm_1, sum);
    }
    let hidden = if layer.norm_first { layer_norm(&layer.norm_1, sum.clone()) } else { sum.clone() };
    let sum = sum + layer.dropout.forward(feed_forward(&layer.pwff, hidden));
    if layer.norm_first { sum } else { layer_norm(&layer.norm_2, sum) }
}
