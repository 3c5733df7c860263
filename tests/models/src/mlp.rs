//! A multilayer perceptron.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{Device, Tensor, activation::relu},
};
use gpu_tuned_core::workload;

use crate::{Network, cross_entropy, sizes};

/// Dense layers with activations between them.
#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    /// Layers from the width of the input to the number of classes.
    pub(crate) fn of_widths(widths: &[u64], device: &Device) -> Self {
        let layer = |pair: &[u64; 2]| {
            let [inputs, outputs] = sizes(*pair);
            LinearConfig::new(inputs, outputs).init(device)
        };
        Self { layers: widths.array_windows().map(layer).collect() }
    }

    pub(crate) fn forward(&self, input: Tensor<2>) -> Tensor<2> {
        let mut hidden = input;
        for (index, layer) in self.layers.iter().enumerate() {
            hidden = if index == 0 { hidden } else { relu(hidden) };
            hidden = layer.forward(hidden);
        }
        hidden
    }
}

impl Network for Mlp {
    type Dimensions = workload::Mlp;

    fn new(dimensions: &workload::Mlp, device: &Device) -> Self {
        Self::of_widths(&dimensions.widths, device)
    }

    fn loss(&self, dimensions: &workload::Mlp, samples: usize, device: &Device) -> Tensor<1> {
        cross_entropy(self.forward(Tensor::zeros([samples, dimensions.widths[0] as usize], device)))
    }
}
