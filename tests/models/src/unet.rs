//! A U-Net as in milesial/Pytorch-UNet.

use burn::{
    module::Module,
    tensor::{Device, Tensor, activation::relu},
};

use gpu_tuned::nn::{
    conv::{Conv2d, Conv2dConfig, ConvTranspose2d, ConvTranspose2dConfig},
    pool::{MaxPool2d, MaxPool2dConfig},
};
use gpu_tuned_core::workload::{self, ModelSpec};

use crate::{Network, convnet::NormedConv, cross_entropy};

/// The dimensions of a U-Net.
#[derive(Clone, Copy, Debug)]
pub struct Dimensions {
    /// Side of the square image in pixels.
    pub image: usize,
    /// Channels of the image.
    pub channels: usize,
    /// Channels at full size; every level down has twice as many.
    pub base: usize,
    /// Times that the image is halved.
    pub depth: usize,
    /// Classes of a pixel.
    pub classes: usize,
    /// True for GroupNorm with eight groups, false for BatchNorm.
    pub group_norm: bool,
}

#[derive(Module, Debug)]
struct DoubleConv {
    first: NormedConv,
    second: NormedConv,
}

impl DoubleConv {
    fn new(inputs: usize, outputs: usize, group_norm: bool, device: &Device) -> Self {
        let conv = |inputs| NormedConv::new([inputs, outputs], 3, 1, group_norm, device);
        Self { first: conv(inputs), second: conv(outputs) }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        relu(self.second.forward(relu(self.first.forward(input))))
    }
}

#[derive(Module, Debug)]
struct Up {
    enlarge: ConvTranspose2d,
    convs: DoubleConv,
}

/// Double convolutions on the way down and up, joined at every level.
#[derive(Module, Debug)]
pub struct UNet {
    down: Vec<DoubleConv>,
    pool: MaxPool2d,
    up: Vec<Up>,
    head: Conv2d,
}

impl UNet {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let width = |level: usize| dimensions.base << level;
        let inputs = |level: usize| if level == 0 { dimensions.channels } else { width(level - 1) };
        let convs = |inputs, level: usize| DoubleConv::new(inputs, width(level), dimensions.group_norm, device);
        let up = |level: usize| Up {
            enlarge: ConvTranspose2dConfig::new([width(level + 1), width(level)], [2, 2])
                .with_stride([2, 2])
                .init(device),
            convs: convs(2 * width(level), level),
        };
        Self {
            down: (0..=dimensions.depth).map(|level| convs(inputs(level), level)).collect(),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            up: (0..dimensions.depth).rev().map(up).collect(),
            head: Conv2dConfig::new([dimensions.base, dimensions.classes], [1, 1]).init(device),
        }
    }

    /// The class of every pixel, as `[pixels of all images, classes]`.
    pub fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let mut skipped = vec![self.down[0].forward(images)];
        for down in &self.down[1..] {
            let above = skipped[skipped.len() - 1].clone();
            skipped.push(down.forward(self.pool.forward(above)));
        }
        let mut hidden = skipped.pop().expect("BUG: there is a lowest level");
        for (up, skip) in self.up.iter().zip(skipped.into_iter().rev()) {
            hidden = up.convs.forward(Tensor::cat(vec![skip, up.enlarge.forward(hidden)], 1));
        }
        self.head.forward(hidden).permute([0, 2, 3, 1]).flatten::<3>(0, 1).flatten(0, 1)
    }
}

/// The model as core describes it.
impl From<Dimensions> for ModelSpec {
    fn from(dimensions: Dimensions) -> Self {
        workload::Unet {
            image: dimensions.image as u64,
            channels: dimensions.channels as u64,
            classes: dimensions.classes as u64,
            widths: (0..=dimensions.depth).map(|level| (dimensions.base << level) as u64).collect(),
            batch_statistics: !dimensions.group_norm,
            ..workload::Unet::default()
        }
        .into()
    }
}

impl Network for UNet {
    type Dimensions = Dimensions;

    fn new(dimensions: &Dimensions, device: &Device) -> Self {
        Self::new(dimensions, device)
    }

    fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        let images = Tensor::<4>::zeros([samples, dimensions.channels, dimensions.image, dimensions.image], device);
        cross_entropy(self.logits(images))
    }
}
