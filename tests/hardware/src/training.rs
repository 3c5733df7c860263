//! Optimizer steps.

use anyhow::{Context, ensure};
use burn::{
    module::{Module, ModuleVisitor, Param},
    optim::{AdamWConfig, GradientsAccumulator, GradientsParams, ModuleOptimizer},
    tensor::{Device, FloatDType, Tensor},
};

use crate::{
    mode::Mode,
    network::{Batch, Fill, Network},
};

const LEARNING_RATE: f64 = 1e-4;

/// A fresh model, its optimizer, and its micro-batch.
pub struct Training {
    network: Network,
    optimizer: ModuleOptimizer,
    batch: Batch,
    accumulate: u32,
    loss: Option<Tensor<1>>,
}

impl Training {
    /// A new model with `samples` in a micro-batch; `device` is without autodiff.
    pub fn new(mode: Mode, samples: usize, fill: Fill, device: &Device) -> Self {
        device.seed(0);
        Self {
            batch: mode.model.batch(samples, fill, device),
            network: mode.model.network(&mode.training(device)),
            optimizer: AdamWConfig::new().init(),
            accumulate: mode.accumulate,
            loss: None,
        }
    }

    /// With another micro-batch, as large.
    pub(crate) fn on(self, batch: Batch) -> Self {
        Self { batch, ..self }
    }

    /// Sets the number of micro-batches in an optimizer step.
    pub(crate) fn accumulating(self, micro_batches: u32) -> Self {
        Self { accumulate: micro_batches, ..self }
    }

    /// Micro-batches in an optimizer step.
    pub(crate) fn micro_batches(&self) -> u32 {
        self.accumulate
    }

    /// Takes `steps` more optimizer steps.
    #[must_use]
    pub fn steps(self, steps: usize) -> Self {
        (0..steps).fold(self, |training, _| training.step())
    }

    /// After one optimizer step more.
    fn step(mut self) -> Self {
        let gradients = self.gradients();
        let network = self.optimizer.step(LEARNING_RATE, self.network, gradients);
        Self { network, ..self }
    }

    fn gradients(&mut self) -> GradientsParams {
        if self.accumulate == 1 {
            return self.backward(true);
        }
        let mut accumulator = GradientsAccumulator::new();
        for micro_batch in 1..=self.accumulate {
            let gradients = self.backward(micro_batch == self.accumulate);
            accumulator.accumulate(&self.network, gradients);
        }
        accumulator.grads()
    }

    fn backward(&mut self, last: bool) -> GradientsParams {
        let mut loss = self.network.loss(self.batch.clone());
        if self.accumulate > 1 {
            loss = loss / f64::from(self.accumulate);
        }
        if last {
            self.loss = Some(loss.clone().inner());
        }
        GradientsParams::from_grads(loss.backward(), &self.network)
    }

    /// Reads the last loss, as a mean, and a number that depends on every parameter. Only a read detects an
    /// out-of-memory error.
    pub(crate) fn check(&self) -> anyhow::Result<f32> {
        let mut sum = Sum(None);
        self.network.visit(&mut sum);
        let sum = sum.0.context("the model has no parameters")?.try_into_scalar::<f32>()?;
        let loss = self.loss.clone().context("there was no step")? * f64::from(self.accumulate);
        let loss = loss.cast(FloatDType::F32).try_into_scalar::<f32>()?;
        ensure!(sum.is_finite() && loss.is_finite(), "the loss is {loss}, and the parameters add up to {sum}");
        Ok(loss)
    }
}

struct Sum(Option<Tensor<1>>);

impl ModuleVisitor for Sum {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let sum = param.val().inner().sum().cast(FloatDType::F32);
        self.0 = Some(match self.0.take() {
            Some(before) => before + sum,
            None => sum,
        });
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::Training;
    use crate::{
        mode::{Mode, Precision},
        network::{Fill, Model},
    };

    #[test]
    fn steps_lower_the_loss() {
        for (accumulate, checkpointing) in [(1, false), (2, true)] {
            let mode = Mode { model: Model::Lstm, precision: Precision::F32, checkpointing, accumulate };
            let begun = Training::new(mode, 2, Fill::Random, &Device::flex()).steps(1);
            let first = begun.check().expect("a loss");
            let later = begun.steps(4).check().expect("a loss");
            assert!(later < first, "{later} after {first}");
        }
    }
}
