//! The session's steps in Burn's own training loop.

use std::iter;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use burn::data::dataloader::Progress;
use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::Device;
use burn::train::metric::store::Split;
use burn::train::{
    EventProcessorError, EventProcessorFailure, EventProcessorTraining, InferenceStep, Interrupter, Learner,
    LearnerEvent, LearnerModel, MetricError, SupervisedLearningStrategy, SupervisedTrainingEventProcessor, TrainLoader,
    TrainOutput, TrainStep, TrainingComponents, TrainingError, TrainingItem, TrainingStrategy, ValidLoader,
    train::WorkerFailure,
};
use gpu_tuned_core::Provenance;
use thiserror::Error;

use super::attempt::Part;
use super::doubts::tell_of_another_model;
use super::failure::{Moment, is_out_of_memory, watched};
use super::learning::{Learning, share_added};
use super::metrics::Record;
use super::rescue::give_back;
use super::session::Recipe;
use super::stepper::Stepper;
use super::update::Weights;
use super::whole::WholeSteps;
use super::{MicroBatch, TrainerError, differentiated};
use crate::course::Phase;
use crate::measure::{Case, MeasureError};
use crate::mixed::Half;
use crate::session::Session;
use crate::tuned::Tuned;

impl<C: Tuned> Session<C> {
    /// Burn's training loop with the session's optimizer steps: for
    /// [`SupervisedTraining::with_training_strategy`](burn::train::SupervisedTraining::with_training_strategy).
    ///
    /// The training loader's batches are those of whole optimizer steps on one rank, as
    /// [`Schedule::samples_per_rank`](crate::Schedule::samples_per_rank) says. Each is cut into micro-batches that fit, as a
    /// [`Trainer`](super::Trainer) does it, and begun again with smaller ones where memory runs out. Metrics see every
    /// micro-batch; the learning rate is asked for once a step; the loop's own accumulation of gradients is not to be set.
    ///
    /// A loader whose batches are of another size ends training with an error before the first step. Looked at is where the
    /// first epoch begins: one batch may be smaller there, as the last one of an epoch is, which comes early where several
    /// workers load. Where the program says neither `global_batch` nor, of full sequences, `global_tokens`, its batches may
    /// be of any size but that of the micro-batches of which a step has several.
    ///
    /// What the model's training step returns for metrics stays on the device until the optimizer step is taken, since a step
    /// that is begun again shows nothing twice. Of a `ClassificationOutput` these are the logits of all samples of the step, and
    /// no plan counts more than those of one micro-batch. Where they are large, return an output of your own with the loss alone,
    /// or leave more memory alone (`memory_headroom`).
    ///
    /// Batches of the validation loader are taken as they are. Where memory runs out for one, training ends with an error that
    /// says so, and names the planned `eval_batch_size`.
    ///
    /// Under `cargo gpu-tuned measure` the first step is measured in place of being taken, and the process ends: see
    /// [`measure`](crate::measure).
    ///
    /// [`metrics`](Self::metrics) of what its steps do are made by the session, too.
    ///
    /// In `mixed_bf16` the learner's model is widened to f32, which is what checkpoints hold and what comes back; a copy in
    /// bf16 computes and is validated. `mixed_f16` is refused: the loss would have to be scaled within the model's own
    /// training step.
    ///
    /// # Errors
    ///
    /// [`TrainerError::Ranks`] for a plan of several ranks: Burn's loop for several devices reduces within every backward
    /// pass, so that a rank which begins its micro-batches again would leave the others waiting. Take steps with
    /// [`ranks`](Self::ranks).
    pub fn strategy<M>(&self) -> Result<TrainingStrategy<M>, TrainerError>
    where
        M: LearnerModel,
        <M as TrainStep>::Input: MicroBatch,
    {
        let recipe = Recipe::alone(self)?;
        Ok(TrainingStrategy::Custom(Arc::new(Steps {
            device: self.device(),
            recipe,
            whole: WholeSteps::of(self),
            eval_batch: self.plan().settings.eval_batch_size,
            parameters: self.workload().trained_parameters(),
            record: self.record.clone(),
            measured: Mutex::new(self.measured_case()),
        })))
    }
}

/// Training step by step on one device.
struct Steps {
    device: Device,
    recipe: Recipe,
    whole: WholeSteps,
    /// Samples that are planned for validation at a time.
    eval_batch: u64,
    /// That were planned for.
    parameters: (u64, Provenance),
    record: Record,
    /// What is measured in place of the first step, if that is asked for.
    measured: Mutex<Option<Case>>,
}

