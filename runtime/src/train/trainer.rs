use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, FloatDType, Tensor};
use gpu_tuned_core::Bytes;

use super::MicroBatch;
use super::attempt::Part;
use super::doubts::PartialSteps;
use super::failure::{Moment, watched};
use super::outcome::{Step, StepError};
use super::stepper::Stepper;
use super::weights::{Held, ModelAndOptimizer, summed};
use crate::course::Phase;
use crate::measure::Case;
use crate::mixed::{Half, LossScale, Master, MixedError, StepOutcome};
use gpu_tuned_observe::log;

/// Takes optimizer steps: each over all samples it is given, in micro-batches that fit the device, and completely or not
/// at all.
///
/// A session makes one: [`Session::trainer`](crate::Session::trainer).
///
/// ```
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::SgdConfig;
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned::train::Trainer;
///
/// let device = Device::flex().autodiff();
/// let model = LinearConfig::new(4, 1).init(&device);
/// let mut trainer = Trainer::new(model, SgdConfig::new().init(), device.clone(), 8);
/// let batch = (Tensor::<2>::ones([20, 4], &device), Tensor::<2>::zeros([20, 1], &device));
/// let step = trainer.step(0.01, batch, |model: &Linear, (input, target)| {
///     (model.forward(input) - target).powi_scalar(2).mean()
/// })?;
/// assert_eq!((step.samples, step.micro_batches), (20, 3));
/// # Ok::<(), gpu_tuned::train::StepError>(())
/// ```
///
/// # Out of memory
///
/// Wherever memory runs out, a step is thrown away and begun again with smaller micro-batches, and the samples of the step
/// stay the same; later, larger ones are tried again. That is why the loss is a function that can be called again. For
/// that the parameters and the optimizer's state are held twice while the optimizer runs, when what the forward pass
/// kept is free again; where they are larger than that, they are changed group by group. If it is the optimizer that has
/// no memory, the groups become smaller instead of the micro-batches, down to single parameters, and grow again later.
///
/// # Reading
///
/// The host waits for the device once a step, at its end, to learn whether all of it was computed; and once more for each
/// group, where parameters are changed in groups. A trainer among [ranks](super::Ranks) waits three times: for its own
/// gradients, for the norm of those of all ranks, and at the end.
pub struct Trainer<M> {
    weights: ModelAndOptimizer<M>,
    scale: LossScale,
    /// What a scale goes on from once there is one.
    saved: Option<LossScale>,
    stepper: Stepper,
    /// What is measured in place of the first step, if that is asked for.
    measured: Option<Box<Case>>,
    /// Where it is known what steps were planned.
    partial: Option<PartialSteps>,
}

impl<M: Module> Trainer<M> {
    /// A trainer of `model`, which is on `device`: one with autodiff. Steps are cut into micro-batches of at most
    /// `micro_batch` samples.
    pub fn new(model: M, optimizer: ModuleOptimizer, device: Device, micro_batch: usize) -> Self {
        Self::of(model, optimizer, Stepper::new(device, micro_batch))
    }

    pub(super) fn of(model: M, optimizer: ModuleOptimizer, stepper: Stepper) -> Self {
        let weights = ModelAndOptimizer { held: Held::Plain(model), optimizer, learning_rate: 0.0 };
        Self { weights, scale: LossScale::none(), saved: None, stepper, measured: None, partial: None }
    }

    /// Measures this in place of the first step.
    pub(super) fn measuring(self, measured: Option<Case>) -> Self {
        Self { measured: measured.map(Box::new), ..self }
    }

    /// Tells where steps are given less than was planned.
    pub(super) fn watching(self, partial: PartialSteps) -> Self {
        Self { partial: Some(partial), ..self }
    }

    /// Computes in 16 bits from now on, with the weights and all that the optimizer does in f32: see
    /// [`mixed`](crate::mixed). A session of that precision does it by itself. The device's default float type is to be the
    /// 16-bit one.
    ///
    /// # Errors
    ///
    /// [`MixedError::HalfStatistics`] for a model with running statistics that are not held in f32.
    pub fn mixed(mut self, half: Half) -> Result<Self, MixedError> {
        self.weights.held = Held::mixed(Master::new(self.weights.held.into_master(), half)?);
        self.scale = self.saved.take().unwrap_or_else(|| LossScale::for_half(half));
        Ok(self)
    }

    /// Goes on with a loss scale that was saved. It counts in [mixed precision](Self::mixed) only: in others losses are as they
    /// are.
    #[must_use]
    pub fn with_loss_scale(self, scale: LossScale) -> Self {
        if self.weights.held.is_mixed() { Self { scale, ..self } } else { Self { saved: Some(scale), ..self } }
    }

    /// Scales the gradients of a step down to a global norm of at most `norm`.
    #[must_use]
    pub fn clip_norm(mut self, norm: f32) -> Self {
        self.stepper.max_norm = Some(norm);
        self
    }

