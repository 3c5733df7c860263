//! Trainer for a manual training loop.

use std::any::Any;
use std::error::Error;
use std::sync::{Mutex, PoisonError};

use burn::module::{Module, ParamId};
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::workload::Workload;
use gpu_tuned_observe::log::warn_user;

use super::accumulation::MicroBatchGradients;
use super::checks::{StepSizeCheck, check_halves, check_parameters, check_statistics};
use super::graph::{Factors, SharedGraphs};
use super::optimizer_files::StateSummary;
use super::outcome::{Step, StepError, TrainerError};
use super::ranks::GradientSums;
use super::ranks::sharding::check_state;
use super::recipe::{NotReady, Recipe};
use super::stepper::Stepper;
use super::update::Weights;
use crate::loss::{Loss, StepWeight};
use crate::micro_batch::MicroBatch;
use crate::mixed::{Half, LossScale, Master, MixedError, StepOutcome, in_parameter_types, with_values};
use crate::out_of_memory::OutOfMemory;

/// Steps that compare a loss with those of its halves. Losses of a model that has not learned yet may all be equal.
const HALVES_CHECKED_IN: [u64; 4] = [1, 10, 100, 1000];

/// Trainer that takes optimizer steps in micro-batches that fit the device. A step is applied completely or not at all.
///
/// `Session::trainer` returns one.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
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
/// After an out-of-memory error, the step is retried with smaller micro-batches. The samples of the step stay the same, and larger
/// micro-batches are tried again later. The loss is therefore a function that can be called again.
///
/// During the update, parameters and optimizer state are allocated twice, in the memory that the forward pass has freed. If
/// they are larger, they are updated group by group. If the optimizer runs out of memory, the groups shrink instead of the
/// micro-batches, down to single parameters, and grow again later.
///
/// # Waits
///
/// The host waits for the device once at the end of a step, and once more for each parameter group. A trainer of a
/// [rank](super::Rank) also waits for its own gradients before the exchange. It waits for the exchange, too: in the first
/// steps, with clipping, with sharded state, and if some parameter has no gradient.
pub struct Trainer<M> {
    pub(super) trained: ModelAndOptimizer<M>,
    scale: LossScale,
    /// Scale from a checkpoint, for a later switch to mixed precision.
    saved_scale: Option<LossScale>,
    pub(super) stepper: Stepper,
    /// Measurement in place of the first step.
    first_step: Option<TakeFirstStep<M>>,
    step_size: Option<StepSizeCheck>,
    accepts_half_loss: bool,
}

impl<M: Module> Trainer<M> {
    /// A trainer of `model` on `device`, which has autodiff. Cuts steps into micro-batches of at most `micro_batch` samples.
    pub fn new(model: M, optimizer: ModuleOptimizer, device: Device, micro_batch: usize) -> Self {
        Self::with_stepper(model, optimizer, Stepper::new(device, micro_batch))
    }

    pub(super) fn with_stepper(model: M, optimizer: ModuleOptimizer, stepper: Stepper) -> Self {
        let graphs = SharedGraphs::new(&stepper.device);
        let trained = ModelAndOptimizer { weights: ModelWeights::Plain(model), optimizer, learning_rate: 0.0, graphs };
        let (scale, saved_scale) = (LossScale::none(), None);
        let (first_step, step_size) = (None, None);
        Self { trained, scale, saved_scale, stepper, first_step, step_size, accepts_half_loss: false }
    }

    /// A trainer of planned steps. `first_step` measures the first step in place of taking it. With several ranks, the values
    /// of the model are those of the first rank.
    ///
    /// # Errors
    ///
    /// See [`TrainerError`].
    #[doc(hidden)]
    pub fn planned(
        model: M,
        optimizer: ModuleOptimizer,
        recipe: &Recipe,
        plan: &Plan,
        workload: &Workload,
        first_step: Option<TakeFirstStep<M>>,
    ) -> Result<Self, TrainerError> {
        check_parameters(workload.trained_parameters(), &model);
        check_statistics(workload, &plan.schedule, &model);
        let trainer = Self::from_recipe(model, optimizer, recipe)?;
        Ok(Self { first_step, step_size: Some(StepSizeCheck::new(&plan.schedule)), ..trainer })
    }

