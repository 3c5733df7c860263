use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::{Device, Tensor};
use gpu_tuned_core::Bytes;
use gpu_tuned_core::plan::PlanError;

use super::MicroBatch;
use super::attempt::Attempt;
use super::buffers::Buffers;
use super::failure::OutOfMemory;
use super::gradients::{groups, witness};
use super::outcome::{Rescue, Step, StepError};
use super::pace::Pace;
use super::update::{Unread, Weights, difference, read};

/// So many steps in a row without finite gradients are an error.
const MOST_SKIPPED: u32 = 100;
/// Steps from one look at whether parameters change to the next.
const LOOK_EVERY: u64 = 100;

/// Plans anew for the memory that is free: samples in a micro-batch, or why none fits.
type Replan = Box<dyn Fn(Bytes) -> Result<usize, PlanError> + Send>;
/// Memory that is free on the device.
type Free = Box<dyn Fn() -> Option<Bytes> + Send>;

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
/// kept is free again; where they are larger than that, they are changed group by group.
///
/// # Reading
///
/// The host waits for the device once a step, at its end, to learn whether all of it was computed.
pub struct Trainer<M> {
    weights: Weights<M>,
    device: Device,
    pace: Pace,
    max_norm: Option<f32>,
    /// Bytes that may be held twice.
    twice: Option<Bytes>,
    replan: Option<Replan>,
    free: Option<Free>,
    steps: u64,
    skipped: u32,
    stalled: bool,
}

impl<M: Module> Trainer<M> {
    /// A trainer of `model`, which is on `device`: one with autodiff. Steps are cut into micro-batches of at most
    /// `micro_batch` samples.
    pub fn new(model: M, optimizer: ModuleOptimizer, device: Device, micro_batch: usize) -> Self {
        Self {
            weights: Weights { model, optimizer },
            device,
            pace: Pace::new(micro_batch),
            max_norm: None,
            twice: None,
            replan: None,
            free: None,
            steps: 0,
            skipped: 0,
            stalled: false,
        }
    }

    /// Scales the gradients of a step down to a global norm of at most `norm`.
    #[must_use]
    pub fn clip_norm(mut self, norm: f32) -> Self {
        self.max_norm = Some(norm);
        self
    }

    /// Tries larger micro-batches again after so many steps without a failure; 100 by default, and longer after each trial
    /// that failed.
    #[must_use]
    pub fn grow_after(mut self, steps: u32) -> Self {
        self.pace = self.pace.with_patience(steps);
        self
    }

    /// Holds at most so many bytes of parameters and optimizer state twice while the optimizer runs.
    #[must_use]
    pub fn hold_twice(mut self, most: Bytes) -> Self {
        self.twice = Some(most);
        self
    }

    /// Asks `free` what memory is left after it ran out, and `replan` which micro-batch fits it.
    pub(crate) fn replanning(
        mut self,
        free: impl Fn() -> Option<Bytes> + Send + 'static,
        replan: impl Fn(Bytes) -> Result<usize, PlanError> + Send + 'static,
    ) -> Self {
        self.free = Some(Box::new(free));
        self.replan = Some(Box::new(replan));
        self
    }

    /// The model with the parameters of the last step.
    pub fn model(&self) -> &M {
        &self.weights.model
    }

    /// The optimizer with the state of the last step, to be saved.
    pub fn optimizer(&self) -> &ModuleOptimizer {
        &self.weights.optimizer
    }

    /// Samples in a micro-batch now: as planned, or fewer after memory ran out.
    pub fn micro_batch(&self) -> usize {
        self.pace.micro_batch()
    }

    /// The model and the optimizer.
    pub fn into_parts(self) -> (M, ModuleOptimizer) {
        (self.weights.model, self.weights.optimizer)
    }

