use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Tensor, TensorReadError};
use gpu_tuned_train::mixed::{Factor, LossScale, Master};
use gpu_tuned_train::train::{FixedBatchGraphs, GraphStatus, ModelWeights, accumulate, in_parameter_types, witness};
use serde::{Deserialize, Serialize};

use super::Subject;
use super::subject::{Optimizer, Pass};

/// Keeps the values of all models finite. Results are not used.
const LEARNING_RATE: f64 = 1e-6;

/// Loss scale of measured steps in place of a trainer's own. The kernels are the same, and gradients stay finite in
/// fp16 from the first step. No step is skipped here.
const SCALE: f64 = 2.0;

/// Composition of an optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Step {
    /// Samples in a micro-batch.
    pub batch: usize,
    /// Micro-batches whose gradients are added up.
    pub micro_batches: usize,
    /// True if the backward pass recomputes activations.
    pub checkpointing: bool,
    /// True if micro-steps are replayed as CUDA graphs.
    pub cuda_graphs: bool,
}

impl Step {
    /// The step with micro-batches that are replayed as CUDA graphs, or not.
    #[cfg(any(feature = "cuda", test))]
    pub(super) const fn with_graphs(self, cuda_graphs: bool) -> Self {
        Self { cuda_graphs, ..self }
    }

    /// The device on which such steps are trained.
    pub(super) fn device(self, device: &Device) -> Device {
        let device = device.clone().autodiff();
        if self.checkpointing { device.gradient_checkpointing() } else { device }
    }
}

impl core::fmt::Display for Step {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "batch {}", self.batch)?;
        if self.micro_batches > 1 {
            write!(f, ", {} micro-batches", self.micro_batches)?;
        }
        if self.checkpointing {
            f.write_str(", checkpointed")?;
        }
        if self.cuda_graphs { f.write_str(", CUDA graphs") } else { Ok(()) }
    }
}

/// A throwaway model in training.
pub(super) struct Training<'s, 'a, M, B> {
    subject: &'s Subject<'a, M, B>,
    /// `None` only while the optimizer updates them.
    weights: Option<ModelWeights<M>>,
    /// In mixed precision.
    scale: Option<LossScale>,
    optimizer: Optimizer<M>,
    batch: B,
    samples: usize,
    graphs: Option<FixedBatchGraphs<M>>,
    /// Device and samples of the next batch.
    #[cfg(feature = "cuda")]
    device: Device,
}

impl<'s, 'a, M: Module, B: Clone> Training<'s, 'a, M, B> {
    pub(super) fn new(subject: &'s Subject<'a, M, B>, step: Step, device: &Device) -> Self {
        let device = step.device(device);
        let (model, optimizer) = subject.begin(&device);
        let weights = match subject.half {
            None => ModelWeights::Plain(model),
            Some(half) => {
                ModelWeights::mixed(Master::new(model, half).unwrap_or_else(|error| subject.fail_not_ready(&error)))
            }
        };
        let scale = subject.half.map(|half| LossScale::for_half(half).with_init_scale(SCALE));
        Self {
            batch: subject.batch(step.batch, &device),
            samples: step.batch,
            graphs: step.cuda_graphs.then(|| FixedBatchGraphs::new(&device)),
            subject,
            weights: Some(weights),
            scale,
            optimizer,
            #[cfg(feature = "cuda")]
            device,
        }
    }

    fn weights(&self) -> &ModelWeights<M> {
        self.weights.as_ref().expect("BUG: an update puts the weights back")
    }

    /// Makes a batch for the next step while the last one is there, as in training: it comes to lie where the last step left
    /// room.
    #[cfg(feature = "cuda")]
    pub(super) fn next_batch(&mut self) {
        self.batch = self.subject.batch(self.samples, &self.device);
    }

    /// Takes an optimizer step of so many micro-batches.
    pub(super) fn step(&mut self, micro_batches: usize) {
        let gradients = self.gradients(micro_batches);
        self.optimize(gradients);
    }

    /// The gradients of a step of so many micro-batches.
    ///
    /// # Panics
    ///
    /// If memory runs out in a step with CUDA graphs, as without.
    pub(super) fn gradients(&mut self, micro_batches: usize) -> GradientsParams {
        if let Some(graphs) = &mut self.graphs {
            graphs.begin_step(self.samples);
        }
        let sum = (0..micro_batches).fold(GradientsParams::new(), |sum, _| {
            let gradients = self.micro_step(micro_batches);
            self.added(sum, gradients, micro_batches)
        });
        if let (Some(graphs), Some(weights)) = (&mut self.graphs, &self.weights) {
            graphs.complete(weights.model()).unwrap_or_else(|message| panic!("{message}"));
        }
        sum
    }

