//! The network: residual blocks of convolutions with group normalization.
//!
//! Group normalization treats each sample alone, so splitting a batch does not change the results. Batch
//! normalization would change them.
//!
//! # Costs
//!
//! Figures for `gpu-tuned.toml`, for the default network. Bytes were counted by an allocator around Burn 0.22.1 on
//! the CPU, as the peak through the backward pass at a micro-batch of 64. Result: 1884.3 KiB a sample, 845.7 KiB with
//! activation checkpointing. A forward pass takes 13.2 MFLOP a sample (10 blocks of 1.31, and the stem), a backward
//! pass twice that.

use burn::{
    config::Config,
    module::Module,
    nn::{
        GroupNorm, GroupNormConfig, Linear, LinearConfig, PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
        interpolate::{Interpolate2d, Interpolate2dConfig, InterpolateMode},
        pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig},
    },
    tensor::{Device, Tensor, activation::relu},
};

use crate::data::CLASSES;

const POOLED_SIDE: usize = 4;

/// The shape of the network.
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// Width and height, in pixels, to which images are enlarged.
    #[config(default = 16)]
    pub side: usize,
    /// Channels of every convolution.
    #[config(default = 16)]
    pub channels: usize,
    /// Groups of channels that are normalized together; must divide the channels.
    #[config(default = 4)]
    pub groups: usize,
    /// Residual blocks of two convolutions, 3x3 and 1x1.
    #[config(default = 10)]
    pub blocks: usize,
}

impl ModelConfig {
    /// Creates the network with random weights.
    pub fn init(&self, device: &Device) -> Model {
        let mode = InterpolateMode::Linear;
        Model {
            enlarge: Interpolate2dConfig::new().with_output_size(Some([self.side; 2])).with_mode(mode).init(),
            stem: NormedConv::new(1, 3, self, device),
            blocks: (0..self.blocks).map(|_| Block::new(self, device)).collect(),
            norm: GroupNormConfig::new(self.groups, self.channels).init(device),
            pool: AdaptiveAvgPool2dConfig::new([POOLED_SIDE; 2]).init(),
            head: LinearConfig::new(self.channels * POOLED_SIDE * POOLED_SIDE, CLASSES).init(device),
        }
    }
}

/// The network.
#[derive(Module, Debug)]
pub struct Model {
    enlarge: Interpolate2d,
    stem: NormedConv,
    blocks: Vec<Block>,
    norm: GroupNorm,
    pool: AdaptiveAvgPool2d,
    head: Linear,
}

impl Model {
    /// Scores of every digit, `[samples, 10]`, for images `[samples, 1, 8, 8]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut hidden = self.stem.forward(self.enlarge.forward(images));
        for block in &self.blocks {
            hidden = block.forward(hidden);
        }
        let hidden = relu(self.norm.forward(hidden));
        self.head.forward(self.pool.forward(hidden).flatten(1, 3))
    }
}

#[derive(Module, Debug)]
struct Block {
    first: NormedConv,
    second: NormedConv,
}

impl Block {
    fn new(config: &ModelConfig, device: &Device) -> Self {
        let conv = |kernel| NormedConv::new(config.channels, kernel, config, device);
        Self { first: conv(3), second: conv(1) }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        let hidden = relu(self.first.forward(input.clone()));
        self.second.forward(hidden) + input
    }
}

/// A convolution, normalized before and after.
#[derive(Module, Debug)]
struct NormedConv {
    before: GroupNorm,
    conv: Conv2d,
    after: GroupNorm,
}

impl NormedConv {
    fn new(channels_in: usize, kernel: usize, config: &ModelConfig, device: &Device) -> Self {
        let norm = |channels: usize| GroupNormConfig::new(config.groups.min(channels), channels).init(device);
        // The following normalization has a bias.
        let conv = Conv2dConfig::new([channels_in, config.channels], [kernel; 2]).with_bias(false);
        Self {
            before: norm(channels_in),
            conv: conv.with_padding(PaddingConfig2d::Same).init(device),
            after: norm(config.channels),
        }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        self.after.forward(self.conv.forward(self.before.forward(input)))
    }
}
