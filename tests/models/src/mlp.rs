//! A multilayer perceptron.

use burn::{
    module::Module,
    nn::{Linear, LinearConfig},
    tensor::{Device, Tensor, activation::relu},
};

use gpu_tuned_core::workload;

use crate::cross_entropy;

/// The model's spec in core.
pub fn spec(widths: &[usize]) -> workload::Mlp {
    workload::Mlp { widths: widths.iter().map(|&width| width as u64).collect() }
}

/// Dense layers with activations between them.
#[derive(Module, Debug)]
pub struct Mlp {
    layers: Vec<Linear>,
}

impl Mlp {
    /// A model with random weights; `widths` runs from the input's to the number of classes.
    pub fn new(widths: &[usize], device: &Device) -> Self {
        let layer = |pair: &[usize]| LinearConfig::new(pair[0], pair[1]).init(device);
        Self { layers: widths.windows(2).map(layer).collect() }
    }

    /// The loss over some samples.
    pub fn loss(&self, widths: &[usize], samples: usize, device: &Device) -> Tensor<1> {
        let mut hidden = Tensor::<2>::zeros([samples, widths[0]], device);
        for (index, layer) in self.layers.iter().enumerate() {
            hidden = if index == 0 { hidden } else { relu(hidden) };
            hidden = layer.forward(hidden);
        }
        cross_entropy(hidden)
    }
}
