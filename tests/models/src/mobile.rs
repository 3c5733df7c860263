//! Depthwise networks: `MobileNet`'s separable convolutions, and inverted residuals with or without squeeze-and-excitation.

use burn::{
    module::Module,
    nn::{
        BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig},
    },
    tensor::{
        Device, Tensor,
        activation::{relu, sigmoid, silu},
    },
};
use gpu_tuned_core::workload::{self, Activation, Block};

use crate::{cross_entropy, stages};

/// The dimensions of a depthwise network. Stages after the first halve the image.
#[derive(Clone, Debug)]
pub struct Dimensions {
    /// Side of the square image in pixels.
    pub image: usize,
    /// Channels of the stem, whose convolution 3x3 halves the image.
    pub stem: usize,
    /// Stages of channels and blocks.
    pub stages: Vec<[usize; 2]>,
    /// Widening within blocks of each stage; separable blocks without it.
    pub expand: Option<Vec<usize>>,
    /// Size of the depthwise kernels.
    pub kernel: usize,
    /// Input channels for each squeezed one.
    pub squeeze: Option<usize>,
    /// True for `SiLU`, false for `ReLU`.
    pub silu: bool,
    /// Channels of the last convolution.
    pub last: usize,
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
            block: if self.expand.is_some() { Block::Inverted } else { Block::Separable },
            expand: self.expand.iter().flatten().map(|expand| *expand as u64).collect(),
            kernels: vec![self.kernel as u64],
            squeeze: self.squeeze.map(|squeeze| squeeze as u64),
            activation: if self.silu { Activation::Silu } else { Activation::Relu },
            stem_kernel: 3,
            stem_stride: 2,
            stem_channels: Some(self.stem as u64),
            last_channels: Some(self.last as u64),
            batch_statistics: true,
            ..workload::Convnet::default()
        }
    }

    fn activate(&self, input: Tensor<4>) -> Tensor<4> {
        if self.silu { silu(input) } else { relu(input) }
    }
}

/// A convolution without bias, and BatchNorm.
#[derive(Module, Debug)]
struct Conv {
    conv: Conv2d,
    norm: BatchNorm,
}

impl Conv {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, groups: usize, device: &Device) -> Self {
        let padding = kernel / 2;
        let conv = Conv2dConfig::new(channels, [kernel; 2]).with_stride([stride; 2]).with_groups(groups);
        let conv = conv.with_padding(PaddingConfig2d::Explicit(padding, padding, padding, padding));
        Self { conv: conv.with_bias(false).init(device), norm: BatchNormConfig::new(channels[1]).init(device) }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        self.norm.forward(self.conv.forward(input))
    }
}

/// Scales of the channels, from their means.
#[derive(Module, Debug)]
struct Squeeze {
    squeeze: Conv2d,
    excite: Conv2d,
}

#[derive(Module, Debug)]
struct MobileBlock {
    widen: Option<Conv>,
    depthwise: Conv,
    squeeze: Option<Squeeze>,
    project: Conv,
}

impl MobileBlock {
    fn new(
        dimensions: &Dimensions,
        [inputs, outputs]: [usize; 2],
        expand: usize,
        stride: usize,
        device: &Device,
    ) -> Self {
        let wide = inputs * expand;
        let one = |channels| Conv2dConfig::new(channels, [1, 1]).init(device);
        let squeeze = |ratio: usize| {
            let squeezed = (inputs / ratio).max(1);
            Squeeze { squeeze: one([wide, squeezed]), excite: one([squeezed, wide]) }
        };
        Self {
            widen: (expand > 1).then(|| Conv::new([inputs, wide], 1, 1, 1, device)),
            depthwise: Conv::new([wide, wide], dimensions.kernel, stride, wide, device),
            squeeze: dimensions.squeeze.map(squeeze),
            project: Conv::new([wide, outputs], 1, 1, 1, device),
        }
    }

    fn forward(&self, dimensions: &Dimensions, input: Tensor<4>) -> Tensor<4> {
        let mut hidden = input.clone();
        if let Some(widen) = &self.widen {
            hidden = dimensions.activate(widen.forward(hidden));
        }
        hidden = dimensions.activate(self.depthwise.forward(hidden));
        if let Some(Squeeze { squeeze, excite }) = &self.squeeze {
            let means = hidden.clone().mean_dim(3).mean_dim(2);
            let scales = sigmoid(excite.forward(dimensions.activate(squeeze.forward(means))));
            hidden = hidden * scales;
        }
        let hidden = self.project.forward(hidden);
        if dimensions.expand.is_none() {
            return dimensions.activate(hidden);
        }
        if input.dims() == hidden.dims() { hidden + input } else { hidden }
    }
}

/// A stem, stages of blocks, a convolution 1x1, pooling over the image, one dense layer.
#[derive(Module, Debug)]
pub struct Mobile {
    stem: Conv,
    blocks: Vec<MobileBlock>,
    last: Conv,
    pool: AdaptiveAvgPool2d,
    head: Linear,
}

impl Mobile {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let mut inputs = dimensions.stem;
        let mut blocks = Vec::new();
        for (index, [channels, count]) in dimensions.stages.iter().copied().enumerate() {
            let expand = dimensions.expand.as_ref().map_or(1, |expand| expand[index]);
            for block in 0..count {
                let stride = if index > 0 && block == 0 { 2 } else { 1 };
                blocks.push(MobileBlock::new(dimensions, [inputs, channels], expand, stride, device));
                inputs = channels;
            }
        }
        Self {
            stem: Conv::new([3, dimensions.stem], 3, 2, 1, device),
            blocks,
            last: Conv::new([inputs, dimensions.last], 1, 1, 1, device),
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            head: LinearConfig::new(dimensions.last, dimensions.classes).init(device),
        }
    }

    /// The loss over some images.
    pub fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        let images = Tensor::<4>::zeros([samples, 3, dimensions.image, dimensions.image], device);
        let mut hidden = dimensions.activate(self.stem.forward(images));
        for block in &self.blocks {
            hidden = block.forward(dimensions, hidden);
        }
        hidden = dimensions.activate(self.last.forward(hidden));
        cross_entropy(self.head.forward(self.pool.forward(hidden).flatten(1, 3)))
    }
}
