//! The loop around an optimizer step: try, look, and begin again smaller where memory ran out.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use gpu_tuned_core::Bytes;
use gpu_tuned_core::plan::PlanError;

use super::MicroBatch;
use super::attempt::{Attempt, Part};
use super::buffers::Buffers;
use super::failure::{Moment, OutOfMemory, Stopped, watched};
use super::gradients::{groups, witness};
use super::health::Counts;
use super::outcome::{Rescue, Step, StepError};
use super::pace::Pace;
use super::ranks::{Seat, Shares};
use super::update::{Unread, Weights, difference, read, update_in_groups, updated};

/// So many steps in a row without finite gradients are an error.
const MOST_SKIPPED: u32 = 100;
/// Steps from one look at whether parameters change to the next.
const LOOK_EVERY: u64 = 100;
/// A parameter, two values of state and a gradient: what is held twice for each.
pub(super) const HELD_VALUES: u64 = 4;

/// What is there when memory ran out.
pub(super) trait Remaining: Send {
    /// Memory for training, that which it holds already included; `None` where it cannot be told.
    fn memory(&self) -> Option<Bytes>;

    /// Samples in a micro-batch that fits so much memory.
    fn plan(&self, memory: Bytes) -> Result<usize, PlanError>;
}

/// Takes optimizer steps with whatever has weights.
pub(super) struct Stepper {
    pub device: Device,
    pub pace: Pace,
    pub max_norm: Option<f32>,
    /// Bytes that may be held twice.
    pub twice: Bytes,
    pub remaining: Option<Box<dyn Remaining>>,
    /// Steps from one in which gradients are counted to the next.
    pub health_every: Option<u64>,
    /// Among the ranks that take the step together.
    seat: Option<Seat>,
    steps: u64,
    skipped: u32,
    stalled: bool,
}

impl Stepper {
    pub(super) fn new(device: Device, micro_batch: usize) -> Self {
        Self {
            device,
            pace: Pace::new(micro_batch),
            max_norm: None,
            twice: Bytes(u64::MAX),
            remaining: None,
            health_every: None,
            seat: None,
            steps: 0,
            skipped: 0,
            stalled: false,
        }
    }

    /// Takes its steps together with other ranks.
    pub(super) fn among(self, seat: Seat) -> Self {
        Self { seat: Some(seat), ..self }
    }

    /// Takes a step over all samples of `batch`, or over those of all ranks; `part` computes the gradients of a micro-batch
    /// that holds so large a share of them, and may be called again. Returns what it made of each micro-batch, too.
    ///
    /// `learns` says whether the weights ought to change.
    pub(super) fn step<W: Weights, B: MicroBatch, T>(
        &mut self,
        weights: &mut W,
        learns: bool,
        batch: &B,
        part: impl Fn(&W::Model, B, f64, GradientsParams) -> Result<Part<T>, Stopped>,
    ) -> Result<(Step, Vec<T>), StepError> {
        if batch.is_empty() && self.seat.is_none() {
            return Err(StepError::Empty);
        }
        let mut rescues = Vec::new();
        let mut shares = Shares::default();
        loop {
            let buffers = Buffers::of(&weights.model());
            let outcome = match &self.seat {
                Some(seat) => self.joint(seat, &mut shares, weights, learns, batch, &part),
                None => self.attempt(weights, learns, batch, &part),
            };
            if let Some(buffers) = buffers.filter(|_| !matches!(&outcome, Ok((step, _)) if step.applied)) {
                buffers.restore(&weights.model());
            }
            match outcome {
                Ok((step, outputs)) => return self.finished(Step { rescues, ..step }).map(|step| (step, outputs)),
                Err(Stopped::Error(error)) => return Err(error),
                Err(Stopped::OutOfMemory(failure)) => rescues.push(self.rescue(failure)?),
            }
        }
    }

