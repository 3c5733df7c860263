//! A vision transformer: a convolution over patches, learned positions, Burn's encoder with norms before.

use burn::{
    module::{Initializer, Module, Param},
    nn::{
        Embedding, LayerNorm, LayerNormConfig, Linear, LinearConfig,
        conv::{Conv2d, Conv2dConfig},
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
    tensor::{Device, Tensor},
};
use gpu_tuned_core::workload;

use crate::{
    Network, cross_entropy, sizes,
    transformer::{dropout, embedding, positions},
};

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

impl Network for Vit {
    type Dimensions = workload::Vit;

    fn new(dimensions: &workload::Vit, device: &Device) -> Self {
        let workload::Vit { d_model, patch, layers, classes, class_token, .. } = *dimensions;
        let heads = dimensions.heads.unwrap_or(d_model / 64);
        let tokens = (dimensions.image / patch).pow(2) + u64::from(class_token);
        let positions = embedding(tokens, d_model, device);
        let [d_model, patch, layers, classes, heads] = sizes([d_model, patch, layers, classes, heads]);
        let encoder = TransformerEncoderConfig::new(d_model, 4 * d_model, heads, layers);
        Self {
            patches: Conv2dConfig::new([3, d_model], [patch; 2]).with_stride([patch; 2]).init(device),
            class_token: class_token.then(|| Initializer::Zeros.init([1, 1, d_model], device)),
            positions,
            encoder: encoder.with_norm_first(true).with_dropout(dropout(dimensions.dropout)).init(device),
            norm: LayerNormConfig::new(d_model).init(device),
            head: LinearConfig::new(d_model, classes).init(device),
        }
    }

    fn loss(&self, dimensions: &workload::Vit, samples: usize, device: &Device) -> Tensor<1> {
        let [image, width] = sizes([dimensions.image, dimensions.d_model]);
        let images = Tensor::<4>::zeros([samples, 3, image, image], device);
        let mut tokens = self.patches.forward(images).flatten::<3>(2, 3).swap_dims(1, 2);
        if let Some(class_token) = &self.class_token {
            let class_token = class_token.val().expand([samples, 1, width]);
            tokens = Tensor::cat(vec![class_token, tokens], 1);
        }
        let places = self.positions.forward(positions(tokens.dims()[1], device));
        let hidden = self.norm.forward(self.encoder.forward(TransformerEncoderInput::new(tokens + places)));
        let read = if self.class_token.is_some() { hidden.narrow(1, 0, 1) } else { hidden.mean_dim(1) };
        cross_entropy(self.head.forward(read.reshape([samples, width])))
    }
}
