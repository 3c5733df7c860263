//! Subjects of measurements: models with their optimizer, micro-batches and passes.

use std::any::Any;
use std::sync::Arc;

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, Tensor};
use gpu_tuned_core::Precision;
use gpu_tuned_train::loss::{Loss, Weight};
use gpu_tuned_train::mixed::{Factor, Half, LossScale, MixedError};
use gpu_tuned_train::train::{NotReady, StepError, check_loss};

use super::MeasureError;

/// Subject of a measurement: functions for a model, its optimizer, a micro-batch and the loss.
///
/// Everything is created for each measurement, on new threads, and dropped afterwards. Nothing is learned: samples may
/// have any values, with the shapes of training.
///
/// ```
/// # extern crate gpu_tuned_measure as gpu_tuned;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::AdamWConfig;
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned::measure::Subject;
///
/// let subject = Subject::new(
///     |device| LinearConfig::new(8, 1).init(device),
///     || AdamWConfig::new().init(),
///     |samples, device| Tensor::<2>::zeros([samples, 8], device),
///     |model: &Linear, batch| model.forward(batch).mean(),
/// );
/// assert_eq!(subject.model(&Device::flex().autodiff()).weight.dims(), [8, 1]);
/// ```
pub struct Subject<'a, M, B> {
    parts: Arc<Parts<'a, M, B>>,
    host_batch: Option<Prepare<'a>>,
    /// 16-bit type beside fp32 weights.
    pub(super) half: Option<Half>,
    /// True if the loss may be in 16 bits.
    pub(crate) accepts_half_loss: bool,
    not_ready: NotReady,
}

/// Functions of a subject, for any precision.
struct Parts<'a, M, B> {
    begin: Begin<'a, M>,
    batch: MakeBatch<'a, B>,
    pass: Pass<'a, M, B>,
}

type Prepare<'a> = Arc<dyn Fn(usize) + Send + Sync + 'a>;
type Begin<'a, M> = Box<dyn Fn(&Device) -> (M, Optimizer<M>) + Send + Sync + 'a>;
type MakeBatch<'a, B> = Box<dyn Fn(usize, &Device) -> B + Send + Sync + 'a>;

/// Inverse of [`Half::of`].
const fn precision_of(half: Half) -> Precision {
    match half {
        Half::Bf16 => Precision::MixedBf16,
        Half::F16 => Precision::MixedF16,
    }
}

impl<'a, M: Module, B: Clone> Subject<'a, M, B> {
    /// A subject made of four functions:
    ///
    /// - `model` makes it with fresh weights on a device, which has autodiff;
    /// - `optimizer` makes the optimizer that training uses;
    /// - `batch` makes a micro-batch of so many samples for a device; a copy of it goes into every micro-step;
    /// - `loss` is a mean over the samples of a micro-batch, of shape `[1]`, or a mean with its [weight](Loss).
    pub fn new<L: Into<Loss>>(
        model: impl Fn(&Device) -> M + Send + Sync + 'a,
        optimizer: impl Fn() -> ModuleOptimizer + Send + Sync + 'a,
        batch: impl Fn(usize, &Device) -> B + Send + Sync + 'a,
        loss: impl Fn(&M, B) -> L + Send + Sync + 'a,
    ) -> Self {
        let begin = move |device: &Device| (model(device), Optimizer::Burn(optimizer()));
        let loss = move |model: &M, batch| loss(model, batch).into();
        Self::from_parts(begin, batch, Pass::Loss(Box::new(loss)))
    }

    /// A subject whose model and optimizer are made together.
    pub(super) fn from_parts(
        begin: impl Fn(&Device) -> (M, Optimizer<M>) + Send + Sync + 'a,
        batch: impl Fn(usize, &Device) -> B + Send + Sync + 'a,
        pass: Pass<'a, M, B>,
    ) -> Self {
        let parts = Parts { begin: Box::new(begin), batch: Box::new(batch), pass };
        let not_ready = NotReady::default();
        Self { parts: Arc::new(parts), host_batch: None, half: None, accepts_half_loss: false, not_ready }
    }

