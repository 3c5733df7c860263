//! The loop around an optimizer step: try, look, and begin again smaller where memory ran out.

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use gpu_tuned_core::Bytes;
use gpu_tuned_core::plan::{Plan, PlanError};

use super::MicroBatch;
use super::attempt::{Attempt, Part};
use super::buffers::Buffers;
use super::failure::{Moment, OutOfMemory, Stopped, watched};
use super::gradients::{Sizes, witness};
use super::health::Counts;
use super::outcome::{Step, StepError};
use super::pace::{Pace, SHORT_PATIENCE};
use super::ranks::{Seat, Shares};
use super::update::{Unread, Weights, difference, read, updated};
use crate::course::{Clock, Phase};
use gpu_tuned_observe::log;

/// So many steps in a row without finite gradients are an error.
const MOST_SKIPPED: u32 = 100;
/// Steps from one look at whether parameters change to the next.
const LOOK_EVERY: u64 = 100;

/// What is there when memory ran out.
pub(super) trait Remaining: Send {
    /// Memory for training, that which it holds already included; `None` where it cannot be told.
    fn memory(&self) -> Option<Bytes>;

    /// What is planned for so much memory; with micro-batches of so many samples, where that is said.
    fn plan(&self, memory: Bytes, micro_batch: Option<u64>) -> Result<Plan, PlanError>;
}

/// Takes optimizer steps with whatever has weights.
pub(super) struct Stepper {
    pub device: Device,
    /// Samples in a micro-batch.
    pub pace: Pace,
    pub max_norm: Option<f32>,
    /// Bytes that may be held twice.
    pub twice: Pace,
    pub remaining: Option<Box<dyn Remaining>>,
    /// Whether it is still to be told that smaller micro-batches change the model's statistics.
    pub tells_of_statistics: bool,
    /// Times its steps, where somebody looks.
    pub clock: Clock,
    /// Steps from one in which gradients are counted to the next.
    pub health_every: Option<u64>,
    /// Among the ranks that take the step together.
    seat: Option<Seat>,
    /// Of what the optimizer changes, once a step has come to it.
    pub(super) sizes: Option<Sizes>,
    steps: u64,
    skipped: u32,
    /// Whether a loss that is no number was told.
    told_of_loss: bool,
    stalled: bool,
}

impl Stepper {
    pub(super) fn new(device: Device, micro_batch: usize) -> Self {
        Self {
            device,
            pace: Pace::new(micro_batch as u64),
            max_norm: None,
            twice: Pace::new(u64::MAX).with_patience(SHORT_PATIENCE),
            remaining: None,
            tells_of_statistics: false,
            clock: Clock::default(),
            health_every: None,
            seat: None,
            sizes: None,
            steps: 0,
            skipped: 0,
            told_of_loss: false,
            stalled: false,
        }
    }

    /// Takes its steps together with other ranks.
    pub(super) fn among(self, seat: Seat) -> Self {
        Self { seat: Some(seat), ..self }
    }

    /// Samples in a micro-batch.
    pub(super) fn micro_batch(&self) -> usize {
        usize::try_from(self.pace.now()).unwrap_or(usize::MAX)
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
        self.clock.enter();
        let mut rescues = Vec::new();
        let mut shares = Shares::default();
        let seat = self.seat.clone();
        loop {
            let buffers = Buffers::of(&weights.model());
            let outcome = match &seat {
                Some(seat) => self.joint(seat, &mut shares, weights, learns, batch, &part),
                None => self.attempt(weights, learns, batch, &part, !rescues.is_empty()),
            };
            if let Some(buffers) = buffers.filter(|_| !matches!(&outcome, Ok((step, _)) if step.applied)) {
                buffers.restore(&weights.model());
            }
            match outcome {
                Ok((step, outputs)) => {
                    rescues.extend(step.rescues);
                    return self.finished(Step { rescues, ..step }).map(|step| (step, outputs));
                }
                Err(Stopped::Error(error)) => return Err(error),
                Err(Stopped::OutOfMemory(failure)) => rescues.push(self.rescue(failure, batch.len())?),
            }
        }
    }

