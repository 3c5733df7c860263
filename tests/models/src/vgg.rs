//! Convolutional classifiers without norms: VGG's stages with pooling and dense layers, and residual blocks.

use burn::{
    module::Module,
    nn::{
        Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig},
    },
    tensor::{Device, Tensor, activation::relu},
};
use gpu_tuned_core::workload;

use crate::{cross_entropy, stages};

/// The dimensions of a classifier without norms.
#[derive(Clone, Debug)]
pub struct Dimensions {
    /// Side of the square image in pixels.
    pub image: usize,
    /// Stages of channels and blocks.
    pub stages: Vec<[usize; 2]>,
    /// True for residual blocks of two convolutions, whose strides shrink the image. False for single convolutions, where
    /// a pooling ends each stage.
    pub residual: bool,
    /// Side of the image before the dense layers.
    pub pooled: usize,
    /// Widths of the dense layers before the classes.
    pub dense: Vec<usize>,
    /// Classes.
    pub classes: usize,
}

impl Dimensions {
    /// The model as core describes it.
    pub fn spec(&self) -> workload::Convnet {
        workload::Convnet {
            image: self.image as u64,
            classes: self.classes as u64,
            stages: stages(&self.stages),
            block: if self.residual { workload::Block::Basic } else { workload::Block::Plain },
            max_pooling: !self.residual,
            bias: true,
            norm: false,
            pooled: self.pooled as u64,
            dense: self.dense.iter().map(|width| *width as u64).collect(),
            ..workload::Convnet::default()
        }
    }
}

fn conv(channels: [usize; 2], kernel: usize, stride: usize, device: &Device) -> Conv2d {
    let padding = PaddingConfig2d::Explicit(kernel / 2, kernel / 2, kernel / 2, kernel / 2);
    Conv2dConfig::new(channels, [kernel; 2]).with_stride([stride; 2]).with_padding(padding).init(device)
}

#[derive(Module, Debug)]
struct Block {
    first: Conv2d,
    second: Option<Conv2d>,
    shortcut: Option<Conv2d>,
}

impl Block {
    fn new(residual: bool, channels: [usize; 2], stride: usize, device: &Device) -> Self {
        let changes = stride != 1 || channels[0] != channels[1];
        Self {
            first: conv(channels, 3, stride, device),
            second: residual.then(|| conv([channels[1]; 2], 3, 1, device)),
            shortcut: (residual && changes).then(|| conv(channels, 1, stride, device)),
        }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let hidden = relu(self.first.forward(input.clone()));
        let Some(second) = &self.second else { return hidden };
        let input = match &self.shortcut {
            Some(shortcut) => shortcut.forward(input),
            None => input,
        };
        relu(second.forward(hidden) + input)
    }
}

/// A classifier of images.
#[derive(Module, Debug)]
pub struct Vgg {
    stages: Vec<Vec<Block>>,
    pool: MaxPool2d,
    last_pool: AdaptiveAvgPool2d,
    dense: Vec<Linear>,
}

impl Vgg {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let residual = dimensions.residual;
        let mut inputs = 3;
        let mut stage = |(index, [channels, blocks]): (usize, [usize; 2])| {
            let block = |block| {
                let stride = if residual && index > 0 && block == 0 { 2 } else { 1 };
                let channels = [std::mem::replace(&mut inputs, channels), channels];
                Block::new(residual, channels, stride, device)
            };
            (0..blocks).map(block).collect()
        };
        let stages = dimensions.stages.iter().copied().enumerate().map(&mut stage).collect();
        let features = inputs * dimensions.pooled * dimensions.pooled;
        let widths: Vec<_> = [features].iter().chain(&dimensions.dense).chain([&dimensions.classes]).copied().collect();
        Self {
            stages,
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            last_pool: AdaptiveAvgPool2dConfig::new([dimensions.pooled; 2]).init(),
            dense: widths.windows(2).map(|pair| LinearConfig::new(pair[0], pair[1]).init(device)).collect(),
        }
    }

    /// The loss over some images.
    pub fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        let mut hidden = Tensor::<4>::zeros([samples, 3, dimensions.image, dimensions.image], device);
        for stage in &self.stages {
            for block in stage {
                hidden = block.forward(hidden);
            }
            if !dimensions.residual {
                hidden = self.pool.forward(hidden);
            }
        }
        let mut hidden = self.last_pool.forward(hidden).flatten::<2>(1, 3);
        for (index, dense) in self.dense.iter().enumerate() {
            hidden = if index == 0 { hidden } else { relu(hidden) };
            hidden = dense.forward(hidden);
        }
        cross_entropy(hidden)
    }
}