    /// Counts what gradients are made of, parameter by parameter, in the first step and in each `every`th after it: see
    /// [`gradient_health`](super::gradient_health()). What is found is in [`Step::gradient_health`]. Among
    /// [ranks](super::Ranks) each counts those of its own samples.
    ///
    /// The device counts, in some ten kernels for each parameter, and with copies of the largest gradient; the host waits
    /// for it once more in such a step.
    #[must_use]
    pub fn gradient_health(mut self, every: u64) -> Self {
        self.stepper.health_every = Some(every);
        self
    }

    /// Tries larger micro-batches, and more parameters at a time, again after so many steps without a failure; by default
    /// after 100 and 10, and longer after each trial that failed.
    #[must_use]
    pub fn grow_after(mut self, steps: u32) -> Self {
        self.stepper.pace = self.stepper.pace.with_patience(steps);
        self.stepper.twice = self.stepper.twice.with_patience(steps);
        self
    }

    /// Holds at most so many bytes of parameters and optimizer state twice while the optimizer runs.
    #[must_use]
    pub fn hold_twice(mut self, most: Bytes) -> Self {
        self.stepper.twice = self.stepper.twice.with_planned(most.0);
        self
    }

    /// The model with the parameters of the last step, as it computes: to be evaluated in this process.
    pub fn model(&self) -> &M {
        self.weights.held.model()
    }

    /// The model as the optimizer changes it: to be saved. In mixed precision its weights are f32.
    pub fn master(&self) -> &M {
        self.weights.held.master()
    }

    /// What losses are multiplied by, to be saved with a checkpoint; 1 but for f16.
    pub fn loss_scale(&self) -> &LossScale {
        &self.scale
    }

    /// The optimizer with the state of the last step, to be saved.
    pub fn optimizer(&self) -> &ModuleOptimizer {
        &self.weights.optimizer
    }

    /// Samples in a micro-batch now: as planned, or fewer after memory ran out.
    pub fn micro_batch(&self) -> usize {
        self.stepper.micro_batch()
    }

    /// The [`master`](Self::master) and the optimizer.
    pub fn into_parts(self) -> (M, ModuleOptimizer) {
        (self.weights.held.into_master(), self.weights.optimizer)
    }

    /// Takes one optimizer step over all samples of `batch`.
    ///
    /// `loss` is the mean over the samples of a micro-batch, of shape `[1]`; what is learned from is the mean over the
    /// whole batch, however it is cut. `loss` may be called again for the same samples.
    ///
    /// Under `cargo gpu-tuned measure` and `bench` the first step of a session's trainer is measured in place of being taken,
    /// unless the program has done that itself, and the process ends: see [`measure`](crate::measure). Under `cargo gpu-tuned
    /// warm` the first step is an error: a bundle takes a program that says what it trains.
    ///
    /// # Errors
    ///
    /// [`StepError`]. An out-of-memory is one only when nothing smaller is left to try.
    ///
    /// # Panics
    ///
    /// Whenever `loss` does, but for want of memory.
    #[expect(clippy::needless_pass_by_value, reason = "a step uses its batch up")]
    pub fn step<B: MicroBatch>(
        &mut self,
        learning_rate: f64,
        batch: B,
        loss: impl Fn(&M, B) -> Tensor<1> + Sync,
    ) -> Result<Step, StepError> {
        if let Some(case) = self.measured.take() {
            case.of_trainer(self.master(), &self.weights.optimizer, &batch, &loss)?;
        }
        if let Some(doubt) = self.partial.as_mut().and_then(|partial| partial.doubt(batch.len())) {
            log::warn_user(&doubt);
        }
        self.weights.learning_rate = learning_rate;
        // Nothing that lives as long as the step holds the weights: parameters that were changed are to be released.
        let (is_mixed, scale) = (self.weights.held.is_mixed(), &self.scale);
        let clock = self.stepper.clock.clone();
        let part = |model: &M, micro: B, share: f64, sum: GradientsParams| {
            let mean = || loss(model, micro).cast(FloatDType::F32).mul_scalar(share);
            let loss = clock.time(Phase::Loss, || watched(Moment::Forward, mean))?;
            let value = loss.clone().without_autodiff();
            let of_part = || GradientsParams::from_grads(scale.scale(loss).backward(), model);
            let summed = || summed(is_mixed, model, sum, of_part(), scale);
            let gradients = clock.time(Phase::Backward, || watched(Moment::Backward, summed))??;
            Ok(Part { gradients, loss: Some(value), output: () })
        };
        let stepped = self.stepper.step(&mut self.weights, learning_rate != 0.0, &batch, part);
        let (step, _) = stepped.inspect_err(|error| self.stepper.end(error))?;
        let loss_scale = self.scale.value();
        let _: StepOutcome = self.scale.update(step.applied);
        let step = Step { loss_scale, ..step };
        clock.took(&step, true, &self.stepper.device);
        Ok(step)
    }
}
