//! A vision transformer: a convolution over patches, learned positions, Burn's encoder with norms before.

use burn::{
    module::{Initializer, Module, Param},
    nn::{
        Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
        conv::{Conv2d, Conv2dConfig},
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    tensor::{Device, Tensor},
};
use gpu_tuned_core::workload;

use crate::{cross_entropy, transformer::positions};

/// The dimensions of a vision transformer.
#[derive(Clone, Copy, Debug)]
pub struct Dimensions {
    /// Side of the square image in pixels.
    pub image: usize,
    /// Side of a patch in pixels.
    pub patch: usize,
    /// Layers.
    pub layers: usize,
    /// Width of the residual stream.
    pub d_model: usize,
    /// Attention heads.
    pub heads: usize,
    /// Classes.
    pub classes: usize,
    /// True if the head reads a learned token, false if it reads the mean.
    pub class_token: bool,
    /// Share of activations that training drops.
    pub dropout: f64,
}

impl Dimensions {
    /// The model as core describes it.
    pub fn spec(&self) -> workload::Vit {
        workload::Vit {
            image: self.image as u64,
            patch: self.patch as u64,
            layers: self.layers as u64,
            d_model: self.d_model as u64,
            heads: Some(self.heads as u64),
            classes: self.classes as u64,
            class_token: self.class_token,
            dropout: self.dropout > 0.0,
            ..workload::Vit::default()
        }
    }

    fn tokens(&self) -> usize {
        (self.image / self.patch).pow(2) + usize::from(self.class_token)
    }
}

/// A classifier of images.
#[derive(Module, Debug)]
pub struct Vit {
    patches: Conv2d,
    class_token: Option<Param<Tensor<3>>>,
    positions: Embedding,
    encoder: TransformerEncoder,
    norm: LayerNorm,
    head: Linear,
}

impl Vit {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let Dimensions { d_model, patch, heads, layers, .. } = *dimensions;
        let token = || Initializer::Zeros.init([1, 1, d_model], device);
        let encoder = TransformerEncoderConfig::new(d_model, 4 * d_model, heads, layers);
        Self {
            patches: Conv2dConfig::new([3, d_model], [patch; 2]).with_stride([patch; 2]).init(device),
            class_token: dimensions.class_token.then(token),
            positions: EmbeddingConfig::new(dimensions.tokens(), d_model).init(device),
            encoder: encoder.with_norm_first(true).with_dropout(dimensions.dropout).init(device),
            norm: LayerNormConfig::new(d_model).init(device),
            head: LinearConfig::new(d_model, dimensions.classes).init(device),
        }
    }

    /// The loss over some images.
    pub fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        let images = Tensor::<4>::zeros([samples, 3, dimensions.image, dimensions.image], device);
        let mut tokens = self.patches.forward(images).flatten::<3>(2, 3).swap_dims(1, 2);
        if let Some(class_token) = &self.class_token {
            let class_token = class_token.val().expand([samples, 1, dimensions.d_model]);
            tokens = Tensor::cat(vec![class_token, tokens], 1);
        }
        let places = self.positions.forward(positions(dimensions.tokens(), device));
        let hidden = self.norm.forward(self.encoder.forward(TransformerEncoderInput::new(tokens + places)));
        let read = if self.class_token.is_some() { hidden.narrow(1, 0, 1) } else { hidden.mean_dim(1) };
        cross_entropy(self.head.forward(read.reshape([samples, dimensions.d_model])))
    }
}
