//! Depthwise networks: `MobileNet`'s separable convolutions, and inverted residuals with or without squeeze-and-excitation.

use burn::{
    module::Module,
    tensor::{
        Device, Tensor,
        activation::{relu, sigmoid, silu},
    },
};
use gpu_tuned::mixed::InF32;
use gpu_tuned::nn::{
    BatchNorm, BatchNormConfig, Linear, LinearConfig,
    conv::{Conv2d, Conv2dConfig},
    pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig},
};
use gpu_tuned_core::workload::{Activation, Block, Convnet};

use crate::{Network, cross_entropy, same, sizes};

fn activate(dimensions: &Convnet, input: Tensor<4>) -> Tensor<4> {
    if dimensions.activation == Activation::Silu { silu(input) } else { relu(input) }
}

/// A convolution without bias, and BatchNorm.
#[derive(Module, Debug)]
struct Conv {
    conv: Conv2d,
    norm: InF32<BatchNorm>,
}

impl Conv {
    fn new(channels: [usize; 2], kernel: usize, stride: usize, groups: usize, device: &Device) -> Self {
        let conv = same(channels, kernel, stride).with_groups(groups).with_bias(false);
        Self { conv: conv.init(device), norm: BatchNormConfig::new(channels[1]).init(device).into() }
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
    fn new(dimensions: &Convnet, channels: [usize; 2], expand: usize, stride: usize, device: &Device) -> Self {
        let [inputs, outputs] = channels;
        let wide = inputs * expand;
        let one = |channels| Conv2dConfig::new(channels, [1, 1]).init(device);
        let squeeze = |ratio: u64| {
            let squeezed = (inputs / ratio as usize).max(1);
            Squeeze { squeeze: one([wide, squeezed]), excite: one([squeezed, wide]) }
        };
        Self {
            widen: (expand > 1).then(|| Conv::new([inputs, wide], 1, 1, 1, device)),
            depthwise: Conv::new([wide, wide], dimensions.kernels[0] as usize, stride, wide, device),
            squeeze: dimensions.squeeze.map(squeeze),
            project: Conv::new([wide, outputs], 1, 1, 1, device),
        }
    }

    fn forward(&self, dimensions: &Convnet, input: Tensor<4>) -> Tensor<4> {
        let mut hidden = input.clone();
        if let Some(widen) = &self.widen {
            hidden = activate(dimensions, widen.forward(hidden));
        }
        hidden = activate(dimensions, self.depthwise.forward(hidden));
        if let Some(Squeeze { squeeze, excite }) = &self.squeeze {
            let means = hidden.clone().mean_dim(3).mean_dim(2);
            let scales = sigmoid(excite.forward(activate(dimensions, squeeze.forward(means))));
            hidden = hidden * scales;
        }
        let hidden = self.project.forward(hidden);
        match dimensions.block {
            Block::Separable => activate(dimensions, hidden),
            _ if input.dims() == hidden.dims() => hidden + input,
            _ => hidden,
        }
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

impl Network for Mobile {
    type Dimensions = Convnet;

    fn new(dimensions: &Convnet, device: &Device) -> Self {
        let channels =
            [dimensions.stem_channels, dimensions.last_channels].map(|count| count.expect("BUG: it is given"));
        let ([stem, last], classes) = (sizes(channels), dimensions.classes as usize);
        let mut inputs = stem;
        let mut blocks = Vec::new();
        for (index, stage) in dimensions.stages.iter().enumerate() {
            let expand = if dimensions.block == Block::Separable { 1 } else { dimensions.expand[index] };
            let [channels, count, expand] = sizes([stage.channels, stage.blocks, expand]);
            for block in 0..count {
                let stride = if index > 0 && block == 0 { 2 } else { 1 };
                blocks.push(MobileBlock::new(dimensions, [inputs, channels], expand, stride, device));
                inputs = channels;
            }
        }
        Self {
            stem: Conv::new([3, stem], 3, 2, 1, device),
            blocks,
            last: Conv::new([inputs, last], 1, 1, 1, device),
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            head: LinearConfig::new(last, classes).init(device),
        }
    }

    fn loss(&self, dimensions: &Convnet, samples: usize, device: &Device) -> Tensor<1> {
        let side = dimensions.image as usize;
        cross_entropy(self.logits(dimensions, Tensor::zeros([samples, 3, side, side], device)))
    }
}

impl Mobile {
    /// Logits for some images, `[images, classes]`.
    pub fn logits(&self, dimensions: &Convnet, images: Tensor<4>) -> Tensor<2> {
        let mut hidden = activate(dimensions, self.stem.forward(images));
        for block in &self.blocks {
            hidden = block.forward(dimensions, hidden);
        }
        hidden = activate(dimensions, self.last.forward(hidden));
        self.head.forward(self.pool.forward(hidden).flatten(1, 3))
    }
}
