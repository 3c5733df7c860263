//! What became of an optimizer step.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::plan::{Plan, PlanError};
use serde::Serialize;
use thiserror::Error;

use super::failure::Moment;
use super::health::GradientHealth;
use super::ranks::Ended;
use crate::measure::MeasureError;
use crate::mixed::MixedError;

/// What an optimizer step did.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Step {
    /// Mean over the samples, in f32.
    pub loss: f32,
    /// Norm of all gradients together, before they were clipped.
    pub gradient_norm: f32,
    /// Whether the parameters were changed. They are not where a gradient is not finite.
    pub applied: bool,
    /// Samples that the step was made of, over all ranks.
    pub samples: usize,
    /// Micro-batches that it was cut into.
    pub micro_batches: usize,
    /// Samples in each of them; the last may hold fewer.
    pub micro_batch: usize,
    /// How often memory ran out on the way.
    pub rescues: Vec<Rescue>,
    /// What the loss was multiplied by so that gradients in f16 do not vanish; 1 for other types.
    pub loss_scale: f64,
    /// Whether training stands still: gradients are not zero, but the optimizer changes no parameter. It is looked after
    /// in the first step and in every hundredth; in between it is as it was seen last.
    pub stalled: bool,
    /// What the gradients of this step are made of, where that was to be counted in it: see
    /// [`Trainer::gradient_health`](super::Trainer::gradient_health).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradient_health: Option<GradientHealth>,
}

/// Memory ran out in a step, and the step was begun again: with smaller micro-batches, or where the optimizer had no
/// memory, with fewer parameters changed at a time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Rescue {
    /// What was done when it was noticed.
    pub moment: Moment,
    /// Samples in a micro-batch before, at most those that the step has on this device.
    pub from: usize,
    /// Samples in a micro-batch after it; as many where they were not to blame.
    pub to: usize,
    /// Bytes of parameters and optimizer state that are held twice after it, where those were to blame: fewer than before.
    pub held_twice: Option<Bytes>,
}

/// Why a session's steps cannot be taken.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TrainerError {
    /// The model cannot be trained in the planned precision as it is.
    #[error(transparent)]
    Mixed(#[from] MixedError),
    /// The program is to be measured, and ranks are not measured by themselves.
    #[error(transparent)]
    Measure(Box<MeasureError>),
    /// The step is shared by several ranks, and gradients would not be exchanged.
    #[error(
        "the global batch is shared by {world_size} ranks, and a trainer of its own would learn from its part alone: take \
         steps with `Session::ranks`"
    )]
    Ranks {
        /// Ranks that the plan is for.
        world_size: u64,
    },
    /// Ranks are in other processes, and Burn's collectives join the devices of one process.
    #[error(
        "the plan is for {world_size} ranks, and this process has {devices} device(s): Burn joins the devices of one process \
         only; take all of them with `Options::gpus`, or plan for fewer ranks"
    )]
    OtherProcesses {
        /// Ranks that the plan is for.
        world_size: u64,
        /// Devices of this process.
        devices: usize,
    },
    /// Each rank would keep its share of the optimizer's state.
    #[error(
        "shard_optimizer is planned, and ranks that exchange gradients hold the whole state of the optimizer each: leave it \
         out, or train with Burn's `ExecutionStrategy::multi` and `MultiDeviceOptim::OptimSharded`"
    )]
    Sharded,
    /// The model is not that of the first rank.
    #[error(
        "the model of rank {rank} has other shapes or types than that of rank 0: ranks train replicas of one model"
    )]
    Replica {
        /// The rank.
        rank: usize,
    },
    /// The ranks were ended.
    #[error(transparent)]
    Ended(#[from] Ended),
}

/// Why an optimizer step could not be taken. The model and the optimizer are as they were before it, unless it says
/// otherwise.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StepError {
    /// The step was to be measured, and that failed.
    #[error(transparent)]
    Measure(#[from] MeasureError),
    /// The batch has no samples.
    #[error("the batch is empty: a step needs at least one sample")]
    Empty,
    /// Not even one sample at a time fits; or, in the optimizer, one parameter at a time.
    #[error(
        "out of memory {moment} with micro-batches of {micro_batch}, and there is nothing smaller{}{}\nBurn says: {message}",
        available(*.memory),
        .plan.as_ref().map(|plan| itemised(plan)).unwrap_or_default()
    )]
    DoesNotFit {
        /// Where it was noticed.
        moment: Moment,
        /// Samples in a micro-batch.
        micro_batch: usize,
        /// Memory that is there for training after everything was given back, where it can be told.
        memory: Option<Bytes>,
        /// What a plan of such micro-batches for that memory says, item by item: that they do not fit, or what they were thought
        /// to take.
        plan: Option<Box<Result<Plan, PlanError>>>,
        /// Burn's words.
        message: String,
    },
    /// Memory ran out in the optimizer, again and again, or the device failed, after a part of the parameters had been changed.
    #[error(
        "the optimizer came to no end: {done} of {all} groups of parameters were changed, and the model is torn between two \
         steps; go on from the last checkpoint\nBurn says: {message}"
    )]
    Torn {
        /// Groups that were changed.
        done: usize,
        /// All groups.
        all: usize,
        /// Burn's words.
        message: String,
    },
    /// Gradients have not been finite for many steps.
    #[error(
        "training stands still: the gradients of {steps} steps in a row were not finite, and nothing was learned from \
         them; lower the learning rate or look for a division by zero in the loss"
    )]
    NotFinite {
        /// Steps in a row.
        steps: u32,
    },
    /// The model cannot be trained in mixed precision as it is.
    #[error(transparent)]
    Mixed(#[from] MixedError),
    /// Memory ran out, again and again, or the device failed, when gradients had been exchanged.
    #[error(
        "a rank could not end its step after gradients were exchanged: the ranks have come apart, go on from the last \
         checkpoint\nBurn says: {message}"
    )]
    Late {
        /// Burn's words.
        message: String,
    },
    /// The ranks that take steps together were ended.
    #[error(transparent)]
    Ended(#[from] Ended),
    /// The device failed for another reason.
    #[error("the device failed in an optimizer step")]
    Device(#[source] burn::tensor::TensorReadError),
}

fn itemised(plan: &Result<Plan, PlanError>) -> String {
    match plan {
        Ok(Plan { memory, settings, .. }) => {
            format!("\nby the plan they fit, with\n{}", memory.itemised(settings.gradient_checkpointing))
        }
        Err(error) => format!("\n{error}"),
    }
}

fn available(memory: Option<Bytes>) -> String {
    memory.map(|memory| format!(": there are {memory} for training")).unwrap_or_default()
}