    /// A trainer with the precision, the graphs and the other ranks of a recipe.
    pub(super) fn from_recipe(model: M, optimizer: ModuleOptimizer, recipe: &Recipe) -> Result<Self, TrainerError> {
        if recipe.stepper.rank.is_none()
            && let Ok(Some(state)) = StateSummary::new(&optimizer)
        {
            check_state(&state.parameters, None, &model)?;
        }
        let (model, optimizer) = match &recipe.stepper.rank {
            Some(rank) => {
                let model = rank.replica(model)?;
                let optimizer = rank.own_state(optimizer, &model)?;
                (model, optimizer)
            }
            None => (model, optimizer),
        };
        let trainer = Self::with_stepper(model, optimizer, recipe.stepper());
        let trainer = if recipe.cuda_graphs { trainer.cuda_graphs() } else { trainer };
        let Some(half) = recipe.half else { return Ok(trainer) };
        let mixed = trainer.mixed(half);
        Ok(mixed.inspect_err(|error| recipe.stepper.rank.iter().for_each(|rank| rank.fail(error)))?)
    }

    /// Computes in 16 bits from now on, with weights and optimizer in fp32: see [`mixed`](crate::mixed). A session in mixed
    /// precision does it by itself. The device's default float type must be the 16-bit one.
    ///
    /// # Errors
    ///
    /// [`MixedError::HalfStatistics`] for a model with running statistics that are not fp32.
    pub fn mixed(mut self, half: Half) -> Result<Self, MixedError> {
        let master = Master::new(self.trained.weights.into_master(), half);
        let master = master.inspect_err(|error| self.stepper.not_ready.report(error))?;
        self.trained.weights = ModelWeights::mixed(master);
        self.scale = self.saved_scale.take().unwrap_or_else(|| LossScale::for_half(half));
        Ok(self)
    }

    /// Handles a model that is not ready for 16 bits.
    #[doc(hidden)]
    #[must_use]
    pub fn when_not_ready(mut self, not_ready: NotReady) -> Self {
        self.stepper.not_ready = not_ready;
        self
    }

    /// Accepts losses in 16 bits in mixed precision, which are errors otherwise: their digits are two or three, and gradients
    /// begin from rounded logits.
    #[must_use]
    pub fn accept_half_loss(self) -> Self {
        Self { accepts_half_loss: true, ..self }
    }

    /// Leaves out the check that a loss is the mean of its halves' losses.
    #[doc(hidden)]
    #[must_use]
    pub fn without_check_of_halves(mut self) -> Self {
        self.stepper.checks_halves = false;
        self
    }

    /// Continues with a saved loss scale. Used in [mixed precision](Self::mixed) only.
    #[must_use]
    pub fn with_loss_scale(self, scale: LossScale) -> Self {
        if self.trained.weights.is_mixed() { Self { scale, ..self } } else { Self { saved_scale: Some(scale), ..self } }
    }

    /// Clips the gradients of a step to a global norm of at most `norm`.
    #[must_use]
    pub fn clip_norm(mut self, norm: f32) -> Self {
        self.stepper.rank.iter().for_each(|rank| rank.inputs.record("clip norm", norm.to_string()));
        self.stepper.max_norm = Some(norm);
        self
    }

    /// Begins the sums of gradients over [ranks](super::Rank) in the backward pass of the last micro-batch, beside it, in place of
    /// behind it. The sums are the same. Links that are slower than NVLink gain most: see `docs/ranks.md`.
    ///
    /// In that micro-batch the loss gets a model whose parameters are no leaves of the graph. `is_require_grad` is false for them:
    /// do not use this with a loss that asks parameters whether they are trained. A [step](Self::step) panics if the loss calls
    /// `backward`, or `require_grad` on a parameter.
    #[must_use]
    pub fn overlap_sums(mut self) -> Self {
        self.stepper.overlaps_sums = true;
        self
    }

