//! Attempts at an optimizer step, each with smaller micro-batches after an out-of-memory error.

use std::time::Instant;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use gpu_tuned_core::Bytes;
use gpu_tuned_observe::log::warn_user;
use gpu_tuned_observe::progress::Progress;

use super::accumulation::{AccumulatedGradients, Accumulation, MicroBatchGradients};
use super::buffers::{BatchNorms, Buffers, other_running_state, warn_of_running_state};
use super::checks::{Skips, check_repeated};
use super::health::{Counts, LayerHealth};
use super::outcome::{Step, StepError, StepFailure};
use super::ranks::{GradientSums, Rank};
use super::recipe::NotReady;
use super::rescue::{AdaptiveSize, Replanning, SHORT_PATIENCE};
use super::update::{Sizes, StepValues, Update, Weights, difference, pending_values, read, updated, witness};
use crate::micro_batch::MicroBatch;
use crate::out_of_memory::{Moment, OutOfMemory, watched};
use crate::timing::{Phase, StepTimer};

/// Steps between two checks that parameters change.
const STALL_CHECK_INTERVAL: u64 = 100;

/// Takes optimizer steps with anything that has weights.
#[derive(Clone)]
#[expect(clippy::struct_excessive_bools, reason = "independent states of a run")]
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
    /// True if the loss couples all samples of a step, which is then one micro-batch.
    pub whole_batch: bool,
    pub timer: StepTimer,
    /// Interval of gradient counts, in steps.
    pub health_every: Option<u64>,
    /// Connection to the other ranks that share the step.
    pub rank: Option<Rank>,
    /// End of the last step with other ranks.
    pub last_end: Option<Instant>,
    /// Sizes of the trained parameters, set by the first update.
    pub(super) sizes: Option<Sizes>,
    /// Steps that ended, skipped ones included.
    pub(super) steps: u64,
    pub(super) skips: Skips,
    /// True if sums over ranks begin in the backward pass.
    pub overlaps_sums: bool,
    /// True if some steps check on the CPU that the loss does not depend on the micro-batch.
    pub checks_halves: bool,
    /// Set by the first step.
    batch_norms: Option<BatchNorms>,
    stalled: bool,
}

/// Gradients of a micro-batch with the given share of the samples, and the number by which they are multiplied in a sum. Sums over
/// ranks, if there are any, get both the weight of the loss and the number before the backward pass.
pub(super) trait Part<M, B, T>:
    Fn(&M, B, f64, Option<&GradientSums>) -> Result<(MicroBatchGradients<T>, f64), StepFailure>
{
}

