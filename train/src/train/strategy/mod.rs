//! Strategy for Burn's own training loop.

mod run;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::process;
use std::sync::{Arc, Mutex, PoisonError};

use burn::data::dataloader::Progress;
use burn::data::dataset::DatasetError;
use burn::module::Module;
use burn::tensor::Device;
use burn::train::train::WorkerFailure;
use burn::train::{
    EventProcessorTraining, Interrupter, Learner, LearnerEvent, LearnerModel, SupervisedLearningStrategy,
    SupervisedTrainingEventProcessor, TrainLoader, TrainStep, TrainingComponents, TrainingError, TrainingStrategy,
    ValidLoader,
};
use gpu_tuned_core::plan::{Plan, Schedule};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Goal, Provenance};
use gpu_tuned_observe::log;

use super::checks::check_parameters;
use super::metrics::StepHistory;
use super::recipe::Recipe;
use super::update::Weights;
use crate::micro_batch::MicroBatch;
use crate::mixed::Half;
use crate::shape::visit_floats;
use run::{Learning, TrainingRun};

/// Takes a learner's first step in place of the strategy.
pub type TakeLearnersFirstStep<M> =
    Box<dyn FnOnce(&Learner<M>, &<M as TrainStep>::Input) -> Result<(), Box<dyn Error + Send + Sync>> + Send>;

/// Strategy that takes the planned steps on one device.
///
/// `first_step` measures the first step in place of taking it.
pub fn strategy<M>(
    recipe: Recipe,
    plan: &Plan,
    workload: &Workload,
    batch_check: BatchCheck,
    history: StepHistory,
    first_step: Option<TakeLearnersFirstStep<M>>,
) -> TrainingStrategy<M>
where
    M: LearnerModel,
    <M as TrainStep>::Input: MicroBatch,
{
    TrainingStrategy::Custom(Arc::new(PlannedSteps {
        recipe,
        batch_check,
        eval_batch: plan.settings.eval_batch_size,
        parameters: workload.trained_parameters(),
        history,
        first_step: Mutex::new(first_step),
    }))
}

/// Why Burn's loop does not train in `mixed_f16`.
const SCALED_LOSS: &str = "mixed_f16 needs a scaled loss, but the model's training step calls `backward` itself: take steps \
     with `Session::trainer`, or set precision = \"mixed_bf16\" or \"f32\"";

/// Planned steps on one device.
struct PlannedSteps<M: LearnerModel> {
    recipe: Recipe,
    batch_check: BatchCheck,
    /// Planned samples of a validation batch.
    eval_batch: u64,
    /// Planned number of trained parameters.
    parameters: (u64, Provenance),
    history: StepHistory,
    first_step: Mutex<Option<TakeLearnersFirstStep<M>>>,
}

impl<M: LearnerModel> PlannedSteps<M> {
    /// Reason why the strategy cannot train a model.
    fn refused(&self, model: &impl Module, accumulation: Option<usize>) -> Option<&'static str> {
        // A move to another device keeps a model's autodiff. Parameters without autodiff are constants.
        let strategy = |device: &Device| device.gradient_checkpointing_strategy();
        if differentiated(model).iter().any(|device| strategy(device) != strategy(&self.recipe.stepper.device)) {
            return Some(
                "the model's device has another activation checkpointing than the plan: create the model on \
                 `session.device()`",
            );
        }
        accumulation
            .is_some()
            .then_some("the session's strategy accumulates gradients as planned: remove `grads_accumulation`")
    }

    /// The learner in the planned precision, or why it cannot be trained in it.
    fn learning(&self, learner: Learner<M>) -> Result<Learning<M>, String> {
        if self.recipe.half == Some(Half::F16) {
            return Err(SCALED_LOSS.to_owned());
        }
        let learning = Learning::new(learner, self.recipe.half, &self.recipe.stepper.device);
        let learning = learning.map_err(|error| error.to_string())?;
        if self.recipe.cuda_graphs {
            learning.graphs.lock().switch_on();
        }
        Ok(learning)
    }

    /// Reports a model that is not ready for 16 bits, after releasing the terminal. Returns without a handler.
    fn when_not_ready(
        &self,
        events: SupervisedTrainingEventProcessor<M>,
        reason: &str,
    ) -> SupervisedTrainingEventProcessor<M> {
        let Some(handler) = self.recipe.stepper.not_ready.handler() else { return events };
        drop(events.renderer());
        handler(reason)
    }
}