    /// Counts NaN, infinite and zero gradients of each parameter, in the first step and in every `every`th after it. The counts
    /// are in [`Step::gradient_health`]; see [`gradient_health`](super::gradient_health()). Each of several
    /// [ranks](super::Rank) counts the gradients of its own samples.
    ///
    /// A count takes about ten kernels a parameter, a copy of the largest gradient, and one more wait for the device.
    #[must_use]
    pub fn gradient_health(mut self, every: u64) -> Self {
        self.stepper.health_every = Some(every);
        self
    }

    /// Tries larger micro-batches and parameter groups again after so many steps without an out-of-memory error. By default after
    /// 100 and 10 steps; the interval doubles with every failed trial.
    #[must_use]
    pub fn grow_after(mut self, steps: u32) -> Self {
        self.stepper.micro_batch_size = self.stepper.micro_batch_size.with_patience(steps);
        self.stepper.group_bytes = self.stepper.group_bytes.with_patience(steps);
        self
    }

    /// Allocates at most so many bytes of parameters and optimizer state twice during an update.
    #[must_use]
    pub fn hold_twice(mut self, limit: Bytes) -> Self {
        self.stepper.group_bytes = self.stepper.group_bytes.with_planned(limit.0);
        self
    }

    /// Model that computes, with the parameters of the last step: for evaluation in this process.
    pub fn model(&self) -> &M {
        self.trained.weights.model()
    }

    /// Model that the optimizer updates: for checkpoints. In mixed precision its weights are fp32.
    pub fn master(&self) -> &M {
        self.trained.weights.master()
    }

    /// Loss scale, for checkpoints; 1 except in fp16.
    pub fn loss_scale(&self) -> &LossScale {
        &self.scale
    }

    /// Optimizer with the state of the last step. Checkpoints: see [`save_optimizer`](Self::save_optimizer).
    ///
    /// With [sharded state](super::Rank::shard_optimizer), it has the state of this rank's part only, and warns once.
    pub fn optimizer(&self) -> &ModuleOptimizer {
        self.warn_of_part();
        &self.trained.optimizer
    }

    /// Current samples in a micro-batch: as planned, or fewer after an out-of-memory error.
    pub fn micro_batch(&self) -> usize {
        self.stepper.micro_batch()
    }

    /// Returns the [`master`](Self::master) and the [`optimizer`](Self::optimizer).
    pub fn into_parts(self) -> (M, ModuleOptimizer) {
        self.warn_of_part();
        (self.trained.weights.into_master(), self.trained.optimizer)
    }

