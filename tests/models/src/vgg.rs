//! Convolutional classifiers without norms: VGG's stages with pooling and dense layers, and residual blocks.

use burn::{
    module::Module,
    tensor::{Device, Tensor, activation::relu},
};
use gpu_tuned::nn::{
    conv::Conv2d,
    pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig, MaxPool2d, MaxPool2dConfig},
};
use gpu_tuned_core::workload::{self, Stage};

use crate::{Network, conv, cross_entropy, mlp::Mlp, sizes};

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

/// A classifier of images. Strides of residual blocks shrink the image; else a pooling ends each stage.
#[derive(Module, Debug)]
pub struct Vgg {
    stages: Vec<Vec<Block>>,
    pool: MaxPool2d,
    last_pool: AdaptiveAvgPool2d,
    dense: Mlp,
}

impl Network for Vgg {
    type Dimensions = workload::Convnet;

    fn new(dimensions: &workload::Convnet, device: &Device) -> Self {
        let residual = !dimensions.max_pooling;
        let mut inputs = 3;
        let mut stage = |(index, stage): (usize, &Stage)| {
            let [channels, blocks] = sizes([stage.channels, stage.blocks]);
            let block = |block| {
                let stride = if residual && index > 0 && block == 0 { 2 } else { 1 };
                let channels = [std::mem::replace(&mut inputs, channels), channels];
                Block::new(residual, channels, stride, device)
            };
            (0..blocks).map(block).collect()
        };
        let stages = dimensions.stages.iter().enumerate().map(&mut stage).collect();
        let features = inputs as u64 * dimensions.pooled.pow(2);
        let widths: Vec<_> = [features].iter().chain(&dimensions.dense).chain([&dimensions.classes]).copied().collect();
        Self {
            stages,
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
            last_pool: AdaptiveAvgPool2dConfig::new([dimensions.pooled as usize; 2]).init(),
            dense: Mlp::of_widths(&widths, device),
        }
    }

    fn loss(&self, dimensions: &workload::Convnet, samples: usize, device: &Device) -> Tensor<1> {
        let side = dimensions.image as usize;
        let mut hidden = Tensor::<4>::zeros([samples, 3, side, side], device);
        for stage in &self.stages {
            for block in stage {
                hidden = block.forward(hidden);
            }
            if dimensions.max_pooling {
                hidden = self.pool.forward(hidden);
            }
        }
        cross_entropy(self.dense.forward(self.last_pool.forward(hidden).flatten(1, 3)))
    }
}