    fn attempt<W: Weights, B: MicroBatch, T>(
        &self,
        weights: &mut W,
        learns: bool,
        batch: &B,
        part: impl Fn(&W::Model, B, f64, GradientsParams) -> Result<Part<T>, Stopped>,
    ) -> Result<(Step, Vec<T>), Stopped> {
        let micro_batch = self.pace.micro_batch();
        let model = weights.model();
        let attempt = Attempt::run(&model, batch, micro_batch, &self.device, part)?;
        // Before they are clipped, which a norm that is not finite leaves nothing of.
        let health = self.health(&attempt.gradients, &model)?;
        let (attempt, norm) = attempt.clipped(&model, self.max_norm, &self.device)?;
        let Attempt { gradients, loss, outputs } = attempt;
        let step = |loss, gradient_norm: f32, stalled, gradient_health| Step {
            loss,
            gradient_norm,
            applied: gradient_norm.is_finite(),
            samples: batch.len(),
            micro_batches: outputs.len(),
            micro_batch,
            rescues: Vec::new(),
            loss_scale: 1.0,
            stalled,
            gradient_health,
        };
        let groups = groups(&gradients, &model, self.twice.0 / HELD_VALUES);
        if groups.len() > 1 {
            let read = read(vec![loss, norm])?;
            let health = health.map(Counts::watched).transpose()?;
            if read[1].is_finite() {
                drop(model);
                update_in_groups(weights, &gradients, &groups, || give_back(&self.device))?;
            }
            return Ok((step(read[0], read[1], false, health), outputs));
        }
        let new = updated(weights, gradients)?;
        let moved = self.looks().then(|| difference(&weights.master(), &new.master())).flatten();
        let is_looked_at = moved.is_some();
        let read = read([loss, norm].into_iter().chain(witness(&new.model())).chain(moved).collect())?;
        let health = health.map(Counts::watched).transpose()?;
        let (loss, norm) = (read[0], read[1]);
        if norm.is_finite() {
            *weights = new;
        }
        let stands = |moved: &f32| learns && norm.is_finite() && norm > 0.0 && *moved == 0.0;
        let stalled = if is_looked_at { read.last().is_some_and(stands) } else { self.stalled };
        Ok((step(loss, norm, stalled, health), outputs))
    }

    /// The counts of what gradients are made of, on the device, where it is their turn.
    pub(super) fn health<M: Module>(
        &self,
        gradients: &GradientsParams,
        model: &M,
    ) -> Result<Option<Counts>, OutOfMemory> {
        let is_due = self.health_every.is_some_and(|every| self.steps.is_multiple_of(every.max(1)));
        is_due.then(|| watched(Moment::Backward, || Counts::of(gradients, model))).transpose()
    }

    /// Ends the other ranks with an error of this one.
    pub(super) fn end(&self, error: &StepError) {
        if let Some(seat) = &self.seat {
            seat.fail(error.to_string());
        }
    }

    /// Whether it is looked after, in this step, if parameters change.
    pub(super) fn looks(&self) -> bool {
        self.steps.is_multiple_of(LOOK_EVERY)
    }

    /// Whether training stood still when it was last looked after.
    pub(super) fn stalled(&self) -> bool {
        self.stalled
    }

    fn finished(&mut self, step: Step) -> Result<Step, StepError> {
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
        Ok(step)
    }

    /// Gives memory back and goes on smaller.
    fn rescue(&mut self, failure: OutOfMemory) -> Result<Rescue, StepError> {
        give_back(&self.device);
        let memory = self.remaining.as_ref().and_then(|remaining| remaining.memory());
        let planned = self.remaining.as_ref().zip(memory).map(|(remaining, memory)| remaining.plan(memory));
        let (planned, plan) = match planned {
            Some(Ok(planned)) => (Some(planned), None),
            Some(Err(error)) => (None, Some(Box::new(error))),
            None => (None, None),
        };
        let OutOfMemory { moment, message } = failure;
        let from = self.pace.micro_batch();
        let Some(to) = self.pace.shrink(planned) else {
            return Err(StepError::DoesNotFit { moment, micro_batch: from, memory, plan, message });
        };
        tracing::warn!(from, to, "out of memory {moment}: the step is begun again with smaller micro-batches");
        Ok(Rescue { moment, from, to })
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
pub(super) fn give_back(device: &Device) {
    // A forward pass without its backward pass leaves its graph alive until the next backward pass.
    drop(Tensor::<1>::ones([1], device).require_grad().mul_scalar(2.0).backward());
    // Whether that worked is seen in the step that follows.
    device.sync().ok();
    device.memory_cleanup();
}