    /// Takes one optimizer step over all samples of `batch`.
    ///
    /// `loss` computes the mean over the samples of a micro-batch, of shape `[1]`, and may be called again for the same samples.
    /// The step minimises the mean over the whole batch, however it is cut. A mean over something else, such as targets that
    /// are not padding, is returned with its weight: `(mean, number_of_targets)`. See [`Loss`].
    ///
    /// Under `cargo gpu-tuned measure` and `bench`, the first step of a session's trainer is measured in place of being taken,
    /// and the process ends, unless the program calls `Session::measure_if_asked`. Under `cargo gpu-tuned warm`, the first step
    /// is an error: a kernel cache archive needs that call.
    ///
    /// # Errors
    ///
    /// [`StepError`]. An out-of-memory is an error only if nothing smaller is left to try.
    ///
    /// # Panics
    ///
    /// If `loss` panics for another reason than an out-of-memory error.
    #[expect(clippy::needless_pass_by_value, reason = "a step uses its batch up")]
    pub fn step<B: MicroBatch, L: Into<Loss>>(
        &mut self,
        learning_rate: f64,
        batch: B,
        loss: impl Fn(&M, B) -> L + Sync,
    ) -> Result<Step, StepError> {
        self.check(learning_rate, &batch).inspect_err(|error| self.stepper.end(error))?;
        if let Some(measure) = self.first_step.take() {
            self.measure_first_step(measure, &batch, &|model, batch| loss(model, batch).into())?;
        }
        if let Some(warning) = self.step_size.as_mut().and_then(|check| check.warning(batch.len())) {
            warn_user(&warning);
        }
        self.trained.learning_rate = learning_rate;
        // No borrow of the weights lives as long as the step, so updated parameters can be released.
        let (is_mixed, scale) = (self.trained.weights.is_mixed(), &self.scale);
        let timer = self.stepper.timer.clone();
        let refuses_half = is_mixed && !self.accepts_half_loss;
        let graphs = self.trained.graphs.clone();
        graphs.lock().begin_step(self.stepper.micro_batch());
        let part = |model: &M, micro: B, share: f64, sums: Option<&GradientSums>| {
            // Gradients in 16 bits get their share in the sum, in fp32: small ones times a small share are zero in f16.
            let in_loss = if is_mixed { 1.0 } else { share };
            let in_sum = |weight: Option<&StepWeight>| if is_mixed && weight.is_none() { share } else { 1.0 };
            let number = |weight: Option<&StepWeight>| in_sum(weight) * scale.value().recip();
            let weighed = |weight: Option<&StepWeight>| {
                if let Some(sums) = sums {
                    sums.expect(weight, number(weight));
                }
            };
            let differentiate = |model: &M, micro: B, factors: Factors<'_>| {
                let loss = || loss(model, micro).into();
                MicroBatchGradients::compute(loss, model, factors, refuses_half, &timer, weighed)
            };
            let mut found = graphs.lock().differentiate(model, micro, (in_loss, scale), &differentiate)?;
            let number = number(found.weight.as_ref());
            if is_mixed && found.weight.is_none() {
                found.loss = found.loss.map(|loss| loss.mul_scalar(share));
            }
            Ok((found, number))
        };
        self.stepper.skips.scales_loss = scale.value() > 1.0;
        let stepped = self.stepper.step(&mut self.trained, learning_rate != 0.0, &batch, part);
        let (step, _) = stepped.inspect_err(|error| {
            if let StepError::Mixed(reason) = error {
                self.stepper.not_ready.report(reason);
            }
            self.stepper.end(error);
        })?;
        if self.stepper.checks_halves && HALVES_CHECKED_IN.contains(&self.stepper.steps) && !self.stepper.whole_batch {
            self.stepper.checks_halves = !self.warns_of_halves(&batch, &loss);
        }
        let loss_scale = self.scale.value();
        // A step whose losses have no weight says nothing about their scale.
        if step.applied || !step.gradient_norm.is_finite() {
            let _: StepOutcome = self.scale.update(step.applied);
        }
        let step = Step { loss_scale, ..step };
        timer.end(step.samples, &self.stepper.device, |record| {
            step.fill(record, true);
            record.slowest_rank = self.stepper.rank.as_ref().and_then(|rank| rank.peers.slowest());
        });
        Ok(step)
    }

    /// Checks the arguments of a step.
    fn check<B: MicroBatch>(&self, learning_rate: f64, batch: &B) -> Result<(), StepError> {
        batch.check()?;
        if let Some(norm) = self.stepper.max_norm.filter(|norm| norm.is_nan() || *norm <= 0.0) {
            return Err(StepError::ClipNorm { norm });
        }
        if learning_rate.is_finite() {
            return Ok(());
        }
        Err(StepError::LearningRate { step: self.stepper.steps + 1, rate: learning_rate })
    }

    /// Checks on the CPU that the loss of a micro-batch is the mean of its halves' losses. On a GPU, kernels would be tuned for
    /// other shapes. Returns true if it warned.
    fn warns_of_halves<B: MicroBatch, L: Into<Loss>>(&self, batch: &B, loss: &impl Fn(&M, B) -> L) -> bool {
        let device = self.stepper.device.clone().without_autodiff();
        if device != Device::flex() {
            return false;
        }
        let model = self.model().valid();
        let samples = self.stepper.micro_batch().max(2).min(batch.len());
        let on_device = |part: B| loss(&model, part.on_device(&device)).into();
        check_halves(&batch.narrow(0..samples), self.trained.weights.is_mixed(), on_device)
    }

    /// Passes the step to a measurement.
    fn measure_first_step<B: MicroBatch>(
        &self,
        measure: TakeFirstStep<M>,
        batch: &B,
        loss: &(impl Fn(&M, B) -> Loss + Sync),
    ) -> Result<(), StepError> {
        let samples = batch.len();
        let batch = Mutex::new(batch.clone());
        let cut = |samples, device: &Device| {
            let batch = batch.lock().unwrap_or_else(PoisonError::into_inner).clone();
            AnyBatch::new(batch.narrow(0..samples).on_device(device))
        };
        let step = FirstStep {
            model: self.master(),
            optimizer: &self.trained.optimizer,
            samples,
            batch: &cut,
            loss: &|model, batch| loss(model, batch.into_inner()),
            accepts_half_loss: self.accepts_half_loss,
        };
        measure(step).map_err(StepError::Measure)
    }
}