    /// The gradients of one of so many micro-batches and their factor in the sum, with CUDA graphs where the step has them.
    ///
    /// # Panics
    ///
    /// If memory runs out in a step with CUDA graphs, as without.
    fn micro_step(&mut self, micro_batches: usize) -> (GradientsParams, Factor) {
        let (Some(graphs), Pass::Loss(loss)) = (&mut self.graphs, self.subject.pass()) else {
            return self.backward(micro_batches, || ());
        };
        let weights = self.weights.as_ref().expect("BUG: an update puts the weights back");
        let none = LossScale::none();
        let factors = (1.0 / micro_batches as f64, self.scale.as_ref().unwrap_or(&none));
        let mean = |model: &M| loss(model, self.batch.clone());
        let gradients = graphs.gradients(weights.model(), self.samples, factors, &mean);
        gradients.unwrap_or_else(|message| panic!("{message}"))
    }

    /// Use of CUDA graphs, in steps that have them.
    pub(super) fn graph_status(&self) -> Option<&GraphStatus> {
        self.graphs.as_ref().map(FixedBatchGraphs::status)
    }

    /// Applies the optimizer to the gradients.
    pub(super) fn optimize(&mut self, gradients: GradientsParams) {
        let step = |model| {
            let gradients = in_parameter_types(gradients, &model);
            self.optimizer.step(LEARNING_RATE, model, gradients)
        };
        self.weights = self.weights.take().map(|weights| match weights {
            ModelWeights::Plain(model) => ModelWeights::Plain(step(model)),
            ModelWeights::Mixed { master, copy } => {
                // Its memory is free for the optimizer.
                drop(copy);
                ModelWeights::mixed(master.update(step))
            }
        });
    }

    /// The gradients of a micro-batch that is all of a step. `between` is called between the passes, where there is a place
    /// for it.
    pub(super) fn passes(&self, between: impl FnOnce()) -> GradientsParams {
        self.added(GradientsParams::new(), self.backward(1, between), 1)
    }

    /// As the model computes them, of a micro-batch that is one of so many.
    fn backward(&self, micro_batches: usize, between: impl FnOnce()) -> (GradientsParams, Factor) {
        let (pass, scale) = (self.subject.pass(), self.scale.as_ref());
        pass.gradients(self.weights().model(), self.batch.clone(), micro_batches, scale, between)
    }

    /// The sum of so many micro-batches, in the type in which a trainer sums them.
    fn added(
        &self,
        sum: GradientsParams,
        (gradients, factor): (GradientsParams, Factor),
        micro_batches: usize,
    ) -> GradientsParams {
        let weights = self.weights();
        let widens = weights.is_mixed() || micro_batches > 1;
        let sum = accumulate(weights.model(), sum, gradients, &factor, widens);
        sum.unwrap_or_else(|error| self.subject.fail_not_ready(&error))
    }

    /// Calls `observe` between the forward and the backward pass of a micro-batch; `None` if they are not separate.
    #[cfg(any(feature = "cuda", feature = "counting-allocator"))]
    pub(super) fn after_forward<T>(&self, observe: impl FnOnce() -> T) -> Option<T> {
        self.subject.pass().after_forward(self.weights().model(), self.batch.clone(), observe)
    }

    /// Reads the loss or a weight, which depends on all steps before, to detect an out-of-memory error. Returns true for a
    /// finite value.
    pub(super) fn check(&self) -> Result<bool, TensorReadError> {
        let value = match self.subject.pass() {
            Pass::Loss(loss) => {
                let (loss, _) = loss(self.weights().model(), self.batch.clone()).into_parts();
                self.subject.check_loss(&loss);
                let value = loss.clone().inner();
                drop(loss.backward());
                Some(value)
            }
            Pass::Whole(_) => witness(self.weights().model(), |_| true),
        };
        let read = |value: Tensor<1>| value.cast(FloatDType::F32).try_into_scalar::<f32>();
        value.map_or(Ok(true), |value| read(value).map(f32::is_finite))
    }
}

#[cfg(test)]
mod tests {
    use burn::module::Param;
    use burn::optim::SgdConfig;
    use burn::tensor::{DType, Device, Tensor};
    use gpu_tuned_train::mixed::{Half, in_f32};

    use super::{Step, Training};
    use crate::measure::Subject;

    /// Factors of half the smallest fp16 number: the gradient vanishes unless the loss is scaled.
    const SMALL: [f32; 2] = [1.0 / 8192.0, 1.0 / 4096.0];

    #[test]
    fn gradients_in_16_bits_are_scaled_where_a_trainer_scales_them() {
        let subject = |half| {
            Subject::new(
                |device| Param::from_tensor(Tensor::<1>::ones([3], (device, DType::F32))),
                || SgdConfig::new().init(),
                |_, _| (),
                |weight: &Param<Tensor<1>>, ()| in_f32(weight.val().mul_scalar(SMALL[0]).mul_scalar(SMALL[1])).sum(),
            )
            .mixed(half)
        };
        for half in [Half::F16, Half::Bf16] {
            let subject = subject(half);
            let step = Step { batch: 1, micro_batches: 1, checkpointing: false, cuda_graphs: false };
            let mut training = Training::new(&subject, step, &Device::flex());
            for gradients in [training.gradients(1), training.passes(|| ())] {
                let gradient = gradients.get::<1>(training.weights().model().id).expect("a gradient").into_data();
                let right = [SMALL[0] * SMALL[1]; 3];
                assert_eq!(gradient.try_to_vec::<f32>().expect("f32"), right, "{half:?}");
            }
        }
    }
}
