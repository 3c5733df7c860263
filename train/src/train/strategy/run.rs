//! Epochs of Burn's training loop.

use std::iter;

use burn::data::dataloader::Progress;
use burn::module::ParamId;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use burn::train::metric::store::Split;
use burn::train::{
    EventProcessorError, EventProcessorFailure, EventProcessorTraining, InferenceStep, Interrupter, Learner,
    LearnerEvent, LearnerModel, MetricError, SupervisedTrainingEventProcessor, TrainLoader, TrainOutput, TrainStep,
    TrainingItem, ValidLoader,
};

use super::{BatchCheck, fail};
use crate::micro_batch::MicroBatch;
use crate::mixed::{Half, LossScale, Master, MixedError, in_parameter_types};
use crate::out_of_memory::{Moment, OutOfMemory, is_out_of_memory, watched};
use crate::timing::Phase;
use crate::train::accumulation::MicroBatchGradients;
use crate::train::graph::memory::output_loss;
use crate::train::graph::{Factors, SharedGraphs, check_loss};
use crate::train::metrics::StepHistory;
use crate::train::outcome::StepError;
use crate::train::ranks::GradientSums;
use crate::train::rescue::release_memory;
use crate::train::stepper::Stepper;
use crate::train::update::Weights;
use crate::train::weighted;

/// Training run over all epochs.
pub(super) struct TrainingRun<'f, M: LearnerModel> {
    pub learning: Learning<M>,
    pub stepper: Stepper,
    /// Pending check of the first batches.
    pub batch_check: Option<BatchCheck>,
    /// Planned samples of a validation batch.
    pub eval_batch: u64,
    pub history: StepHistory,
    pub events: SupervisedTrainingEventProcessor<M>,
    pub interrupter: &'f Interrupter,
    /// Why the model is not ready for 16 bits, found by the first step.
    pub not_ready: Option<String>,
}

impl<M> TrainingRun<'_, M>
where
    M: LearnerModel,
    <M as TrainStep>::Input: MicroBatch,
{
    pub(super) fn train(&mut self, epoch: usize, loader: &TrainLoader<M>) {
        let start = LearnerEvent::StartSplit { epoch_number: epoch, total_items: loader.num_items() };
        self.interrupter.fail_on_error(self.events.process_train(start));
        let mut all = loader.iter();
        let mut rest = iter::from_fn(|| all.next().map(|batch| (batch, all.progress()))).fuse();
        let first = self.batch_check.take().map_or_else(|| Ok(Vec::new()), |check| check.checked(&mut rest));
        let first = first.unwrap_or_else(|message| {
            fail(self.interrupter, message);
            Vec::new()
        });
        let mut batches = first.into_iter().chain(rest);
        let mut iteration = 0;
        while !self.interrupter.should_stop()
            && let Some((batch, progress)) = batches.next()
        {
            match batch {
                Ok(batch) => {
                    iteration += 1;
                    self.step(&batch, &progress, iteration);
                }
                Err(error) => self.interrupter.fail(error),
            }
        }
        self.interrupter.fail_on_error(self.events.process_train(LearnerEvent::EndSplit(epoch)));
    }

    fn step(&mut self, batch: &<M as TrainStep>::Input, progress: &Progress, iteration: usize) {
        // Called once a step, however many attempts it takes.
        self.learning.learner.lr_step();
        let rate = self.learning.learner.lr_current();
        if !rate.base().is_finite() {
            let error = StepError::LearningRate { step: self.stepper.steps + 1, rate: rate.base() };
            return fail(self.interrupter, error.to_string());
        }
        let is_mixed = self.learning.is_mixed();
        let timer = self.stepper.timer.clone();
        let differentiate = |model: &M, micro: <M as TrainStep>::Input, _: Factors<'_>| {
            let step = || watched(Moment::Backward, || TrainStep::step(model, micro));
            let TrainOutput { grads, item } = timer.time(Phase::LossAndBackward, step)?;
            output_loss(&item).map_or(Ok(()), |loss| check_loss(&loss, is_mixed))?;
            let weight = weighted::parts(&item).map(|(_, weight)| weight.clone().in_step());
            let weight = weight.transpose().map_err(StepError::from)?;
            Ok(MicroBatchGradients { gradients: grads, loss: None, weight, output: item })
        };
        let graphs = self.learning.graphs.clone();
        graphs.lock().begin_step(self.stepper.micro_batch());
        let unscaled = LossScale::none();
        let part = |model: &M, micro: <M as TrainStep>::Input, share: f64, _: Option<&GradientSums>| {
            // The share is multiplied into other memory, which later replays leave alone.
            let gradients = graphs.lock().differentiate(model, micro, (1.0, &unscaled), &differentiate)?;
            let number = if gradients.weight.is_some() { 1.0 } else { share };
            Ok((gradients, number))
        };
        match self.stepper.step(&mut self.learning, rate.base() != 0.0, batch, part) {
            Ok((step, outputs)) => {
                timer.end(step.samples, &self.stepper.device, |record| step.fill(record, false));
                self.history.push(iteration, &step);
                for item in outputs {
                    let (progress, lr) = (progress.clone(), Some(rate.clone()));
                    let item = TrainingItem { item, progress, iteration: Some(iteration), lr };
                    self.interrupter.fail_on_error(self.events.process_train(LearnerEvent::ProcessedItem(item)));
                }
            }
            Err(error) => {
                if let StepError::Mixed(reason) = &error {
                    self.not_ready = Some(reason.to_string());
                }
                fail(self.interrupter, error.to_string());
            }
        }
    }

    pub(super) fn validate(&mut self, epoch: usize, loader: &ValidLoader<M>) {
        let start = LearnerEvent::StartSplit { epoch_number: epoch, total_items: loader.num_items() };
        let started = self.events.process_valid(start);
        self.validated(epoch, started);
        let model = self.learning.model().valid();
        let mut batches = loader.iter();
        let mut iteration = 0;
        while let Some(batch) = batches.next() {
            match batch.map(|batch| watched(Moment::Forward, || InferenceStep::step(&model, batch))) {
                Ok(Ok(item)) => {
                    iteration += 1;
                    let progress = batches.progress();
                    let item = TrainingItem { item, progress, iteration: Some(iteration), lr: None };
                    let processed = self.events.process_valid(LearnerEvent::ProcessedItem(item));
                    self.validated(epoch, processed);
                }
                Ok(Err(failure)) => self.out_of_memory(epoch, &failure.message),
                Err(error) => self.interrupter.fail(error),
            }
            if self.interrupter.should_stop() {
                break;
            }
        }
        let ended = self.events.process_valid(LearnerEvent::EndSplit(epoch));
        self.validated(epoch, ended);
        // A failure on the device shows when the metrics' thread reads values.
        let read = self.events.flush();
        self.validated(epoch, read);
    }

    /// Ends training if validation failed.
    fn validated(&self, epoch: usize, outcome: Result<(), EventProcessorError>) {
        match outcome {
            Err(error) if error.failures().iter().any(is_out_of_memory_in_validation) => {
                self.out_of_memory(epoch, &error.to_string());
            }
            other => self.interrupter.fail_on_error(other),
        }
    }

    /// Ends training after an out-of-memory error in validation. The batch is not retried, because metrics may have counted it before
    /// the failure shows.
    fn out_of_memory(&self, epoch: usize, message: &str) {
        release_memory(&self.stepper.device);
        let text = format!(
            "out of memory in the validation of epoch {epoch}: validation batches are not cut; build the validation loader \
             with a smaller `batch_size` ({} is planned as `eval_batch_size`)\nBurn reports: {message}",
            self.eval_batch
        );
        fail(self.interrupter, text);
    }
}