/// Model and optimizer of a manual loop.
#[derive(Clone)]
pub(super) struct ModelAndOptimizer<M> {
    pub weights: ModelWeights<M>,
    pub optimizer: ModuleOptimizer,
    pub learning_rate: f64,
    /// Recorded micro-steps, which all clones share.
    pub graphs: SharedGraphs<M, ()>,
}

/// Weights in one type, or in two for mixed precision.
#[derive(Clone)]
pub enum ModelWeights<M> {
    /// Weights in one type.
    Plain(M),
    /// Weights in mixed precision.
    Mixed {
        /// fp32 weights.
        master: Master<M>,
        /// 16-bit copy of the master.
        copy: M,
    },
}

impl<M: Module> ModelWeights<M> {
    /// Weights in mixed precision.
    pub fn mixed(master: Master<M>) -> Self {
        let copy = master.compute_copy();
        Self::Mixed { master, copy }
    }

    /// Model that computes.
    pub fn model(&self) -> &M {
        match self {
            Self::Plain(model) | Self::Mixed { copy: model, .. } => model,
        }
    }

    /// Model that the optimizer updates.
    pub(super) fn master(&self) -> &M {
        match self {
            Self::Plain(model) => model,
            Self::Mixed { master, .. } => master.model(),
        }
    }

    fn into_master(self) -> M {
        match self {
            Self::Plain(model) => model,
            Self::Mixed { master, .. } => master.into_model(),
        }
    }

    fn updated(&self, step: impl FnOnce(M) -> M, group: Option<&[ParamId]>) -> Self {
        match self {
            Self::Plain(model) => Self::Plain(step(model.clone())),
            Self::Mixed { master, copy } => {
                let master = master.clone().update(step);
                let copy = master.refreshed(copy.clone(), group);
                Self::Mixed { master, copy }
            }
        }
    }

    /// Returns true for mixed precision.
    pub const fn is_mixed(&self) -> bool {
        matches!(self, Self::Mixed { .. })
    }
}

impl<M: Module> Weights for ModelAndOptimizer<M> {
    type Model = M;

    fn model(&self) -> M {
        self.weights.model().clone()
    }

    fn master(&self) -> M {
        self.weights.master().clone()
    }

    fn updated(&self, gradients: GradientsParams, group: Option<&[ParamId]>) -> Self {
        let mut optimizer = self.optimizer.clone();
        let step = |model| {
            let gradients = in_parameter_types(gradients, &model);
            optimizer.step(self.learning_rate, model, gradients)
        };
        let weights = self.weights.updated(step, group);
        Self { weights, optimizer, learning_rate: self.learning_rate, graphs: self.graphs.clone() }
    }

    fn replaced(&self, values: GradientsParams) -> Self {
        let weights = self.weights.updated(|model| with_values(model, values), None);
        Self { weights, ..self.clone() }
    }

    fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    fn is_mixed(&self) -> bool {
        self.weights.is_mixed()
    }

    fn differentiates(&self) -> bool {
        !self.graphs.lock().are_on()
    }

