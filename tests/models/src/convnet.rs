//! Convolutional classifiers: plain stages, and residual networks of basic and bottleneck blocks.

use burn::{
    module::Module,
    tensor::{Device, Tensor, activation::relu},
};

use gpu_tuned::mixed::InF32;
use gpu_tuned::nn::{
    BatchNorm, BatchNormConfig, GroupNorm, GroupNormConfig, Linear, LinearConfig, PaddingConfig2d,
    conv::Conv2d,
    pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig},
};
use gpu_tuned_core::workload::{self, ModelSpec, Stage};

use crate::{Network, cross_entropy, same};

/// The dimensions of a convolutional classifier.
#[derive(Clone, Debug)]
pub struct Dimensions {
    /// Side of the square image in pixels.
    pub image: usize,
    /// Stages of channels and blocks.
    pub stages: Vec<[usize; 2]>,
    /// Classes.
    pub classes: usize,
    /// Structure of the blocks.
    pub kind: workload::Block,
    /// True for GroupNorm with eight groups, false for BatchNorm.
    pub group_norm: bool,
    /// True for a ResNet stem: convolution 7x7 of stride 2, pooling 3x3 of stride 2.
    pub stem: bool,
}

/// A norm over channels.
#[derive(Module, Debug)]
pub enum Norm {
    /// Over the samples of the micro-batch; in fp32, as mixed precision requires.
    Batch(InF32<BatchNorm>),
    /// Over groups of channels.
    Group(GroupNorm),
}

impl Norm {
    /// The norm of the spec.
    pub fn new(group_norm: bool, channels: usize, device: &Device) -> Self {
        if group_norm {
            Self::Group(GroupNormConfig::new(8, channels).init(device))
        } else {
            Self::Batch(BatchNormConfig::new(channels).init(device).into())
        }
    }

    /// The normalized input.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        match self {
            Self::Batch(norm) => norm.forward(input),
            Self::Group(norm) => norm.forward(input),
        }
    }
}

/// A convolution without bias, and a norm.
#[derive(Module, Debug)]
pub struct NormedConv {
    conv: Conv2d,
    norm: Norm,
}

impl NormedConv {
    /// A convolution of an odd kernel that keeps the side, but for the stride.
    pub fn new(channels: [usize; 2], kernel: usize, stride: usize, group_norm: bool, device: &Device) -> Self {
        let conv = same(channels, kernel, stride).with_bias(false).init(device);
        Self { conv, norm: Norm::new(group_norm, channels[1], device) }
    }

    /// The normalized convolution.
    pub fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(input))
    }
}

#[derive(Module, Debug)]
struct Block {
    convs: Vec<NormedConv>,
    shortcut: Option<NormedConv>,
    residual: bool,
}

impl Block {
    fn new(dimensions: &Dimensions, inputs: usize, channels: usize, stride: usize, device: &Device) -> Self {
        let conv = |channels, kernel, stride| NormedConv::new(channels, kernel, stride, dimensions.group_norm, device);
        let outputs = dimensions.outputs(channels);
        let convs = match dimensions.kind {
            workload::Block::Plain => vec![conv([inputs, channels], 3, stride)],
            workload::Block::Basic => vec![conv([inputs, channels], 3, stride), conv([channels, channels], 3, 1)],
            workload::Block::Bottleneck => vec![
                conv([inputs, channels], 1, 1),
                conv([channels, channels], 3, stride),
                conv([channels, outputs], 1, 1),
            ],
            workload::Block::Separable | workload::Block::Inverted => panic!("BUG: depthwise blocks are in `mobile`"),
        };
        let residual = dimensions.kind != workload::Block::Plain;
        let changes = stride != 1 || inputs != outputs;
        Self { convs, shortcut: (residual && changes).then(|| conv([inputs, outputs], 1, stride)), residual }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let mut hidden = input.clone();
        for (index, conv) in self.convs.iter().enumerate() {
            hidden = if index == 0 { hidden } else { relu(hidden) };
            hidden = conv.forward(hidden);
        }
        if !self.residual {
            return relu(hidden);
        }
        let shortcut = match &self.shortcut {
            Some(shortcut) => shortcut.forward(input),
            None => input,
        };
        relu(hidden + shortcut)
    }
}

/// A convolutional classifier: stem, stages, pooling over the image, one dense layer.
#[derive(Module, Debug)]
pub struct Convnet {
    stem: Option<NormedConv>,
    stem_pool: MaxPool2d,
    blocks: Vec<Block>,
    pool: AdaptiveAvgPool2d,
    head: Linear,
}

impl Dimensions {
    fn outputs(&self, channels: usize) -> usize {
        if self.kind == workload::Block::Bottleneck { 4 * channels } else { channels }
    }
}

impl Convnet {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let first = dimensions.stages[0][0];
        let mut inputs = if dimensions.stem { first } else { 3 };
        let mut blocks = Vec::new();
        for (index, [channels, count]) in dimensions.stages.iter().copied().enumerate() {
            for block in 0..count {
                let stride = if index > 0 && block == 0 { 2 } else { 1 };
                blocks.push(Block::new(dimensions, inputs, channels, stride, device));
                inputs = dimensions.outputs(channels);
            }
        }
        let padding = PaddingConfig2d::Explicit(1, 1, 1, 1);
        Self {
            stem: dimensions.stem.then(|| NormedConv::new([3, first], 7, 2, dimensions.group_norm, device)),
            stem_pool: MaxPool2dConfig::new([3, 3]).with_strides([2, 2]).with_padding(padding).init(),
            blocks,
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            head: LinearConfig::new(inputs, dimensions.classes).init(device),
        }
    }

    /// Logits for some images, `[images, classes]`.
    pub fn logits(&self, images: Tensor<4>) -> Tensor<2> {
        let mut hidden = images;
        if let Some(stem) = &self.stem {
            hidden = self.stem_pool.forward(relu(stem.forward(hidden)));
        }
        for block in &self.blocks {
            hidden = block.forward(hidden);
        }
        self.head.forward(self.pool.forward(hidden).flatten(1, 3))
    }
}

/// The model as core describes it.
impl From<Dimensions> for ModelSpec {
    fn from(dimensions: Dimensions) -> Self {
        let stage =
            |&[channels, blocks]: &[usize; 2]| Stage::from([dimensions.outputs(channels) as u64, blocks as u64]);
        workload::Convnet {
            image: dimensions.image as u64,
            classes: dimensions.classes as u64,
            stages: dimensions.stages.iter().map(stage).collect(),
            block: dimensions.kind,
            channels: 3,
            stem_kernel: if dimensions.stem { 7 } else { 0 },
            stem_stride: if dimensions.stem { 4 } else { 1 },
            batch_statistics: !dimensions.group_norm,
            ..workload::Convnet::default()
        }
        .into()
    }
}

impl Network for Convnet {
    type Dimensions = Dimensions;

    fn new(dimensions: &Dimensions, device: &Device) -> Self {
        Self::new(dimensions, device)
    }

    fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        cross_entropy(self.logits(Tensor::zeros([samples, 3, dimensions.image, dimensions.image], device)))
    }
}