    /// Takes one optimizer step over all samples of `batch`.
    ///
    /// `loss` is the mean over the samples of a micro-batch, of shape `[1]`; what is learned from is the mean over the
    /// whole batch, however it is cut. `loss` may be called again for the same samples.
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
        loss: impl Fn(&M, B) -> Tensor<1>,
    ) -> Result<Step, StepError> {
        if batch.is_empty() {
            return Err(StepError::Empty);
        }
        let mut rescues = Vec::new();
        loop {
            let buffers = Buffers::of(&self.weights.model);
            let failure = match self.attempt(learning_rate, &batch, &loss) {
                Ok(step) => return self.finished(step, rescues),
                Err(Stopped::Error(error)) => return Err(error),
                Err(Stopped::OutOfMemory(failure)) => failure,
            };
            if let Some(buffers) = buffers {
                self.weights.model = buffers.restore(self.weights.model.clone());
            }
            rescues.push(self.rescue(failure)?);
        }
    }

    fn attempt<B: MicroBatch>(
        &mut self,
        learning_rate: f64,
        batch: &B,
        loss: &impl Fn(&M, B) -> Tensor<1>,
    ) -> Result<Step, Stopped> {
        let micro_batch = self.pace.micro_batch();
        let model = &self.weights.model;
        let attempt = Attempt::run(model, batch, micro_batch, &self.device, loss)?.clipped(model, self.max_norm);
        let step = |loss, gradient_norm: f32, stalled| Step {
            loss,
            gradient_norm,
            applied: gradient_norm.is_finite(),
            samples: batch.len(),
            micro_batches: attempt.micro_batches,
            micro_batch,
            rescues: Vec::new(),
            stalled,
        };
        let (values, most) = (vec![attempt.loss.clone(), attempt.norm.clone()], self.twice.unwrap_or(Bytes(u64::MAX)));
        let groups = groups(&attempt.gradients, model, most.0 / HELD_VALUES);
        if groups.len() > 1 {
            let read = read(values)?;
            if read[1].is_finite() {
                let device = self.device.clone();
                self.weights.update_in_groups(learning_rate, &attempt.gradients, &groups, || give_back(&device))?;
            }
            return Ok(step(read[0], read[1], false));
        }
        let updated = self.weights.updated(learning_rate, attempt.gradients)?;
        let looks = self.steps.is_multiple_of(LOOK_EVERY);
        let moved = looks.then(|| difference(model, &updated.model)).flatten();
        let is_looked_at = moved.is_some();
        let read = read(values.into_iter().chain(witness(&updated.model)).chain(moved).collect())?;
        let (loss, norm) = (read[0], read[1]);
        if norm.is_finite() {
            self.weights = updated;
        }
        let stands = |moved: &f32| norm.is_finite() && norm > 0.0 && learning_rate != 0.0 && *moved == 0.0;
        let stalled = if is_looked_at { read.last().is_some_and(stands) } else { self.stalled };
        Ok(step(loss, norm, stalled))
    }

    fn finished(&mut self, mut step: Step, rescues: Vec<Rescue>) -> Result<Step, StepError> {
        self.steps += 1;
        self.skipped = if step.applied { 0 } else { self.skipped + 1 };
        if self.skipped == MOST_SKIPPED {
            return Err(StepError::NotFinite { steps: MOST_SKIPPED });
        }
        if step.stalled && !self.stalled {
            tracing::warn!(
                gradient_norm = step.gradient_norm,
                "training stands still: the optimizer changes no parameter; is the learning rate too small for the \
                 number format of the parameters?"
            );
        }
        self.stalled = step.stalled;
        if let Some(size) = self.pace.stepped() {
            tracing::info!(micro_batch = size, "memory has been enough for a while: larger micro-batches again");
        }
        step.rescues = rescues;
        Ok(step)
    }

    /// Gives memory back and goes on smaller.
    fn rescue(&mut self, failure: OutOfMemory) -> Result<Rescue, StepError> {
        give_back(&self.device);
        let free = self.free.as_ref().and_then(|free| free());
        let replanned = free.zip(self.replan.as_ref()).map(|(free, replan)| replan(free));
        let (planned, plan) = match replanned {
            Some(Ok(planned)) => (Some(planned), None),
            Some(Err(error)) => (None, Some(Box::new(error))),
            None => (None, None),
        };
        let OutOfMemory { moment, message } = failure;
        let from = self.pace.micro_batch();
        let Some(to) = self.pace.shrink(planned) else {
            return Err(StepError::DoesNotFit { moment, micro_batch: from, free, plan, message });
        };
        tracing::warn!(from, to, "out of memory {moment}: the step is begun again with smaller micro-batches");
        Ok(Rescue { moment, from, to })
    }
}

/// A parameter, two values of state and a gradient: what is held twice for each.
const HELD_VALUES: u64 = 4;

/// Why an attempt did not become a step.
enum Stopped {
    OutOfMemory(OutOfMemory),
    Error(StepError),
}

impl From<OutOfMemory> for Stopped {
    fn from(failure: OutOfMemory) -> Self {
        Self::OutOfMemory(failure)
    }
}

impl From<StepError> for Stopped {
    fn from(error: StepError) -> Self {
        Self::Error(error)
    }
}

impl From<Unread> for Stopped {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::OutOfMemory(failure) => Self::OutOfMemory(failure),
            Unread::Device(error) => Self::Error(StepError::Device(error)),
        }
    }
}

/// Lets go what a failed step left behind, and gives the device's free memory back.
fn give_back(device: &Device) {
    // A forward pass without its backward pass leaves its graph alive until the next backward pass.
    drop(Tensor::<1>::ones([1], device).require_grad().mul_scalar(2.0).backward());
    // Whether that worked is seen in the step that follows.
    device.sync().ok();
    device.memory_cleanup();
}
