//! CUDA graphs for steps that measurements take, on one batch that does not change.

use std::ops::Range;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Device;

use super::{GraphStatus, Graphs};
use crate::loss::{Loss, StepWeight};
use crate::micro_batch::MicroBatch;
use crate::mixed::{Factor, LossScale};
use crate::timing::StepTimer;
use crate::train::accumulation::MicroBatchGradients;
use crate::train::step_failure::StepFailure;

/// Micro-steps on one batch, recorded and replayed as by a [`Trainer`](crate::train::Trainer) with CUDA graphs. The batch is
/// part of the recording, and not copied.
pub struct FixedBatchGraphs<M>(Graphs<M, ()>);

/// Number of samples of a batch that stays where it is.
#[derive(Clone)]
struct Samples(usize);

impl MicroBatch for Samples {
    fn len(&self) -> usize {
        self.0
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        Self(samples.len())
    }

    fn on_device(self, _: &Device) -> Self {
        self
    }

    fn has_arrived(&self) -> bool {
        true
    }

    fn bytes(&self, _: &Device) -> usize {
        0
    }

    fn store(self, _: Option<Self>) -> Option<Self> {
        Some(self)
    }
}

impl<M: Module> FixedBatchGraphs<M> {
    /// Graphs on a device with autodiff.
    pub fn new(device: &Device) -> Self {
        let mut graphs = Graphs::new(device.clone());
        graphs.switch_on();
        Self(graphs)
    }

    /// Begins a step in micro-batches of so many samples.
    pub fn begin_step(&mut self, samples: usize) {
        self.0.begin_step(samples);
    }

    /// Gradients of a micro-batch, multiplied by the loss scale, and by `share` where the loss has no weight; and their factor
    /// in a sum.
    ///
    /// # Errors
    ///
    /// The message of an out-of-memory error, or of a loss that cannot be minimised.
    pub fn gradients(
        &mut self,
        model: &M,
        samples: usize,
        (share, scale): (f64, &LossScale),
        loss: &dyn Fn(&M) -> Loss,
    ) -> Result<(GradientsParams, Factor), String> {
        let timer = StepTimer::default();
        let work = |model: &M, _: Samples, factors: super::Factors<'_>| {
            MicroBatchGradients::compute(|| loss(model), model, factors, false, &timer)
        };
        let result = self.0.differentiate(model, Samples(samples), (share, scale), &work);
        let result = result.map_err(StepFailure::into_message)?;
        let factor = StepWeight::factor(result.weight.as_ref(), scale.value().recip());
        Ok((result.gradients, factor))
    }

    /// Copies the running statistics of replays to the model, as after the last micro-batch of a step.
    ///
    /// # Errors
    ///
    /// The message of an out-of-memory error.
    pub fn complete(&mut self, model: &M) -> Result<(), String> {
        self.0.hand_back(model).map_err(|failure| failure.message)
    }

    /// Use of graphs, with the reason if they were refused.
    pub const fn status(&self) -> &GraphStatus {
        self.0.status()
    }
}

#[cfg(test)]
mod tests {
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::{Device, Tensor};

    use super::FixedBatchGraphs;
    use crate::mixed::LossScale;
    use crate::train::GraphStatus;

    #[test]
    fn gradients_are_those_of_the_share_and_a_device_without_graphs_is_the_reason() {
        let device = Device::flex().autodiff();
        let model = LinearConfig::new(2, 1).with_bias(false).init(&device);
        let batch = Tensor::<2>::from_floats([[1.0, 3.0], [3.0, 5.0]], &device);
        let mut graphs = FixedBatchGraphs::new(&device);
        for step in 0..10 {
            graphs.begin_step(2);
            let loss = |model: &Linear| model.forward(batch.clone()).mean().into();
            let (gradients, _) =
                graphs.gradients(&model, 2, (0.5, &LossScale::none()), &loss).expect("there is memory");
            graphs.complete(&model).expect("there is memory");
            let gradient = gradients.get::<2>(model.weight.id).expect("a gradient").into_data();
            assert_eq!(gradient.try_to_vec::<f32>().expect("f32"), [1.0, 2.0], "step {step}");
        }
        let GraphStatus::Refused { because } = graphs.status() else { panic!("a CPU has none") };
        assert_eq!(because, "graph capture is not supported by this backend");
    }
}
