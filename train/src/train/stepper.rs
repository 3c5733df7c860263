//! Attempts at an optimizer step, each with smaller micro-batches after an out-of-memory error.

use std::time::Instant;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use gpu_tuned_core::Bytes;
use gpu_tuned_observe::log::warn_user;
use gpu_tuned_observe::progress::Progress;

use super::accumulation::{AccumulatedGradients, MicroBatchGradients};
use super::adaptive_size::{AdaptiveSize, SHORT_PATIENCE};
use super::buffers::Buffers;
use super::gradients::{Sizes, witness};
use super::health::Counts;
use super::not_ready::NotReady;
use super::outcome::{Step, StepError};
use super::ranks::Rank;
use super::replanning::Replanning;
use super::step_failure::StepFailure;
use super::update::{Update, Weights, difference, read, updated};
use crate::micro_batch::MicroBatch;
use crate::out_of_memory::{Moment, OutOfMemory, watched};
use crate::timing::{Phase, StepTimer};

/// Steps in a row without finite gradients that end training.
const MAX_SKIPPED: u32 = 100;
/// Steps between two checks that parameters change.
const STALL_CHECK_INTERVAL: u64 = 100;

/// Takes optimizer steps with anything that has weights.
pub(super) struct Stepper {
    pub device: Device,
    /// Samples in a micro-batch.
    pub micro_batch_size: AdaptiveSize,
    pub max_norm: Option<f32>,
    /// Bytes of parameters and optimizer state that may be allocated twice.
    pub group_bytes: AdaptiveSize,
    pub planner: Option<Replanning>,
    pub not_ready: NotReady,
    /// True until the user was warned that smaller micro-batches change the model's statistics.
    pub warns_of_statistics: bool,
    pub timer: StepTimer,
    /// Interval of gradient counts, in steps.
    pub health_every: Option<u64>,
    /// Connection to the other ranks that share the step.
    pub rank: Option<Rank>,
    /// End of the last step with other ranks.
    pub last_end: Option<Instant>,
    /// Sizes of the trained parameters, set by the first update.
    pub(super) sizes: Option<Sizes>,
    steps: u64,
    skipped: u32,
    warned_of_loss: bool,
    stalled: bool,
}

impl Stepper {
    pub(super) fn new(device: Device, micro_batch: usize) -> Self {
        Self {
            device,
            micro_batch_size: AdaptiveSize::new(micro_batch as u64),
            max_norm: None,
            group_bytes: AdaptiveSize::new(u64::MAX).with_patience(SHORT_PATIENCE),
            planner: None,
            not_ready: NotReady::default(),
            warns_of_statistics: false,
            timer: StepTimer::default(),
            health_every: None,
            rank: None,
            last_end: None,
            sizes: None,
            steps: 0,
            skipped: 0,
            warned_of_loss: false,
            stalled: false,
        }
    }

    /// Samples in a micro-batch.
    pub(super) fn micro_batch(&self) -> usize {
        usize::try_from(self.micro_batch_size.now()).unwrap_or(usize::MAX)
    }

    /// Takes a step over all samples of `batch`, or of all ranks. Returns the outputs of the micro-batches, too.
    ///
    /// `part` computes the gradients of a micro-batch with the given share of the samples, and may be called again. `learns` is
    /// false if the weights are not expected to change.
    pub(super) fn step<W: Weights, B: MicroBatch, T>(
        &mut self,
        weights: &mut W,
        learns: bool,
        batch: &B,
        part: impl Fn(&W::Model, B, f64, GradientsParams) -> Result<MicroBatchGradients<T>, StepFailure>,
    ) -> Result<(Step, Vec<T>), StepError> {
        if batch.is_empty() && self.rank.is_none() {
            return Err(StepError::Empty);
        }
        self.timer.begin();
        // Kernels are compiled and tuned.
        let _progress = (self.steps == 0).then(|| Progress::begin("first step"));
        let mut rescues = Vec::new();
        let rank = self.rank.clone();
        loop {
            let buffers = Buffers::copy_of(&weights.model());
            let outcome = match &rank {
                Some(rank) => self.distributed_attempt(rank, weights, learns, batch, &part),
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
                Err(StepFailure::Error(error)) => return Err(error),
                Err(StepFailure::OutOfMemory(failure)) => {
                    rescues.push(self.rescue(failure, batch.len(), weights.release())?);
                }
            }
        }
    }

