//! Epochs of Burn's training loop.

use std::iter;

use burn::data::dataloader::Progress;
use burn::train::metric::store::Split;
use burn::train::{
    EventProcessorError, EventProcessorFailure, EventProcessorTraining, InferenceStep, Interrupter, LearnerEvent,
    LearnerModel, MetricError, SupervisedTrainingEventProcessor, TrainLoader, TrainOutput, TrainStep, TrainingItem,
    ValidLoader,
};

use super::fail;
use crate::loss::Weight;
use crate::micro_batch::MicroBatch;
use crate::mixed::LossScale;
use crate::out_of_memory::{Moment, is_out_of_memory, watched};
use crate::timing::Phase;
use crate::train::accumulation::MicroBatchGradients;
use crate::train::batch_check::BatchCheck;
use crate::train::graph::{Factors, check_loss, output};
use crate::train::learning::Learning;
use crate::train::metrics::StepHistory;
use crate::train::outcome::StepError;
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
            output::loss(&item).map_or(Ok(()), |loss| check_loss(&loss, is_mixed))?;
            let weight = weighted::weight(&item).map(Weight::in_step).transpose().map_err(StepError::from)?;
            Ok(MicroBatchGradients { gradients: grads, loss: None, weight, output: item })
        };
        let graphs = self.learning.graphs.clone();
        graphs.lock().begin_step(self.stepper.micro_batch());
        let unscaled = LossScale::none();
        let part = |model: &M, micro: <M as TrainStep>::Input, share: f64| {
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
