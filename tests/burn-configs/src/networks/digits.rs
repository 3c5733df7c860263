//! Two convolutions and two dense layers, after `examples/guide/src/model.rs` of Burn (MIT or Apache-2.0).

use burn::config::Config;
use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig, Relu};
use burn::tensor::{Device, Tensor};

const POOLED: usize = 16 * 8 * 8;

/// The shape of the network.
#[derive(Config, Debug)]
pub struct ModelConfig {
    /// Classes.
    pub num_classes: usize,
    /// Width of the first dense layer.
    pub hidden_size: usize,
    /// Share of activations that training drops.
    #[config(default = "0.5")]
    pub dropout: f64,
}

/// The network.
#[derive(Module, Debug)]
pub struct Model {
    first: Conv2d,
    second: Conv2d,
    pool: AdaptiveAvgPool2d,
    hidden: Linear,
    output: Linear,
    dropout: Dropout,
    activation: Relu,
}

impl ModelConfig {
    /// A network with random weights.
    pub fn init(&self, device: &Device) -> Model {
        Model {
            first: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            second: Conv2dConfig::new([8, 16], [3, 3]).init(device),
            pool: AdaptiveAvgPool2dConfig::new([8, 8]).init(),
            hidden: LinearConfig::new(POOLED, self.hidden_size).init(device),
            output: LinearConfig::new(self.hidden_size, self.num_classes).init(device),
            dropout: DropoutConfig::new(self.dropout).init(),
            activation: Relu::new(),
        }
    }
}

impl Model {
    /// Logits `[samples, classes]` of images `[samples, height, width]`.
    pub fn forward(&self, images: Tensor<3>) -> Tensor<2> {
        let samples = images.dims()[0];
        let first = self.dropout.forward(self.first.forward(images.unsqueeze_dim(1)));
        let second = self.activation.forward(self.dropout.forward(self.second.forward(first)));
        let pooled = self.pool.forward(second).reshape([samples, POOLED]);
        let hidden = self.activation.forward(self.dropout.forward(self.hidden.forward(pooled)));
        self.output.forward(hidden)
    }
}