/// Returns true for an out-of-memory error in validation.
fn is_out_of_memory_in_validation(failure: &EventProcessorFailure) -> bool {
    let (EventProcessorFailure::Metric(MetricError { split, .. }) | EventProcessorFailure::Sync { split, .. }) =
        failure;
    *split == Split::Valid && is_out_of_memory(&failure.to_string())
}

/// Learner of Burn's loop, and in mixed precision the 16-bit copy of its model.
#[derive(Clone)]
pub(super) struct Learning<M: LearnerModel> {
    pub learner: Learner<M>,
    /// Copy that computes.
    copy: Option<(Half, M)>,
    /// Recorded micro-steps, which all clones share.
    pub graphs: SharedGraphs<M, <M as TrainStep>::Output>,
}

impl<M: LearnerModel> Learning<M> {
    /// The learner on `device`, in mixed precision with `half`.
    pub(super) fn new(mut learner: Learner<M>, half: Option<Half>, device: &Device) -> Result<Self, MixedError> {
        let graphs = SharedGraphs::new(device);
        let Some(half) = half else { return Ok(Self { learner, copy: None, graphs }) };
        let master = Master::new(learner.model(), half)?;
        let copy = master.compute_copy();
        // A learner accepts a record, with any types, but no other model.
        learner.load_model(master.into_model().into_record());
        Ok(Self { learner, copy: Some((half, copy)), graphs })
    }
}

impl<M: LearnerModel> Weights for Learning<M> {
    type Model = M;

    fn model(&self) -> M {
        match &self.copy {
            Some((_, copy)) => copy.clone(),
            None => self.learner.model(),
        }
    }

    fn master(&self) -> M {
        self.learner.model()
    }

    fn updated(&self, gradients: GradientsParams, group: Option<&[ParamId]>) -> Self {
        let mut learner = self.learner.clone();
        let gradients = in_parameter_types(gradients, &learner.model());
        learner.optimizer_step(gradients);
        let copy = self.copy.as_ref().map(|(half, copy)| {
            let master = Master::new(learner.model(), *half).expect("BUG: its statistics were checked before");
            (*half, master.refreshed(copy.clone(), group))
        });
        Self { learner, copy, graphs: self.graphs.clone() }
    }

    fn replaced(&self, _: GradientsParams) -> Self {
        unreachable!("BUG: ranks take their steps with a trainer")
    }

    fn learning_rate(&self) -> f64 {
        self.learner.lr_current().base()
    }

    fn is_mixed(&self) -> bool {
        self.copy.is_some()
    }

    fn complete(&self) -> Result<(), OutOfMemory> {
        self.graphs.lock().hand_back(&self.model())
    }

    fn release(&self) -> bool {
        self.graphs.lock().release()
    }
}

#[cfg(test)]
mod tests;