    fn complete(&self) -> Result<(), OutOfMemory> {
        self.graphs.lock().hand_back(self.weights.model())
    }

    fn release(&self) -> bool {
        self.graphs.lock().release()
    }
}

/// Takes a trainer's first step in its place. Returns only with an error: a measurement ends the process.
pub type TakeFirstStep<M> = Box<dyn FnOnce(FirstStep<'_, M>) -> Result<(), Box<dyn Error + Send + Sync>> + Send>;

/// Step that a trainer was about to take.
pub struct FirstStep<'s, M> {
    /// Model as the optimizer updates it.
    pub model: &'s M,
    /// Optimizer.
    pub optimizer: &'s ModuleOptimizer,
    /// Samples of the step.
    pub samples: usize,
    /// Cuts the first samples of the batch, and moves them to a device.
    pub batch: &'s (dyn Fn(usize, &Device) -> AnyBatch + Send + Sync),
    /// Loss of a micro-batch.
    pub loss: &'s (dyn Fn(&M, AnyBatch) -> Loss + Send + Sync),
    /// True if the loss may be in 16 bits in mixed precision.
    pub accepts_half_loss: bool,
}

/// Micro-batch of any type.
pub struct AnyBatch {
    value: Box<dyn Any>,
    clone: fn(&dyn Any) -> Box<dyn Any>,
}

impl AnyBatch {
    pub(super) fn new<B: MicroBatch>(batch: B) -> Self {
        Self { value: Box::new(batch), clone: |batch| Box::new(downcast::<B>(batch).clone()) }
    }

    pub(super) fn into_inner<B: MicroBatch>(self) -> B {
        *self.value.downcast().unwrap_or_else(|_| unreachable!("BUG: a step has batches of one type"))
    }
}

fn downcast<B: MicroBatch>(batch: &dyn Any) -> &B {
    batch.downcast_ref().unwrap_or_else(|| unreachable!("BUG: a clone is of the type of its original"))
}

impl Clone for AnyBatch {
    fn clone(&self) -> Self {
        Self { value: (self.clone)(&*self.value), clone: self.clone }
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, Param};
    use burn::nn::LinearConfig;
    use burn::optim::{GradientsParams, SgdConfig};
    use burn::tensor::{DType, Device, Tensor};

    use super::{ModelAndOptimizer, ModelWeights, SharedGraphs, Weights};
    use crate::mixed::{Factor, Half, Master, accumulate};
    use crate::train::tests::parameters;

    #[test]
    fn frozen_weights_are_cast_once() {
        let device = Device::flex().autodiff();
        let (frozen, trained) =
            (LinearConfig::new(3, 3).init(&device).no_grad(), LinearConfig::new(3, 1).init(&device));
        let master = Master::new((frozen, trained), Half::Bf16).unwrap();
        let mut copy = master.compute_copy();
        // Cast again, it would be as the master has it.
        let marked = Tensor::full([3, 3], 7.0, (&device, DType::BF16));
        copy.0.weight = Param::initialized(copy.0.weight.id, marked.set_require_grad(false));
        let weights = ModelWeights::Mixed { master, copy };
        let optimizer = SgdConfig::new().init();
        let weights = ModelAndOptimizer { weights, optimizer, learning_rate: 0.5, graphs: SharedGraphs::new(&device) };

        let model = weights.model();
        let input = Tensor::<2>::ones([2, 3], (&device, DType::BF16));
        let loss = crate::mixed::in_f32(model.1.forward(model.0.forward(input))).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let gradients = accumulate(&model, GradientsParams::new(), gradients, &Factor::Number(1.0), true).unwrap();
        let new = weights.updated(gradients, None);
        assert_eq!(parameters(&new.model().0.weight), [7.0; 9]);
        assert_ne!(parameters(&new.model().1), parameters(&model.1));
        let ModelWeights::Mixed { master, copy } = new.weights else { panic!("it is mixed") };
        assert_eq!(parameters(&master.compute_copy().1), parameters(&copy.1));
    }
}