    /// Attempts a step on one device. `reads_gradients` waits for the gradients before the update, to attribute a failure to
    /// the backward pass or to the optimizer.
    fn attempt<W: Weights, B: MicroBatch, T>(
        &mut self,
        weights: &mut W,
        learns: bool,
        batch: &B,
        part: impl Fn(&W::Model, B, f64, GradientsParams) -> Result<MicroBatchGradients<T>, StepFailure>,
        reads_gradients: bool,
    ) -> Result<(Step, Vec<T>), StepFailure> {
        let micro_batch = self.micro_batch();
        let model = weights.model();
        let sum = AccumulatedGradients::compute(&model, batch, micro_batch, &self.device, &self.timer, part)?;
        weights.complete()?;
        // Counted before clipping, which destroys gradients with a norm that is not finite.
        let health = self.health_counts(&sum.gradients, &model)?;
        let (sum, norm) = self.timer.time(Phase::Update, || sum.clipped(&model, self.max_norm, &self.device))?;
        drop(model);
        let AccumulatedGradients { gradients, loss, outputs } = sum;
        let pending = [loss, norm];
        let update = if self.exceeds_group_bytes(weights) {
            self.update_in_groups(weights, &gradients, &pending, health)?
        } else {
            if reads_gradients {
                self.read_gradients(&pending)?;
            }
            self.update_at_once(weights, gradients, &pending, health)?
        };
        Ok((self.step_result(update, learns, batch.len(), micro_batch, outputs.len()), outputs))
    }

    /// Updates the parameters group by group, after reading that the gradients were computed.
    fn update_in_groups<W: Weights>(
        &mut self,
        weights: &mut W,
        gradients: &GradientsParams,
        pending: &[Tensor<1>; 2],
        health: Option<Counts>,
    ) -> Result<Update, StepFailure> {
        let (loss, gradient_norm) = self.read_gradients(pending)?;
        let health = health.map(Counts::watched).transpose()?;
        let (rescue, moved) =
            if gradient_norm.is_finite() { self.change_in_groups(weights, gradients)? } else { (None, None) };
        Ok(Update { loss, gradient_norm, moved, rescue, health })
    }

    /// Updates all parameters, and keeps the update if its norm is finite.
    fn update_at_once<W: Weights>(
        &mut self,
        weights: &mut W,
        gradients: GradientsParams,
        pending: &[Tensor<1>; 2],
        health: Option<Counts>,
    ) -> Result<Update, StepFailure> {
        let updated = self.updated_at_once(weights, gradients, pending);
        let (new, values, moved) = updated.map_err(|error| with_moment(error, pending))?;
        let health = health.map(Counts::watched).transpose()?;
        let (loss, gradient_norm) = (values[0], values[1]);
        if gradient_norm.is_finite() {
            *weights = new;
        }
        Ok(Update { loss, gradient_norm, moved, rescue: None, health })
    }

    /// Returns the updated weights, the pending values, and in steps that check for a stall the sum of parameter changes.
    fn updated_at_once<W: Weights>(
        &self,
        weights: &W,
        gradients: GradientsParams,
        pending: &[Tensor<1>; 2],
    ) -> Result<(W, Vec<f32>, Option<f32>), StepFailure> {
        let new = self.timer.time(Phase::Update, || updated(weights, gradients, None))?;
        let moved = self.checks_for_stall().then(|| difference(&weights.master(), &new.master(), |_| true)).flatten();
        let has_moved = moved.is_some();
        let values = pending.iter().cloned().chain(witness(&new.model(), |_| true)).chain(moved).collect();
        let values = self.timer.time(Phase::Drain, || read(values))?;
        let moved = values.last().copied().filter(|_| has_moved);
        Ok((new, values, moved))
    }