/// What is needed over all epochs.
struct Fit<'f, M: LearnerModel> {
    learning: Learning<M>,
    stepper: Stepper,
    /// Until batches were looked at.
    whole: Option<WholeSteps>,
    eval_batch: u64,
    record: Record,
    events: SupervisedTrainingEventProcessor<M>,
    interrupter: &'f Interrupter,
}

impl Steps {
    /// Why it cannot train at all.
    fn refused(&self, model: &impl Module, accumulation: Option<usize>) -> Option<&'static str> {
        // Moving a model leaves its autodiff as it is. Parameters without autodiff are constants whatever is planned.
        let strategy = |device: &Device| device.gradient_checkpointing_strategy();
        if differentiated(model).iter().any(|device| strategy(device) != strategy(&self.device)) {
            return Some(
                "the model was made on a device whose gradient checkpointing is not that of the plan: make it on \
                 `session.device()`",
            );
        }
        if accumulation.is_some() {
            return Some("the session's strategy accumulates gradients by its plan: leave `grads_accumulation` out");
        }
        (self.recipe.half() == Some(Half::F16)).then_some(
            "mixed_f16 needs the loss scaled where the model's training step calls `backward`, which the strategy cannot \
             reach: take steps with `Session::trainer`, or use mixed_bf16",
        )
    }
}

impl<M> SupervisedLearningStrategy<M> for Steps
where
    M: LearnerModel,
    <M as TrainStep>::Input: MicroBatch,
{
    fn fit(
        &self,
        components: TrainingComponents<M>,
        mut learner: Learner<M>,
        train: TrainLoader<M>,
        valid: ValidLoader<M>,
        starting_epoch: usize,
    ) -> (M, SupervisedTrainingEventProcessor<M>) {
        let TrainingComponents { num_epochs, mut checkpointer, mut early_stopping, event_store, interrupter, .. } =
            components;
        learner.fork(&self.device);
        let train = train.to_device(&self.device);
        let refused = self.refused(&learner.model(), components.grad_accumulation);
        tell_of_another_model(self.parameters, &learner.model());
        let measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(case) = measured {
            match measure(case, &learner, &train) {
                Ok(()) => {
                    // It may hold the terminal.
                    drop(components.event_processor.renderer());
                    process::exit(0);
                }
                Err(error) => {
                    fail(&interrupter, error.to_string());
                    return (learner.model(), components.event_processor);
                }
            }
        }
        let learning = match Learning::new(learner.clone(), self.recipe.half().filter(|_| refused.is_none())) {
            Ok(learning) => learning,
            Err(error) => {
                fail(&interrupter, error.to_string());
                return (learner.model(), components.event_processor);
            }
        };
        drop(learner);
        if let Some(reason) = refused {
            fail(&interrupter, reason.to_owned());
        }
        let valid = valid.to_device(&self.device.clone().inner());
        let events = components.event_processor;
        let mut stepper = self.recipe.stepper();
        stepper.health_every = self.record.begin();
        let (whole, eval_batch, record) = (Some(self.whole), self.eval_batch, self.record.clone());
        let mut fit = Fit { learning, stepper, whole, eval_batch, record, events, interrupter: &interrupter };
        for epoch in starting_epoch..=num_epochs {
            if interrupter.should_stop() {
                break;
            }
            fit.train(epoch, &train);
            if interrupter.should_stop() {
                break;
            }
            fit.validate(epoch, &valid);
            interrupter.fail_on_error(fit.events.process_train(LearnerEvent::EndEpoch(epoch)));
            if checkpointer.is_some() || early_stopping.is_some() {
                interrupter.fail_on_error(fit.events.flush());
            }
            if interrupter.should_stop() {
                break;
            }
            if let Some(checkpointer) = &mut checkpointer {
                checkpointer.checkpoint(&fit.learning.learner, epoch, &event_store);
            }
            if early_stopping.as_mut().is_some_and(|stopping| stopping.should_stop(epoch, &event_store)) {
                break;
            }
        }
        (fit.learning.master(), fit.events)
    }
}

