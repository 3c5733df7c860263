//! Results and errors of optimizer steps.

use std::error::Error;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::plan::{Plan, PlanError};
use gpu_tuned_observe::recording::StepRecord;
use serde::Serialize;
use thiserror::Error;

use super::health::GradientHealth;
use super::ranks::PeersEnded;
use crate::loss::WeightFault;
use crate::micro_batch::UnequalParts;
use crate::mixed::MixedError;
use crate::out_of_memory::{Moment, OutOfMemory};

/// Result of an optimizer step.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Step {
    /// Mean loss over the samples, or over the [weights](crate::loss::Loss) of the losses, in fp32.
    pub loss: f32,
    /// Global norm of the gradients before clipping.
    pub gradient_norm: f32,
    /// True if the parameters were updated; false if a gradient is not finite, and if all losses have weight 0.
    pub applied: bool,
    /// Sum of the losses' weights over all ranks; the samples where losses have no weight.
    pub weight: f64,
    /// Samples of the step over all ranks.
    pub samples: usize,
    /// Micro-batches of the step on this rank.
    pub micro_batches: usize,
    /// Samples in a micro-batch; the last may have fewer.
    pub micro_batch: usize,
    /// Recoveries from out of memory during the step.
    pub rescues: Vec<Rescue>,
    /// Loss scale, which keeps gradients in fp16 from vanishing; 1 for other types.
    pub loss_scale: f64,
    /// True if training is stalled: gradients are not zero, but the optimizer changes no parameter. Checked in the first step
    /// and in every hundredth; other steps repeat the last result.
    pub stalled: bool,
    /// Counts of NaN, infinite and zero gradients, in steps that count them: see
    /// [`Trainer::gradient_health`](super::Trainer::gradient_health).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradient_health: Option<GradientHealth>,
}

impl Step {
    /// Adds the results to a record of the step. `has_loss` is false where Burn's loop computes the loss.
    pub(super) fn fill(&self, record: &mut StepRecord, has_loss: bool) {
        let finite = |value: f32| Some(f64::from(value)).filter(|value| value.is_finite());
        record.micro_batches = self.micro_batches as u64;
        record.micro_batch = self.micro_batch as u64;
        record.loss = if has_loss { finite(self.loss) } else { None };
        record.gradient_norm = finite(self.gradient_norm);
        record.loss_scale = has_loss.then_some(self.loss_scale);
        record.applied = self.applied;
        record.rescues = self.rescues.len() as u64;
    }
}

/// Recovery from an out-of-memory error: the step was retried without its CUDA graph, with smaller micro-batches, or with fewer
/// parameters updated at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rescue {
    /// Phase in which memory ran out.
    pub moment: Moment,
    /// Samples in a micro-batch before, at most those of the step on this device.
    pub from: usize,
    /// Samples in a micro-batch after; equal if the optimizer ran out of memory, or if a CUDA graph was dropped.
    pub to: usize,
    /// Bytes of parameters and optimizer state that may be allocated twice, if the optimizer ran out of memory.
    pub held_twice: Option<Bytes>,
}

/// Reason why a session has no trainer.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum TrainerError {
    /// The model cannot be trained in the planned precision.
    #[error(transparent)]
    Mixed(#[from] MixedError),
    /// The plan is for several ranks, and this process was not launched as one of them.
    #[error(
        "the plan shares the global batch between {world_size} ranks, and this process is not one of them: start the \
         session with `Options::distributed`, and the program with `cargo gpu-tuned launch --ranks {world_size}`, torchrun, \
         mpirun or srun"
    )]
    Ranks { world_size: u64 },
    /// Burn's own loop does not train with other ranks.
    #[error("Burn's own loop trains in one process: take the steps of several ranks with `Session::trainer`")]
    BurnsLoop,
    /// The ranks train different models, or they were ended.
    #[error(transparent)]
    Peers(PeersEnded),
    /// The loaded optimizer has the state that one of several ranks keeps: see [`Rank::shard_optimizer`](super::Rank::shard_optimizer).
    #[error(
        "the loaded optimizer has the state of {parameters} of {all} trained parameters, the part of one of {ranks} ranks with a \
         sharded optimizer, and the rest is lost: save with `Trainer::save_optimizer` on every rank, and load with \
         `Trainer::load_optimizer`"
    )]
    PartialState {
        /// Trained parameters with state.
        parameters: usize,
        all: usize,
        ranks: usize,
    },
    /// The state of a loaded optimizer cannot be split among ranks. The text is Burn's message.
    #[error("the optimizer's state cannot be split among ranks: {0}")]
    State(String),
}