impl<M> SupervisedLearningStrategy<M> for PlannedSteps<M>
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
        learner.fork(&self.recipe.stepper.device);
        let train = train.to_device(&self.recipe.stepper.device);
        let refused = self.refused(&learner.model(), components.grad_accumulation);
        check_parameters(self.parameters, &learner.model());
        let end = |learner: &Learner<M>, events, message| {
            fail(&interrupter, message);
            report(&interrupter);
            (learner.model(), events)
        };
        if let Some(reason) = refused {
            return end(&learner, components.event_processor, reason.to_owned());
        }
        let learning = match self.learning(learner.clone()) {
            Ok(learning) => learning,
            Err(message) => {
                let events = self.when_not_ready(components.event_processor, &message);
                return end(&learner, events, message);
            }
        };
        drop(learner);
        if let Some(first_step) = self.first_step.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let Learning { learner, .. } = learning;
            let Err(message) = measure(first_step, &learner, &train) else {
                // Releases the terminal.
                drop(components.event_processor.renderer());
                process::exit(0);
            };
            return end(&learner, components.event_processor, message);
        }
        let valid = valid.to_device(&self.recipe.stepper.device.clone().inner());
        let events = components.event_processor;
        let mut stepper = self.recipe.stepper();
        stepper.health_every = self.history.begin();
        let (batch_check, eval_batch, history) = (Some(self.batch_check), self.eval_batch, self.history.clone());
        let interrupter = &interrupter;
        let not_ready = None;
        let mut run =
            TrainingRun { learning, stepper, batch_check, eval_batch, history, events, interrupter, not_ready };
        for epoch in starting_epoch..=num_epochs {
            if interrupter.should_stop() {
                break;
            }
            run.train(epoch, &train);
            if interrupter.should_stop() {
                break;
            }
            run.validate(epoch, &valid);
            interrupter.fail_on_error(run.events.process_train(LearnerEvent::EndEpoch(epoch)));
            if checkpointer.is_some() || early_stopping.is_some() {
                interrupter.fail_on_error(run.events.flush());
            }
            if interrupter.should_stop() {
                break;
            }
            if let Some(checkpointer) = &mut checkpointer {
                checkpointer.checkpoint(&run.learning.learner, epoch, &event_store);
            }
            if early_stopping.as_mut().is_some_and(|stopping| stopping.should_stop(epoch, &event_store)) {
                break;
            }
        }
        report(interrupter);
        let TrainingRun { learning, events, not_ready, .. } = run;
        let events = match not_ready {
            Some(reason) => self.when_not_ready(events, &reason),
            None => events,
        };
        (learning.master(), events)
    }
}

/// Measures the step of the loader's first batch.
fn measure<M>(first_step: TakeLearnersFirstStep<M>, learner: &Learner<M>, loader: &TrainLoader<M>) -> Result<(), String>
where
    M: LearnerModel,
    <M as TrainStep>::Input: MicroBatch,
{
    // Drops the loader's other batches before the measurement.
    let batch = loader.iter().next().ok_or("nothing to measure: the training loader has no batch")?;
    let batch = batch.map_err(|error| format!("nothing to measure: {error}"))?;
    batch.check().map_err(|error| error.to_string())?;
    first_step(learner, &batch).map_err(|error| error.to_string())
}

/// Prints the error that ended training. Burn's log, which ours goes to, is a file.
fn report(interrupter: &Interrupter) {
    if let Some(error) = interrupter.error() {
        log::print(&format!("training stopped: {error}"));
    }
}

/// Ends training with a message. Burn has no error type for custom strategies.
fn fail(interrupter: &Interrupter, message: String) {
    interrupter.fail(TrainingError::Workers(vec![WorkerFailure { device_id: 0, message }]));
}

/// Expected sizes of a loader's batches.
#[derive(Clone, Copy, Debug)]
pub struct BatchCheck {
    /// Samples of a step on this rank.
    pub(super) step: usize,
    /// Samples of a micro-batch.
    pub(super) micro_batch: usize,
    /// True if the program specifies the size of a step. Otherwise any batch size is accepted, except for the micro-batch of a
    /// larger step.
    is_specified: bool,
}

impl BatchCheck {
    /// Expects the steps of `schedule`, planned for `goal`.
    pub fn new(schedule: &Schedule, goal: &Goal) -> Self {
        let size = |samples: u64| usize::try_from(samples).unwrap_or(usize::MAX);
        Self {
            step: size(schedule.samples_per_rank()),
            micro_batch: size(schedule.micro_batch),
            // The number of padded sequences in a step varies with their tokens.
            is_specified: goal.global_batch.is_some() || goal.global_tokens.is_some() && goal.mean_tokens.is_none(),
        }
    }

    /// Takes one or two batches from an epoch to check their sizes, and returns them.
    ///
    /// # Errors
    ///
    /// A message unless they are whole steps.
    pub(super) fn checked<B: MicroBatch>(
        self,
        batches: &mut impl Iterator<Item = Loaded<B>>,
    ) -> Result<Vec<Loaded<B>>, String> {
        // An empty batch is an error of the step.
        let samples = |(batch, _): &Loaded<B>| batch.as_ref().ok().map(B::len).filter(|samples| *samples > 0);
        let mut first = Vec::from_iter(batches.next());
        if let Some(batch) = first.first().and_then(samples).filter(|batch| self.is_undecided(*batch)) {
            first.extend(batches.next());
            let next = first.get(1).and_then(samples);
            if batch > self.step || next.is_some_and(|next| next != self.step) {
                return Err(format!(
                    "a batch of the training loader has {batch} samples, and an optimizer step has {}: build the loader with \
                     `.batch_size(session.schedule().samples_per_rank() as usize)`, which is cut into micro-batches; or, if its \
                     batches are the intended steps, write `global_batch = batch_size` in `#[gpu_tuned(…)]`, with a field that \
                     is not `#[tuned]`",
                    self.step
                ));
            }
        }
        Ok(first)
    }

    /// Returns true if the next batch decides. The first may be the smaller one of the epoch, which comes early with several
    /// workers.
    fn is_undecided(self, batch: usize) -> bool {
        batch != self.step && (self.is_specified || batch == self.micro_batch)
    }
}

/// Batch or error of a loader, with the progress of the epoch.
type Loaded<B> = (Result<B, DatasetError>, Progress);

/// Devices of the float parameters that have autodiff, one a parameter. A module's own list merges devices that differ only
/// in activation checkpointing.
pub fn differentiated(model: &impl Module) -> Vec<Device> {
    visit_floats!(model, devices = Vec::new(), Vec<Device>, |param| {
        let device = param.val().device();
        if device.gradient_checkpointing_strategy().is_some() {
            devices.push(device);
        }
    })
}