    /// `carefully` makes sure that the gradients were computed before the optimizer is let on them: it costs a read, and
    /// tells who is to blame for a failure.
    fn attempt<W: Weights, B: MicroBatch, T>(
        &mut self,
        weights: &mut W,
        learns: bool,
        batch: &B,
        part: impl Fn(&W::Model, B, f64, GradientsParams) -> Result<Part<T>, Stopped>,
        carefully: bool,
    ) -> Result<(Step, Vec<T>), Stopped> {
        let micro_batch = self.micro_batch();
        let model = weights.model();
        let attempt = Attempt::run(&model, batch, micro_batch, &self.device, &self.clock, part)?;
        // Before they are clipped, which a norm that is not finite leaves nothing of.
        let health = self.health(&attempt.gradients, &model)?;
        let (attempt, norm) =
            self.clock.time(Phase::Update, || attempt.clipped(&model, self.max_norm, &self.device))?;
        drop(model);
        let Attempt { gradients, loss, outputs } = attempt;
        let mut step = Step {
            loss: 0.0,
            gradient_norm: 0.0,
            applied: false,
            samples: batch.len(),
            micro_batches: outputs.len(),
            micro_batch,
            rescues: Vec::new(),
            loss_scale: 1.0,
            stalled: self.stalled,
            gradient_health: None,
        };
        let values = [loss, norm];
        let in_groups = self.is_too_much_at_once(weights);
        let mut moved = None;
        if in_groups || carefully {
            let read = self.clock.time(Phase::Drain, || read(values.to_vec()));
            let read = read.map_err(|unread| unread.at(Moment::Backward))?;
            (step.loss, step.gradient_norm) = (read[0], read[1]);
        }
        if in_groups {
            step.gradient_health = health.map(Counts::watched).transpose()?;
            if step.gradient_norm.is_finite() {
                let (rescue, by) = self.change_in_groups(weights, &gradients)?;
                step.rescues.extend(rescue);
                moved = by;
            }
        } else {
            let (new, read, by) =
                self.at_once(weights, gradients, &values).map_err(|unread| blamed(unread, &values))?;
            step.gradient_health = health.map(Counts::watched).transpose()?;
            (step.loss, step.gradient_norm) = (read[0], read[1]);
            if step.gradient_norm.is_finite() {
                *weights = new;
            }
            moved = by;
        }
        step.applied = step.gradient_norm.is_finite();
        if let Some(moved) = moved {
            step.stalled = learns && step.applied && step.gradient_norm > 0.0 && moved == 0.0;
        }
        Ok((step, outputs))
    }

    /// What the optimizer makes of the weights, all of it; the `values`, read with it; and how far parameters moved, where
    /// it is looked after.
    fn at_once<W: Weights>(
        &self,
        weights: &W,
        gradients: GradientsParams,
        values: &[Tensor<1>; 2],
    ) -> Result<(W, Vec<f32>, Option<f32>), Unread> {
        let new = self.clock.time(Phase::Update, || updated(weights, gradients, None)).map_err(Unread::OutOfMemory)?;
        let moved = self.looks().then(|| difference(&weights.master(), &new.master(), |_| true)).flatten();
        let is_looked_at = moved.is_some();
        let values = values.iter().cloned().chain(witness(&new.model(), |_| true)).chain(moved).collect();
        let read = self.clock.time(Phase::Drain, || read(values))?;
        let moved = read.last().copied().filter(|_| is_looked_at);
        Ok((new, read, moved))
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
        if !step.applied && !step.loss.is_finite() && !self.told_of_loss {
            self.told_of_loss = true;
            log::warn_user(&format!(
                "step {}: the loss is {}, and the step changes nothing; after {MOST_SKIPPED} such steps in a row training ends",
                self.steps, step.loss
            ));
        }
        if step.stalled && !self.stalled {
            log::warn_user(&format!(
                "training stands still: the optimizer changes no parameter (gradient norm {}); is the learning rate too small \
                 for the number format of the parameters?",
                step.gradient_norm
            ));
        }
        self.stalled = step.stalled;
        if let Some(size) = self.pace.stepped() {
            tracing::info!(micro_batch = size, "memory has been enough for a while: larger micro-batches again");
        }
        if let Some(bytes) = self.twice.stepped() {
            let held = Bytes(bytes);
            tracing::info!(%held, "memory has been enough for a while: more parameters are changed at a time again");
        }
        Ok(step)
    }
}

/// Who is to blame where a step that was taken at once failed: the optimizer, if what it was given can be read.
fn blamed(unread: Unread, values: &[Tensor<1>; 2]) -> Unread {
    let is_known = matches!(&unread, Unread::OutOfMemory(_)) && read(values.to_vec()).is_ok();
    unread.at(if is_known { Moment::Optimizer } else { Moment::Step })
}