/// Error of an optimizer step. The model and the optimizer are unchanged, unless a variant documents otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum StepError {
    /// The step was measured in place of being taken, and the measurement failed. The error is a `MeasureError`.
    #[error(transparent)]
    Measure(Box<dyn Error + Send + Sync>),
    /// The batch has no samples.
    #[error("the batch is empty: a step needs at least one sample")]
    Empty,
    /// Parts of the batch differ in length.
    #[error(transparent)]
    Parts(#[from] UnequalParts),
    /// The loss is not one value.
    #[error(
        "the loss has {values} values, and a step minimises one: reduce the loss with `.mean()`, or return its sum divided by a \
         weight, with the weight"
    )]
    LossShape { values: usize },
    /// The loss has a weight that cannot be used.
    #[error(transparent)]
    Weight(#[from] WeightFault),
    /// Two modules have one trained parameter.
    #[error(
        "the trained parameters `{first}` and `{second}` are one, and an optimizer updates one of them: use one module twice in \
         `forward`, or freeze a copy, such as a teacher, with `no_grad()`"
    )]
    Repeated { first: String, second: String },
    /// A batch norm got one value for each channel, of which the variance is zero.
    #[error(
        "the batch norm `{path}` got one value a channel, whose variance is 0: its input has neither height nor width, and the \
         micro-batch has one sample; take at least two samples, or a layer norm"
    )]
    OneValue { path: String },
    /// The learning rate is not a finite number.
    #[error("the learning rate of step {step} is {rate}: check the schedule for a division by zero, and its last step")]
    LearningRate {
        /// Step, counted from 1.
        step: u64,
        rate: f64,
    },
    /// The norm to clip to is not a positive number.
    #[error("`clip_norm({norm})` is not a positive number: gradients are clipped to a norm such as 1.0")]
    ClipNorm { norm: f32 },
    /// The loss is over all samples of a step, and the step does not fit into one micro-batch.
    #[error(
        "the loss is over the whole batch (`whole_batch_loss`), and the step of {samples} samples would be cut into \
         micro-batches of {micro_batch}: gradients of parts are those of another loss; take smaller steps"
    )]
    WholeBatch { samples: usize, micro_batch: usize },
    /// Micro-batches of one sample do not fit; or in the optimizer, groups of one parameter.
    #[error(
        "out of memory {moment} with micro-batches of {micro_batch}, and nothing smaller is left to try{}{}\nBurn reports: {message}",
        available(*.memory),
        .plan.as_ref().map(|plan| itemised(plan)).unwrap_or_default()
    )]
    DoesNotFit {
        moment: Moment,
        micro_batch: usize,
        /// Memory available for training after everything was released, if measured.
        memory: Option<Bytes>,
        /// Plan of such micro-batches for that memory, item by item, or the reason why they do not fit.
        plan: Option<Box<Result<Plan, PlanError>>>,
        message: String,
    },
    /// The update was partially applied: memory ran out repeatedly, or the device failed, after some parameters had changed.
    #[error(
        "partially applied update: {done} of {all} groups of parameters were changed; \
         resume from the last checkpoint\nBurn reports: {message}"
    )]
    Torn { done: usize, all: usize, message: String },
    /// Many steps in a row were skipped.
    #[error(
        "training is stalled: {steps} steps in a row were skipped, because their gradients were not finite or all losses had \
         weight 0; lower the learning rate, or look for a division by zero in the loss"
    )]
    NotFinite { steps: u32 },
    /// The model cannot be trained in mixed precision.
    #[error(transparent)]
    Mixed(#[from] MixedError),
    /// Memory ran out repeatedly, or the device failed, after gradients had been exchanged.
    #[error(
        "a rank could not complete its step after gradients were exchanged, and the ranks differ: resume from the last \
         checkpoint\nBurn reports: {message}"
    )]
    Late { message: String },
    /// The ranks were ended.
    #[error(transparent)]
    Peers(PeersEnded),
    /// The device failed for another reason.
    #[error("the device failed in an optimizer step")]
    Device(#[source] burn::tensor::TensorReadError),
}

fn itemised(plan: &Result<Plan, PlanError>) -> String {
    match plan {
        Ok(Plan { memory, settings, .. }) => {
            format!("\nthe plan predicts that they fit, with\n{}", memory.itemised(settings.gradient_checkpointing))
        }
        Err(error) => format!("\n{error}"),
    }
}

fn available(memory: Option<Bytes>) -> String {
    memory.map(|memory| format!(": {memory} are available for training")).unwrap_or_default()
}

/// Failure of an attempt: out of memory leads to another attempt, an error ends the step.
pub(super) enum StepFailure {
    OutOfMemory(OutOfMemory),
    Error(StepError),
}

impl StepFailure {
    /// Replaces the moment of an out-of-memory error.
    pub(super) fn at(self, moment: Moment) -> Self {
        match self {
            Self::OutOfMemory(failure) => Self::OutOfMemory(OutOfMemory { moment, ..failure }),
            error @ Self::Error(_) => error,
        }
    }

    /// Message of the failure.
    pub(super) fn into_message(self) -> String {
        match self {
            Self::OutOfMemory(failure) => failure.message,
            Self::Error(error) => error.to_string(),
        }
    }

    /// Turns a failure of the device, out-of-memory included, into an error with its message. Keeps other errors.
    pub(super) fn into_final(self, error: impl FnOnce(String) -> StepError) -> Self {
        Self::Error(match self {
            Self::OutOfMemory(failure) => error(failure.message),
            Self::Error(StepError::Device(failure)) => error(failure.to_string()),
            Self::Error(other) => other,
        })
    }
}

impl From<OutOfMemory> for StepFailure {
    fn from(failure: OutOfMemory) -> Self {
        Self::OutOfMemory(failure)
    }
}

impl<E: Into<StepError>> From<E> for StepFailure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}