impl<M, B, T, F> Part<M, B, T> for F where
    F: Fn(&M, B, f64, Option<&GradientSums>) -> Result<(MicroBatchGradients<T>, f64), StepFailure>
{
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
            whole_batch: false,
            timer: StepTimer::default(),
            health_every: None,
            rank: None,
            last_end: None,
            sizes: None,
            steps: 0,
            skips: Skips::default(),
            overlaps_sums: false,
            checks_halves: true,
            batch_norms: None,
            stalled: false,
        }
    }

    /// Samples in a micro-batch.
    pub(super) fn micro_batch(&self) -> usize {
        usize::try_from(self.micro_batch_size.now()).unwrap_or(usize::MAX)
    }

    /// Returns true if other ranks share the step.
    fn is_shared(&self) -> bool {
        self.rank.as_ref().is_some_and(|rank| rank.share().ranks() > 1)
    }

    /// Takes a step over all samples of `batch`, or of all ranks. Returns the outputs of the micro-batches, too.
    ///
    /// `part` may be called again. `learns` is false if the weights are not expected to change.
    pub(super) fn step<W: Weights, B: MicroBatch, T>(
        &mut self,
        weights: &mut W,
        learns: bool,
        batch: &B,
        part: impl Part<W::Model, B, T>,
    ) -> Result<(Step, Vec<T>), StepError> {
        if batch.is_empty() && self.rank.is_none() {
            return Err(StepError::Empty);
        }
        batch.check()?;
        if self.whole_batch && batch.len() > self.micro_batch() {
            return Err(StepError::WholeBatch { samples: batch.len(), micro_batch: self.micro_batch() });
        }
        let micro_batch = self.micro_batch();
        if self.batch_norms.is_none() {
            check_repeated(&weights.model())?;
            if let Some(path) = other_running_state(&weights.model()) {
                self.warns_of_statistics = true;
                if batch.len() > micro_batch || self.is_shared() {
                    warn_of_running_state(&path);
                }
            }
        }
        let norms = self.batch_norms.get_or_insert_with(|| BatchNorms::from_model(&weights.model()));
        norms.warn(batch.len(), micro_batch);
        // A description may lack the statistics of the model.
        self.warns_of_statistics |= norms.exist && self.steps == 0;
        self.timer.begin();
        // Kernels are compiled and tuned.
        let _progress = (self.steps == 0).then(|| Progress::begin("first step"));
        let mut rescues = Vec::new();
        let rank = self.rank.clone();
        let mut sums = None;
        loop {
            let buffers = Buffers::copy_of(&weights.model());
            let outcome = match &rank {
                Some(rank) => self.distributed_attempt(rank, &mut sums, weights, learns, batch, &part),
                None => self.attempt(weights, learns, batch, &part, !rescues.is_empty()),
            };
            if let Some(buffers) = buffers.filter(|_| !matches!(&outcome, Ok((step, _)) if step.applied)) {
                buffers.restore(&weights.model());
            }
            match outcome {
                Ok((mut step, outputs)) => {
                    rescues.append(&mut step.rescues);
                    let step = Step { rescues, ..step };
                    self.skips.count(&step)?;
                    if self.skips.is_due() {
                        let cause = self.not_finite(weights, batch, &part);
                        self.skips.warn(self.steps + 1, &step, cause.as_ref());
                    }
                    return Ok((self.finished(step), outputs));
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
        part: impl Part<W::Model, B, T>,
        reads_gradients: bool,
    ) -> Result<(Step, Vec<T>), StepFailure> {
        let micro_batch = self.micro_batch();
        let model = weights.model();
        let sum = self.accumulated(weights, &model, batch, part, None)?;
        weights.complete()?;
        // Counted before clipping, which destroys gradients with a norm that is not finite.
        let health = self.health_counts(&sum.gradients, &model)?;
        let (sum, norm) = self.timer.time(Phase::Update, || sum.normalised(&model, self.max_norm, &self.device))?;
        drop(model);
        let AccumulatedGradients { gradients, loss, weights: loss_weights, outputs, .. } = sum;
        let pending = pending_values(loss, norm, loss_weights);
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

    /// Gradients of all micro-batches, which `part` computes one by one. Those of the last one are handed to the sums over ranks, if
    /// there are any.
    pub(super) fn accumulated<W: Weights, B: MicroBatch, T>(
        &mut self,
        weights: &W,
        model: &W::Model,
        batch: &B,
        part: impl Part<W::Model, B, T>,
        sums: Option<&GradientSums>,
    ) -> Result<AccumulatedGradients<T>, StepFailure> {
        let (micro_batch, norms) = (self.micro_batch(), self.batch_norms.unwrap_or_default());
        let is_shared = self.is_shared();
        let is_cut = batch.len() > micro_batch;
        let mut rules = Accumulation {
            micro_batch,
            is_even: norms.exist,
            widens: weights.is_mixed() || is_shared || is_cut,
            weighs: is_cut || self.rank.is_some(),
            checks_variance: norms.checks_variance,
            sums,
            device: &self.device,
            timer: &self.timer,
        };
        let sum = AccumulatedGradients::compute(model, batch, &mut rules, part);
        self.batch_norms = Some(BatchNorms { checks_variance: rules.checks_variance, ..norms });
        sum
    }

    /// First parameter whose gradient is not finite, from a repetition of the step; `None` if memory runs out.
    fn not_finite<W: Weights, B: MicroBatch, T>(
        &mut self,
        weights: &W,
        batch: &B,
        part: impl Part<W::Model, B, T>,
    ) -> Option<LayerHealth> {
        let model = weights.model();
        let buffers = Buffers::copy_of(&model);
        let counted = self.accumulated(weights, &model, batch, part, None).and_then(|sum| {
            weights.complete()?;
            watched(Moment::Backward, || Counts::new(&sum.gradients, &model))?.watched()
        });
        buffers.inspect(|buffers| buffers.restore(&model));
        counted.ok()?.unhealthy().next().cloned()
    }

    /// Updates the parameters group by group, after reading that the gradients were computed.
    fn update_in_groups<W: Weights>(
        &mut self,
        weights: &mut W,
        gradients: &GradientsParams,
        pending: &[Tensor<1>],
        health: Option<Counts>,
    ) -> Result<Update, StepFailure> {
        let values = StepValues::new(&self.read_gradients(pending)?)?;
        let health = health.map(Counts::watched).transpose()?;
        let (rescue, moved) =
            if values.allow_update() { self.change_in_groups(weights, gradients)? } else { (None, None) };
        Ok(Update { values, moved, rescue, health })
    }

    /// Updates all parameters, and keeps the update if its norm is finite.
    fn update_at_once<W: Weights>(
        &mut self,
        weights: &mut W,
        gradients: GradientsParams,
        pending: &[Tensor<1>],
        health: Option<Counts>,
    ) -> Result<Update, StepFailure> {
        let updated = self.updated_at_once(weights, gradients, pending);
        let (new, values, moved) = updated.map_err(|error| with_moment(error, pending))?;
        let health = health.map(Counts::watched).transpose()?;
        let values = StepValues::new(&values[..pending.len()])?;
        if values.allow_update() {
            *weights = new;
        }
        Ok(Update { values, moved, rescue: None, health })
    }

    /// Returns the updated weights, the pending values, and in steps that check for a stall the sum of parameter changes.
    fn updated_at_once<W: Weights>(
        &self,
        weights: &W,
        gradients: GradientsParams,
        pending: &[Tensor<1>],
    ) -> Result<(W, Vec<f32>, Option<f32>), StepFailure> {
        let new = self.timer.time(Phase::Update, || updated(weights, gradients, None))?;
        let moved = self.checks_for_stall().then(|| difference(&weights.master(), &new.master(), |_| true)).flatten();
        let has_moved = moved.is_some();
        let values = pending.iter().cloned().chain(witness(&new.model(), |_| true)).chain(moved).collect();
        let values = self.timer.time(Phase::Drain, || read(values))?;
        let moved = values.last().copied().filter(|_| has_moved);
        Ok((new, values, moved))
    }

    /// Waits for the gradients. Returns the pending values.
    fn read_gradients(&self, pending: &[Tensor<1>]) -> Result<Vec<f32>, StepFailure> {
        let values = self.timer.time(Phase::Drain, || read(pending.to_vec()));
        values.map_err(|error| error.at(Moment::Backward))
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
        let Update { values, moved, rescue, health } = update;
        let StepValues { loss, gradient_norm, weight } = values;
        let is_stalled = |moved| learns && gradient_norm > 0.0 && moved == 0.0;
        let applied = values.allow_update();
        Step {
            loss,
            gradient_norm,
            applied,
            weight: weight.map_or(samples as f64, f64::from),
            samples,
            micro_batches,
            micro_batch,
            rescues: rescue.into_iter().collect(),
            loss_scale: 1.0,
            stalled: moved.map_or(self.stalled, |moved| applied && is_stalled(moved)),
            gradient_health: health,
        }
    }

    /// Returns true in steps that count kinds of gradient values.
    pub(super) fn counts_health(&self) -> bool {
        self.health_every.is_some_and(|every| self.steps.is_multiple_of(every.max(1)))
    }

    /// Counts kinds of gradient values on the device, in the steps that are due.
    pub(super) fn health_counts<M: Module>(
        &self,
        gradients: &GradientsParams,
        model: &M,
    ) -> Result<Option<Counts>, OutOfMemory> {
        self.counts_health().then(|| watched(Moment::Backward, || Counts::new(gradients, model))).transpose()
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

    fn finished(&mut self, step: Step) -> Step {
        self.steps += 1;
        NotReady::step_finished();
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
        step
    }
}

/// Attributes a failure to the optimizer if the pending values can be read, else to the whole step.
fn with_moment(error: StepFailure, pending: &[Tensor<1>]) -> StepFailure {
    let is_optimizers = matches!(&error, StepFailure::OutOfMemory(_)) && read(pending.to_vec()).is_ok();
    error.at(if is_optimizers { Moment::Optimizer } else { Moment::Step })
}
