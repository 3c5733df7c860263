//! Two wider convolutions with batch normalization and three dense layers, after `examples/mnist/src/model.rs` of Burn (MIT
//! or Apache-2.0).

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{MaxPool2d, MaxPool2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Dropout, DropoutConfig, Gelu, Linear, LinearConfig};
use burn::tensor::{Device, Tensor};

const CHANNELS: usize = 64;
const POOLED: usize = CHANNELS * 5 * 5;
const HIDDEN: usize = 128;

/// The network.
#[derive(Module, Debug)]
pub struct Model {
    blocks: Vec<Block>,
    dense: Vec<Linear>,
    output: Linear,
    dropout: Dropout,
    activation: Gelu,
}

#[derive(Module, Debug)]
struct Block {
    convolution: Conv2d,
    norm: BatchNorm,
    activation: Gelu,
    pool: MaxPool2d,
}

impl Model {
    /// A network with random weights.
    pub fn new(device: &Device) -> Self {
        let dense = |inputs, outputs| LinearConfig::new(inputs, outputs).init(device);
        Self {
            blocks: [1, CHANNELS].map(|inputs| Block::new(inputs, device)).into(),
            dense: vec![dense(POOLED, HIDDEN), dense(HIDDEN, HIDDEN)],
            output: dense(HIDDEN, 10),
            dropout: DropoutConfig::new(0.25).init(),
            activation: Gelu::new(),
        }
    }

    /// Logits `[samples, 10]` of images `[samples, 28, 28]`.
    pub fn forward(&self, images: Tensor<3>) -> Tensor<2> {
        let samples = images.dims()[0];
        let convolved = self.blocks.iter().fold(images.unsqueeze_dim(1), |input, block| block.forward(input));
        let hidden = self.dense.iter().fold(convolved.reshape([samples, POOLED]), |input, dense| {
            self.dropout.forward(self.activation.forward(dense.forward(input)))
        });
        self.output.forward(hidden)
    }
}

impl Block {
    fn new(inputs: usize, device: &Device) -> Self {
        Self {
            convolution: Conv2dConfig::new([inputs, CHANNELS], [3, 3]).init(device),
            norm: BatchNormConfig::new(CHANNELS).init(device),
            activation: Gelu::new(),
            pool: MaxPool2dConfig::new([2, 2]).with_strides([2, 2]).init(),
        }
    }

    fn forward(&self, input: Tensor<4>) -> Tensor<4> {
        self.pool.forward(self.activation.forward(self.norm.forward(self.convolution.forward(input))))
    }
}