impl<M> Fit<'_, M>
where
    M: LearnerModel,
    <M as TrainStep>::Input: MicroBatch,
{
    fn train(&mut self, epoch: usize, loader: &TrainLoader<M>) {
        let start = LearnerEvent::StartSplit { epoch_number: epoch, total_items: loader.num_items() };
        self.interrupter.fail_on_error(self.events.process_train(start));
        let mut all = loader.iter();
        let mut rest = iter::from_fn(|| all.next().map(|batch| (batch, all.progress()))).fuse();
        let begun = self.whole.take().map_or_else(|| Ok(Vec::new()), |whole| whole.begun(&mut rest));
        let begun = begun.unwrap_or_else(|error| {
            fail(self.interrupter, error.to_string());
            Vec::new()
        });
        let mut batches = begun.into_iter().chain(rest);
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
        // Once, however often the step is begun.
        self.learning.learner.lr_step();
        let rate = self.learning.learner.lr_current();
        let is_mixed = self.learning.is_mixed();
        let clock = self.stepper.clock.clone();
        let part = |model: &M, micro: <M as TrainStep>::Input, share: f64, sum: GradientsParams| {
            let step = || watched(Moment::Backward, || TrainStep::step(model, micro));
            let TrainOutput { grads, item } = clock.time(Phase::LossAndBackward, step)?;
            let gradients = watched(Moment::Backward, || share_added(is_mixed, model, sum, grads, share))??;
            Ok(Part { gradients, loss: None, output: item })
        };
        match self.stepper.step(&mut self.learning, rate.base() != 0.0, batch, part) {
            Ok((step, outputs)) => {
                clock.took(&step, false, &self.stepper.device);
                self.record.took(iteration, &step);
                for item in outputs {
                    let (progress, lr) = (progress.clone(), Some(rate.clone()));
                    let item = TrainingItem { item, progress, iteration: Some(iteration), lr };
                    self.interrupter.fail_on_error(self.events.process_train(LearnerEvent::ProcessedItem(item)));
                }
            }
            Err(error) => fail(self.interrupter, error.to_string()),
        }
    }

    fn validate(&mut self, epoch: usize, loader: &ValidLoader<M>) {
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
                Ok(Err(failure)) => self.has_no_memory(epoch, failure.message),
                Err(error) => self.interrupter.fail(error),
            }
            if self.interrupter.should_stop() {
                break;
            }
        }
        let ended = self.events.process_valid(LearnerEvent::EndSplit(epoch));
        self.validated(epoch, ended);
        // What failed on the device is seen where metrics are read, in a thread of their own.
        let read = self.events.flush();
        self.validated(epoch, read);
    }

    /// Ends training if validation failed.
    fn validated(&self, epoch: usize, outcome: Result<(), EventProcessorError>) {
        match outcome {
            Err(error) if error.failures().iter().any(is_validations) => self.has_no_memory(epoch, error.to_string()),
            other => self.interrupter.fail_on_error(other),
        }
    }

    /// Ends training that has no memory for validation. A batch is not tried again: only some of its failures are seen before
    /// metrics have counted it.
    fn has_no_memory(&self, epoch: usize, message: String) {
        give_back(&self.stepper.device);
        fail(self.interrupter, Unvalidated { epoch, planned: self.eval_batch, message }.to_string());
    }
}

/// Whether memory ran out for a batch of validation.
fn is_validations(failure: &EventProcessorFailure) -> bool {
    let (EventProcessorFailure::Metric(MetricError { split, .. }) | EventProcessorFailure::Sync { split, .. }) =
        failure;
    *split == Split::Valid && is_out_of_memory(&failure.to_string())
}

/// Memory ran out in validation.
#[derive(Debug, Error)]
#[error(
    "out of memory in the validation of epoch {epoch}: batches of the validation loader are not cut into smaller ones; build it \
     with a smaller `batch_size`, for which {planned} is planned (`eval_batch_size`)\nBurn says: {message}"
)]
struct Unvalidated {
    epoch: usize,
    planned: u64,
    message: String,
}

/// Measures the step of the loader's first batch.
fn measure<M>(case: Case, learner: &Learner<M>, loader: &TrainLoader<M>) -> Result<(), Unmeasured>
where
    M: LearnerModel,
    <M as TrainStep>::Input: MicroBatch,
{
    // The loader's other batches are let go before anything is measured.
    let batch = loader.iter().next().ok_or(Unmeasured::NoBatch)?;
    Ok(case.of_learner(learner, &batch.map_err(|error| Unmeasured::Loader(error.to_string()))?)?)
}

/// Why a step of Burn's loop was not measured.
#[derive(Debug, Error)]
enum Unmeasured {
    #[error("there is nothing to measure: the training loader has no batch")]
    NoBatch,
    #[error("there is nothing to measure: {0}")]
    Loader(String),
    #[error(transparent)]
    Measure(#[from] MeasureError),
}

/// Ends training with a message; Burn has no error for what a strategy of one's own may meet.
fn fail(interrupter: &Interrupter, message: String) {
    interrupter.fail(TrainingError::Workers(vec![WorkerFailure { device_id: 0, message }]));
}

#[cfg(test)]
#[path = "strategy_tests.rs"]
mod tests;
