mod convolution;
mod costs;
mod layout;

use serde::{Deserialize, Serialize};

pub(super) use convolution::{Convolution, NormKind};

use crate::dims::{choices, schema};

schema! {
    /// The dimensions of a convolutional classifier: a stem, stages of blocks, pooling, dense layers.
    ///
    /// By default the stages after the first halve the image. Convolutions have no bias; each has a norm with two parameters a
    /// channel, and an activation. A list with a number for each stage may have one number for all.
    pub struct Convnet {
        /// Side of the square input image in pixels.
        image: u64, Count(1..=16_384), "side of the square input image in pixels";
        /// Classes.
        classes: u64, Count(1..=10_000_000), "classes";
        /// Stages of `[channels, blocks]`.
        stages: Vec<Stage>, Stages, "stages of [channels, blocks]";
        /// Structure of a block.
        block: Block = Block::Plain, Choice(&Block::CHOICES), "structure of a block (default plain)";
        /// Channels of the input image.
        channels: u64 = 3, Count(1..=16_384), "channels of the input image (default 3)";
        /// Strides of the stages; 1 for the first and 2 for the others when empty, with `max_pooling` 2 for all.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        strides: Vec<u64> = Vec::new(), Counts(1..=64), "strides of the stages (default 1, then 2; 2 with `max_pooling`)";
        /// Kernel sizes of the stages, except for convolutions 1x1; 3 when empty.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        kernels: Vec<u64> = Vec::new(), Counts(1..=64), "kernel sizes of the stages (default 3)";
        /// Factors by which inverted blocks widen their input, for each stage; 6 when empty.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        expand: Vec<u64> = Vec::new(), Counts(1..=64), "widening in inverted blocks, for each stage (default 6)";
        /// Channels of an inverted block's input for each one of its squeeze-and-excitation; none when absent.
        squeeze?: u64, Count(1..=1024), "input channels for each channel of squeeze-and-excitation (default: none)";
        /// True if a max pooling ends each stage that has a stride, in place of the convolutions' stride (VGG).
        max_pooling: bool = false, Flag, "strides by a max pooling at the end of a stage, as in VGG (default false)";
        /// True if convolutions keep the size of the image.
        padding: bool = true, Flag, "convolutions keep the size of the image (default true)";
        /// True if convolutions have biases.
        bias: bool = false, Flag, "biases of the convolutions (default false)";
        /// True if each convolution has a norm.
        norm: bool = true, Flag, "a norm after each convolution (default true)";
        /// The activation after convolutions.
        activation: Activation = Activation::Relu, Choice(&Activation::CHOICES), "activation (default relu)";
        /// Channels of a last convolution 1x1 before the pooling; none when absent.
        last_channels?: u64, Count(1..=1 << 20), "channels of a last convolution 1x1 (default: none)";
        /// Side of the image after the pooling that precedes the dense layers.
        pooled: u64 = 1, Count(1..=1024), "side of the image before the dense layers (VGG: 7; default 1)";
        /// Widths of dense layers before the classes.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        dense: Vec<u64> = Vec::new(), Counts(1..=1 << 20), "widths of dense layers before the classes (default: none)";
        /// Channels of the stem's convolution; the width of the first stage's blocks when absent.
        stem_channels?: u64, Count(1..=16_384), "channels of the stem's convolution (default: as the first stage)";
        /// Kernel size of the stem's convolution; 0 for no stem.
        stem_kernel: u64 = 0, Count(0..=64), "kernel size of the stem's convolution (default 0: no stem)";
        /// Factor by which the stem shrinks the image. Even factors from 4 on include a max pooling by 2.
        stem_stride: u64 = 1, Count(1..=64), "factor by which the stem shrinks the image (default 1)";
        /// True if the norms use statistics of the micro-batch (BatchNorm).
        batch_statistics: bool = false, Flag, "BatchNorm as the norm (default false)";
    }
}

choices! {
    /// Structure of a block.
    #[derive(Default)]
    pub enum Block: "block", "workload::Block" {
        /// A convolution 3x3.
        #[default]
        Plain = "plain",
        /// ResNet's basic block: two convolutions 3x3 and a shortcut, with a convolution 1x1 where the shape changes.
        Basic = "basic",
        /// ResNet's bottleneck: convolutions 1x1, 3x3 and 1x1, the first two with a quarter of the channels, and a shortcut.
        Bottleneck = "bottleneck",
        /// `MobileNet`'s: a depthwise convolution 3x3, and a convolution 1x1.
        Separable = "separable",
        /// `MobileNetV2`'s inverted residual: a convolution 1x1 that widens, a depthwise convolution 3x3, a convolution 1x1
        /// without activation, and a shortcut where the shape does not change.
        Inverted = "inverted",
    }
}

/// Blocks of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 2]", into = "[u64; 2]")]
pub struct Stage {
    /// Channels of each block's output.
    pub channels: u64,
    /// Blocks.
    pub blocks: u64,
}

choices! {
    /// An activation after convolutions.
    #[derive(Default)]
    pub enum Activation: "activation", "workload::Activation" {
        /// The positive part.
        #[default]
        Relu = "relu",
        /// The input times its sigmoid (swish).
        Silu = "silu",
    }
}

impl From<[u64; 2]> for Stage {
    fn from([channels, blocks]: [u64; 2]) -> Self {
        Self { channels, blocks }
    }
}

impl From<Stage> for [u64; 2] {
    fn from(stage: Stage) -> Self {
        [stage.channels, stage.blocks]
    }
}
