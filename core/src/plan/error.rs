use thiserror::Error;

use super::misfit::Misfit;
use crate::Precision;

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum PlanError {
    /// A figure of the goal is out of range.
    #[error("{message}")]
    Goal {
        /// The key and the range.
        message: String,
    },
    /// The ranks cannot share the global batch evenly.
    #[error(
        "a global batch of {global_batch} cannot be shared by {world_size} ranks; {} would do",
        would_do.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ")
    )]
    WorldSize {
        /// Samples in an optimizer step.
        global_batch: u64,
        /// Ranks asked for.
        world_size: u64,
        /// The nearest numbers of ranks that divide the global batch.
        would_do: Vec<u64>,
    },
    /// The tokens of an optimizer step are no whole number of samples on each rank.
    #[error(
        "global_tokens = {global_tokens} is no multiple of {step}, one sample of {sample} tokens for each of {world_size} ranks; {} would do",
        would_do.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ")
    )]
    Tokens {
        /// Tokens asked for.
        global_tokens: u64,
        /// Tokens in a sample.
        sample: u64,
        /// Ranks that share the step.
        world_size: u64,
        /// Tokens of one sample on each rank.
        step: u64,
        /// The nearest numbers of tokens that would do.
        would_do: Vec<u64>,
    },
    /// The model knows no tokens, or a sample has fewer than said.
    #[error("{message}")]
    NoTokens {
        /// The missing part, and the remedy.
        message: String,
    },
    /// The settings that the user fixed do not make up the global batch.
    #[error("{}", pins_message(*batch_size, *gradient_accumulation, *samples))]
    Pins {
        /// The micro-batch, where fixed.
        batch_size: Option<u64>,
        /// The micro-batches in a step, where fixed.
        gradient_accumulation: Option<u64>,
        /// Samples of an optimizer step on one rank.
        samples: u64,
    },
    /// Burn cannot train on this GPU.
    #[error("{device} cannot train: {reason}; choose another GPU")]
    GpuUnsupported {
        /// The device.
        device: String,
        /// The reason.
        reason: String,
    },
    /// The device has no units for this precision.
    #[error("{device} has no {} tensor cores for {precision}; use f32", if precision.needs_bf16() { "bf16" } else { "fp16" })]
    PrecisionUnsupported {
        /// The precision asked for.
        precision: Precision,
        /// The device.
        device: String,
    },
    /// No micro-batch fits, not even the one that needs the least.
    #[error("{0}{help}", help = .0.help())]
    DoesNotFit(Box<Misfit>),
}

impl PlanError {
    /// Returns true if another device may be planned for: this one has too little memory, lacks the precision, or is too
    /// old. Other errors are mistakes in the goal.
    pub const fn is_of_device(&self) -> bool {
        matches!(self, Self::DoesNotFit(_) | Self::PrecisionUnsupported { .. } | Self::GpuUnsupported { .. })
    }
}

fn pins_message(batch: Option<u64>, steps: Option<u64>, samples: u64) -> String {
    match (batch, steps) {
        (Some(batch), Some(steps)) => {
            format!(
                "batch_size = {batch} and gradient_accumulation = {steps} do not make up the {samples} samples of a step"
            )
        }
        (Some(batch), None) => format!("batch_size = {batch} is not between 1 and the {samples} samples of a step"),
        (None, steps) => format!(
            "{samples} samples of a step cannot be cut into gradient_accumulation = {} micro-batches of one size and a rest",
            steps.unwrap_or_default()
        ),
    }
}
