use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::Module;
use burn::nn::Linear;
use burn::tensor::{Device, Tensor};
use burn::train::{InferenceStep, RegressionOutput, TrainOutput, TrainStep};

use crate::{OUT_OF_MEMORY, constant};

/// Linear layers that learn the sum of their inputs.
#[derive(Module, Debug)]
pub struct Regression {
    /// The layers, one after the other.
    pub layers: Vec<Linear>,
    /// A layer that the loss does not depend on.
    pub unused: Option<Linear>,
    /// Training step that fails without memory, counted down to 1.
    #[module(skip)]
    pub failing: Arc<AtomicUsize>,
    /// Samples of all training steps.
    #[module(skip)]
    pub seen: Arc<AtomicUsize>,
}

impl Regression {
    /// Makes layers between these widths.
    pub fn new(widths: &[usize], device: &Device) -> Self {
        let layers = widths.windows(2).map(|pair| constant(pair[0], pair[1], 0.2, device)).collect();
        Self { layers, unused: None, failing: Arc::default(), seen: Arc::default() }
    }

    /// Adds a layer that the loss does not depend on.
    #[must_use]
    pub fn with_unused(self, device: &Device) -> Self {
        Self { unused: Some(constant(1, 1, 0.2, device)), ..self }
    }

    /// Returns the mean squared distance to the sum of each row.
    pub fn loss(&self, input: Tensor<2>) -> RegressionOutput {
        let target = input.clone().sum_dim(1);
        let output = self.layers.iter().fold(input, |input, layer| layer.forward(input));
        RegressionOutput::new((output.clone() - target.clone()).square().mean(), output, target)
    }
}

impl TrainStep for Regression {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, input: Tensor<2>) -> TrainOutput<RegressionOutput> {
        let left = self.failing.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        assert!(left != Ok(1), "{OUT_OF_MEMORY}");
        self.seen.fetch_add(input.dims()[0], Ordering::Relaxed);
        let item = self.loss(input);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Regression {
    type Input = Tensor<2>;
    type Output = RegressionOutput;

    fn step(&self, input: Tensor<2>) -> RegressionOutput {
        self.loss(input)
    }
}