    /// Accepts losses in 16 bits in mixed precision, if `accepts`: see
    /// [`Trainer::accept_half_loss`](gpu_tuned_train::train::Trainer::accept_half_loss).
    #[must_use]
    pub fn accept_half_loss(self, accepts: bool) -> Self {
        Self { accepts_half_loss: accepts, ..self }
    }

    /// Trains in mixed precision: fp32 weights and optimizer, and a 16-bit copy that computes, as with
    /// [`Trainer::mixed`](gpu_tuned_train::train::Trainer::mixed). The device's default float type must be the 16-bit
    /// one. A session of that precision does it by itself; a session of another precision returns an error.
    #[must_use]
    pub fn mixed(self, half: Half) -> Self {
        Self { half: Some(half), ..self }
    }

    /// The same in the precision of a session.
    ///
    /// # Errors
    ///
    /// [`MeasureError::OtherPrecision`] for a subject with another mixed precision than the session's.
    pub(super) fn in_precision(&self, precision: Precision) -> Result<Self, MeasureError> {
        let half = Half::of(precision);
        if let Some(own) = self.half.filter(|own| Some(*own) != half) {
            return Err(MeasureError::OtherPrecision { subject: precision_of(own), session: precision });
        }
        Ok(Self { parts: Arc::clone(&self.parts), host_batch: self.host_batch.clone(), half, ..*self })
    }

    /// Handles a model that is not ready for 16 bits.
    pub(super) fn when_not_ready(self, not_ready: NotReady) -> Self {
        Self { not_ready, ..self }
    }

    /// Fails a step of a model that is not ready for 16 bits. Panics in steps are caught.
    pub(super) fn fail_not_ready(&self, error: &MixedError) -> ! {
        self.not_ready.report(error);
        panic!("{error}")
    }

    /// Fails a step whose loss cannot be minimised, or is in 16 bits in mixed precision. Panics in steps are caught.
    pub(super) fn check_loss(&self, loss: &Tensor<1>) {
        match check_loss(loss, self.half.is_some() && !self.accepts_half_loss) {
            Ok(()) => {}
            Err(StepError::Mixed(error)) => self.fail_not_ready(&error),
            Err(error) => panic!("{error}"),
        }
    }

    /// Adds what prepares so many samples in host memory, as a loader's worker does, to be timed on one core. Without it,
    /// what a sample costs the host is not measured.
    #[must_use]
    pub fn host_batch<H>(mut self, prepare: impl Fn(usize) -> H + Send + Sync + 'a) -> Self {
        self.host_batch = Some(Arc::new(move |samples| {
            std::hint::black_box(prepare(samples));
        }));
        self
    }

    /// A model with fresh weights.
    pub fn model(&self, device: &Device) -> M {
        self.begin(device).0
    }

    /// A model with fresh weights, and what trains it.
    pub(super) fn begin(&self, device: &Device) -> (M, Optimizer<M>) {
        (self.parts.begin)(device)
    }

    pub(crate) fn batch(&self, samples: usize, device: &Device) -> B {
        (self.parts.batch)(samples, device)
    }

    /// Preparation of so many samples in host memory.
    pub(super) fn preparation(&self) -> Option<&(dyn Fn(usize) + Send + Sync + 'a)> {
        self.host_batch.as_deref()
    }

    /// With and without recomputing activations, as far as the model can be had so.
    pub(super) fn checkpointing(&self) -> &'static [bool] {
        match &self.parts.pass {
            Pass::Loss(_) => &[false, true],
            Pass::Whole(Whole { checkpointing: false, .. }) => &[false],
            Pass::Whole(Whole { checkpointing: true, .. }) => &[true],
        }
    }

    pub(super) fn pass(&self) -> &Pass<'a, M, B> {
        &self.parts.pass
    }

    /// A model and Burn's optimizer, which subjects have that a program makes.
    #[cfg(feature = "warm")]
    pub(crate) fn begin_with_burns(&self, device: &Device) -> (M, ModuleOptimizer) {
        match self.begin(device) {
            (model, Optimizer::Burn(optimizer)) => (model, optimizer),
            (_, Optimizer::Learner(_)) => unreachable!("BUG: archives are made of subjects that programs give"),
        }
    }

    /// The loss, which subjects have that a program makes.
    #[cfg(feature = "warm")]
    pub(crate) fn loss(&self, model: &M, batch: B) -> Loss {
        match self.pass() {
            Pass::Loss(loss) => loss(model, batch),
            Pass::Whole(_) => unreachable!("BUG: archives are made of subjects that programs give"),
        }
    }
}