    /// Waits for the gradients. Returns the loss and the norm.
    fn read_gradients(&self, pending: &[Tensor<1>; 2]) -> Result<(f32, f32), StepFailure> {
        let values = self.timer.time(Phase::Drain, || read(pending.to_vec()));
        let values = values.map_err(|error| error.at(Moment::Backward))?;
        Ok((values[0], values[1]))
    }

    /// The result of a step, before a trainer adds its loss scale.
    pub(super) fn step_result(
        &self,
        update: Update,
        learns: bool,
        samples: usize,
        micro_batch: usize,
        micro_batches: usize,
    ) -> Step {
        let Update { loss, gradient_norm, moved, rescue, health } = update;
        let is_stalled = |moved| learns && gradient_norm > 0.0 && moved == 0.0;
        let applied = gradient_norm.is_finite();
        Step {
            loss,
            gradient_norm,
            applied,
            samples,
            micro_batches,
            micro_batch,
            rescues: rescue.into_iter().collect(),
            loss_scale: 1.0,
            stalled: moved.map_or(self.stalled, |moved| applied && is_stalled(moved)),
            gradient_health: health,
        }
    }

    /// Counts kinds of gradient values on the device, in the steps that are due.
    pub(super) fn health_counts<M: Module>(
        &self,
        gradients: &GradientsParams,
        model: &M,
    ) -> Result<Option<Counts>, OutOfMemory> {
        let is_due = self.health_every.is_some_and(|every| self.steps.is_multiple_of(every.max(1)));
        is_due.then(|| watched(Moment::Backward, || Counts::new(gradients, model))).transpose()
    }

    /// Ends the other ranks with an error of this one.
    pub(super) fn end(&self, error: &StepError) {
        if let Some(rank) = &self.rank {
            rank.fail(error);
        }
    }

    /// Returns true in steps that check whether parameters change.
    pub(super) fn checks_for_stall(&self) -> bool {
        self.steps.is_multiple_of(STALL_CHECK_INTERVAL)
    }

    fn finished(&mut self, step: Step) -> Result<Step, StepError> {
        self.steps += 1;
        NotReady::step_finished();
        self.skipped = if step.applied { 0 } else { self.skipped + 1 };
        if self.skipped == MAX_SKIPPED {
            return Err(StepError::NotFinite { steps: MAX_SKIPPED });
        }
        if !step.applied && !step.loss.is_finite() && !self.warned_of_loss {
            self.warned_of_loss = true;
            warn_user(&format!(
                "step {}: the loss is {}, and the step is skipped; after {MAX_SKIPPED} such steps in a row training ends",
                self.steps, step.loss
            ));
        }
        if step.stalled && !self.stalled {
            warn_user(&format!(
                "training is stalled: the optimizer changes no parameter (gradient norm {}); is the learning rate too small \
                 for the number format of the parameters?",
                step.gradient_norm
            ));
        }
        self.stalled = step.stalled;
        if let Some(size) = self.micro_batch_size.grow() {
            tracing::info!(micro_batch = size, "no out-of-memory for a while: raising the micro-batch");
        }
        if let Some(bytes) = self.group_bytes.grow() {
            let bytes = Bytes(bytes);
            tracing::info!(%bytes, "no out-of-memory for a while: updating more parameters at a time");
        }
        Ok(step)
    }
}

/// Attributes a failure to the optimizer if the pending values can be read, else to the whole step.
fn with_moment(error: StepFailure, pending: &[Tensor<1>; 2]) -> StepFailure {
    let is_optimizers = matches!(&error, StepFailure::OutOfMemory(_)) && read(pending.to_vec()).is_ok();
    error.at(if is_optimizers { Moment::Optimizer } else { Moment::Step })
}
