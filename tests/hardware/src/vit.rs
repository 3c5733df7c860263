//! The vision transformer that is measured.

use burn::{
    module::Module,
    tensor::{Device, Int, Tensor},
};
use gpu_tuned::nn::{
    Embedding, EmbeddingConfig, LayerNorm, LayerNormConfig, Linear, LinearConfig,
    transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
};

use crate::network::CLASSES;

/// Colours of an image.
const COLOURS: usize = 3;

/// The dimensions of a [`Vit`].
#[derive(Clone, Copy, Debug)]
pub struct VitDimensions {
    /// Side of the square image in pixels.
    pub image: usize,
    /// Side of a square patch in pixels, a divisor of the image's.
    pub patch: usize,
    /// Layers.
    pub layers: usize,
    /// Width; the feed-forward layers have four times as much.
    pub d_model: usize,
    /// Heads of attention.
    pub heads: usize,
}

impl VitDimensions {
    /// Patches of a row of the image.
    fn patches_in_row(&self) -> usize {
        self.image / self.patch
    }
}

/// A linear layer over patches, learned positions, an encoder with norms before, and a head over the mean of the patches.
#[derive(Module, Debug)]
pub struct Vit {
    patches: Linear,
    positions: Embedding,
    layers: TransformerEncoder,
    norm: LayerNorm,
    head: Linear,
    /// Side of a patch.
    patch: usize,
}

impl Vit {
    /// A network with random weights.
    pub fn new(dimensions: &VitDimensions, device: &Device) -> Self {
        let VitDimensions { patch, layers, d_model, heads, .. } = *dimensions;
        let encoder = TransformerEncoderConfig::new(d_model, 4 * d_model, heads, layers);
        Self {
            patches: LinearConfig::new(COLOURS * patch * patch, d_model).init(device),
            positions: EmbeddingConfig::new(dimensions.patches_in_row().pow(2), d_model).init(device),
            layers: encoder.with_norm_first(true).with_dropout(0.0).init(device),
            norm: LayerNormConfig::new(d_model).init(device),
            head: LinearConfig::new(d_model, CLASSES).init(device),
            patch,
        }
    }

    /// Logits of images `[samples, colours, side, side]`.
    pub fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let tokens = self.patches.forward(self.patches_of(images));
        let [samples, length, width] = tokens.dims();
        let length = i64::try_from(length).expect("BUG: an image has few patches");
        let places = Tensor::<1, Int>::arange(0..length, &tokens.device()).unsqueeze();
        let hidden = self.layers.forward(TransformerEncoderInput::new(tokens + self.positions.forward(places)));
        let mean = self.norm.forward(hidden).mean_dim(1).reshape([samples, width]);
        self.head.forward(mean)
    }

    /// Patches row by row, as `[samples, patches, colours x patch x patch]`.
    fn patches_of(&self, images: Tensor<4>) -> Tensor<3> {
        let [samples, colours, side, _] = images.dims();
        let (patch, row) = (self.patch, side / self.patch);
        let cut: Tensor<6> = images.reshape([samples, colours, row, patch, row, patch]);
        cut.permute([0, 2, 4, 1, 3, 5]).reshape([samples, row * row, colours * patch * patch])
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Int, Tensor};

    use super::{COLOURS, Vit, VitDimensions};

    #[test]
    fn a_patch_has_the_pixels_of_a_square_colour_by_colour() {
        let device = Device::flex();
        let dimensions = VitDimensions { image: 6, patch: 2, layers: 1, d_model: 8, heads: 2 };
        let images = Tensor::<1, Int>::arange(0..2 * 3 * 36, &device).float().reshape([2, COLOURS, 6, 6]);
        let patches = Vit::new(&dimensions, &device).patches_of(images).into_data().iter::<f32>().collect::<Vec<_>>();
        let mut expected = Vec::new();
        for sample in 0..2 {
            for patch in 0..9 {
                for colour in 0..COLOURS {
                    for pixel in 0..4 {
                        let (row, column) = (patch / 3 * 2 + pixel / 2, patch % 3 * 2 + pixel % 2);
                        expected.push((((sample * COLOURS + colour) * 6 + row) * 6 + column) as f32);
                    }
                }
            }
        }
        assert_eq!(patches, expected);
    }
}
