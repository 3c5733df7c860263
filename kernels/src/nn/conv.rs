//! Convolutions by cuDNN.

pub use burn::nn::conv::*;

use burn::module::Param;
use burn::nn::conv as burn_conv;
use burn::nn::{PaddingConfig1d, PaddingConfig2d, PaddingConfig3d};
use burn::tensor::Tensor;
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};

use super::ByLibrary;
pub use super::config::{
    Conv1dConfig, Conv2dConfig, Conv3dConfig, ConvTranspose1dConfig, ConvTranspose2dConfig, ConvTranspose3dConfig,
};
use crate::product;

/// A convolution of one size.
pub type Conv1d = ByLibrary<burn_conv::Conv1d>;
/// A convolution of two sizes.
pub type Conv2d = ByLibrary<burn_conv::Conv2d>;
/// A convolution of three sizes.
pub type Conv3d = ByLibrary<burn_conv::Conv3d>;
/// A transposed convolution of one size.
pub type ConvTranspose1d = ByLibrary<burn_conv::ConvTranspose1d>;
/// A transposed convolution of two sizes.
pub type ConvTranspose2d = ByLibrary<burn_conv::ConvTranspose2d>;
/// A transposed convolution of three sizes.
pub type ConvTranspose3d = ByLibrary<burn_conv::ConvTranspose3d>;

impl Conv1d {
    /// Applies the convolution: `[batch, channels_in, length]` to `[batch, channels_out, length]`.
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let padding = match self.padding {
            PaddingConfig1d::Valid => (0, 0),
            PaddingConfig1d::Same => same(input.dims()[2], self.kernel_size, self.stride),
            PaddingConfig1d::Explicit(left, right) => (left, right),
        };
        let options = ConvOptions::new_with_padding([self.stride], [padding], [self.dilation], self.groups);
        product::conv1d(input, self.weight.val(), self.bias.as_ref().map(Param::val), options)
    }
}

impl Conv2d {
    /// Applies the convolution: `[batch, channels_in, height, width]` to `[batch, channels_out, height, width]`.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let size = |size: usize| same(input.dims()[size + 2], self.kernel_size[size], self.stride[size]);
        let padding = match self.padding {
            PaddingConfig2d::Valid => [(0, 0); 2],
            PaddingConfig2d::Same => [size(0), size(1)],
            PaddingConfig2d::Explicit(top, left, bottom, right) => [(top, bottom), (left, right)],
        };
        let options = ConvOptions::new_with_padding(self.stride, padding, self.dilation, self.groups);
        product::conv2d(input, self.weight.val(), self.bias.as_ref().map(Param::val), options)
    }
}

impl Conv3d {
    /// Applies the convolution: `[batch, channels_in, depth, height, width]` to `[batch, channels_out, depth, height, width]`.
    ///
    /// # Panics
    ///
    /// Panics if padding of the kind `Same` is not the same before and behind, as Burn's module does.
    pub fn forward(&self, input: Tensor<5>) -> Tensor<5> {
        let padding = match self.padding {
            PaddingConfig3d::Valid => [0; 3],
            PaddingConfig3d::Same => [0, 1, 2].map(|size| {
                let (before, behind) = same(input.dims()[size + 2], self.kernel_size[size], self.stride[size]);
                assert_eq!(before, behind, "padding before and behind a convolution of three sizes");
                before
            }),
            PaddingConfig3d::Explicit(depth, height, width) => [depth, height, width],
        };
        let options = ConvOptions::new(self.stride, padding, self.dilation, self.groups);
        product::conv3d(input, self.weight.val(), self.bias.as_ref().map(Param::val), options)
    }
}

/// Padding with which a convolution without dilation has an output for every step of the stride. Burn's function is private.
fn same(input: usize, kernel: usize, stride: usize) -> (usize, usize) {
    let steps = input.div_ceil(stride).saturating_sub(1);
    let all = if input == 0 { 0 } else { (steps * stride + kernel).saturating_sub(input) };
    (all / 2, all - all / 2)
}

impl ConvTranspose1d {
    /// Applies the convolution: `[batch, channels_in, length]` to `[batch, channels_out, length]`.
    pub fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        let Self(it) = self;
        let (stride, padding, added, dilation) = ([it.stride], [it.padding], [it.padding_out], [it.dilation]);
        let options = ConvTransposeOptions::new(stride, padding, added, dilation, it.groups);
        product::conv_transpose1d(input, it.weight.val(), it.bias.as_ref().map(Param::val), options)
    }
}

impl ConvTranspose2d {
    /// Applies the convolution: `[batch, channels_in, height, width]` to `[batch, channels_out, height, width]`.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let Self(it) = self;
        let options = ConvTransposeOptions::new(it.stride, it.padding, it.padding_out, it.dilation, it.groups);
        product::conv_transpose2d(input, it.weight.val(), it.bias.as_ref().map(Param::val), options)
    }
}

impl ConvTranspose3d {
    /// Applies the convolution: `[batch, channels_in, depth, height, width]` to `[batch, channels_out, depth, height, width]`.
    pub fn forward(&self, input: Tensor<5>) -> Tensor<5> {
        let Self(it) = self;
        let options = ConvTransposeOptions::new(it.stride, it.padding, it.padding_out, it.dilation, it.groups);
        product::conv_transpose3d(input, it.weight.val(), it.bias.as_ref().map(Param::val), options)
    }
}