/// Computation of a micro-batch's gradients.
pub(super) enum Pass<'a, M, B> {
    /// A loss, and its backward pass.
    Loss(Function<'a, M, B, Loss>),
    /// A step of the program's own, both passes in one.
    #[cfg_attr(not(feature = "train"), expect(dead_code, reason = "such steps are those of Burn's own loop"))]
    Whole(Whole<'a, M, B>),
}

/// A step in which nothing can be seen between the passes.
pub(super) struct Whole<'a, M, B> {
    pub gradients: Function<'a, M, B, GradientsParams>,
    /// The same forward pass on its own, with what keeps it alive; nothing where there is none that takes such batches.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "counting-allocator")),
        expect(dead_code, reason = "nothing is seen between the passes where nothing counts memory")
    )]
    pub forward: Function<'a, M, B, Option<Box<dyn Any>>>,
    /// True if the program's device recomputes activations.
    pub checkpointing: bool,
}

/// Function of a model and a micro-batch.
type Function<'a, M, B, T> = Box<dyn Fn(&M, B) -> T + Send + Sync + 'a>;

impl<M: Module, B> Pass<'_, M, B> {
    /// Computes the gradients of a micro-batch, as one of so many, of a loss in fp32 times `scale`, and their factor in a sum.
    /// Calls `between` between the passes if they are separate.
    pub(super) fn gradients(
        &self,
        model: &M,
        batch: B,
        micro_batches: usize,
        scale: Option<&LossScale>,
        between: impl FnOnce(),
    ) -> (GradientsParams, Factor) {
        let share = 1.0 / micro_batches as f64;
        match self {
            Self::Loss(loss) => {
                let (mean, weight) = loss(model, batch).into_parts();
                let mean = if weight.is_some() || micro_batches == 1 { mean } else { mean * share };
                let mean = if let Some(scale) = scale { scale.scale(mean) } else { mean };
                between();
                let gradients = GradientsParams::from_grads(mean.backward(), model);
                let number = scale.map_or(1.0, |scale| scale.value().recip());
                (gradients, Weight::factor(weight, number).unwrap_or_else(|fault| panic!("{fault}")))
            }
            Self::Whole(step) => ((step.gradients)(model, batch), Factor::Number(share)),
        }
    }

    /// Returns true if the passes can be recorded as a CUDA graph.
    #[cfg(feature = "cuda")]
    pub(super) const fn has_graphs(&self) -> bool {
        matches!(self, Self::Loss(_))
    }

    /// Calls `observe` after a forward pass; `None` if the passes are not separate.
    #[cfg(any(feature = "cuda", feature = "counting-allocator"))]
    pub(super) fn after_forward<T>(&self, model: &M, batch: B, observe: impl FnOnce() -> T) -> Option<T>
    where
        B: Clone,
    {
        // What a forward pass keeps is let go by a backward pass alone, this one or the next.
        match self {
            Self::Loss(loss) => {
                let loss = loss(model, batch);
                let seen = observe();
                drop(loss.mean().backward());
                Some(seen)
            }
            Self::Whole(step) => {
                let kept = (step.forward)(model, batch.clone())?;
                let seen = observe();
                drop(kept);
                drop((step.gradients)(model, batch));
                Some(seen)
            }
        }
    }
}

/// Optimizer of a model.
pub(crate) enum Optimizer<M> {
    /// Burn's, which takes any model.
    Burn(ModuleOptimizer),
    /// Optimizer that owns its model, as a learner does.
    #[cfg_attr(not(feature = "train"), expect(dead_code, reason = "only Burn's own loop has learners"))]
    Learner(Box<dyn FnMut(M, GradientsParams) -> M>),
}

impl<M: Module> Optimizer<M> {
    /// The model after a step. A learner takes its own learning rate.
    pub(super) fn step(&mut self, learning_rate: f64, model: M, gradients: GradientsParams) -> M {
        match self {
            Self::Burn(optimizer) => optimizer.step(learning_rate, model, gradients),
            Self::Learner(step) => step(model, gradients),
        }
    }
}
