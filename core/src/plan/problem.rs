//! The problem that the planner solves: the goal with its mistakes, in samples, and the reasons why there is no plan.

use thiserror::Error;

use super::misfit::Misfit;
use crate::device::DeviceFacts;
use crate::dims::Schema as _;
use crate::workload::Workload;
use crate::{Goal, Precision, PrecisionPolicy, SettingValue};

/// A device, the workload to train on it, and the goal of the run.
#[derive(Clone, Copy)]
pub(super) struct Problem<'a> {
    pub device: &'a DeviceFacts,
    pub workload: &'a Workload,
    pub goal: &'a Goal,
}

impl Problem<'_> {
    /// Checks the goal and the device, and returns the goal in samples.
    pub(super) fn goal_in_samples(&self) -> Result<Goal, PlanError> {
        self.goal.check()?;
        if let Some(reason) = self.device.refusal.clone() {
            return Err(PlanError::GpuUnsupported { device: self.device.name.clone(), reason });
        }
        let goal = self.goal.in_samples(self.workload)?;
        // Tokens in samples may contradict a fixed micro-batch.
        goal.check().map(|()| goal)
    }
}

impl Goal {
    /// Fraction of the headroom that stays free on a probed GPU. The rest is reserved for other processes, and a
    /// probe measures their memory.
    pub const HEADROOM_KEPT: f64 = 0.5;

    /// Returns true if the planner chooses the precision.
    pub fn plans_precision(&self) -> bool {
        self.precision == Some(PrecisionPolicy::Auto) && self.pins.precision.is_none()
    }

    /// Errors in the goal, as `(key, message)`.
    pub fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found = self.out_of_range();
        if self.global_tokens.is_some() && self.global_batch.is_some() {
            let message = "global_tokens and global_batch both set the size of an optimizer step: keep one of them";
            found.push(("global_tokens", message.to_owned()));
        }
        if self.mean_tokens.is_some() && self.global_tokens.is_none() {
            let message = "mean_tokens converts global_tokens to samples, and global_tokens is not given";
            found.push(("mean_tokens", message.to_owned()));
        }
        found.extend(self.cut_of_whole_batch());
        for (setting, value) in self.pins.iter() {
            // The planner has an error of its own for 0.
            let mistake = setting.out_of_range(value).filter(|_| value != SettingValue::Count(0));
            found.extend(mistake.map(|message| (setting.name(), format!("{setting} = {message}"))));
        }
        found
    }

    /// A request that cuts a loss over the whole batch, as `(key, message)`.
    fn cut_of_whole_batch(&self) -> Option<(&'static str, String)> {
        let (batch, micro_steps) = (self.pins.batch_size, self.pins.gradient_accumulation);
        let step = self.global_batch.unwrap_or_default();
        let is_part = |batch: &u64| (1..step).contains(batch);
        let ranks = (self.world_size > 1)
            .then(|| ("world_size", format!("{} ranks share each step", self.world_size), "train on one rank"));
        let micro_steps = micro_steps.filter(|count| *count > 1).map(|count| {
            let what = format!("a step has {count} micro-batches");
            ("gradient_accumulation", what, "leave gradient_accumulation to the planner")
        });
        let batch = batch.filter(is_part).map(|batch| {
            let what = format!("batch_size = {batch} is less than the {step} samples of a step");
            ("batch_size", what, "leave batch_size to the planner")
        });
        let (key, what, remedy) = ranks.or(micro_steps).or(batch).filter(|_| self.whole_batch_loss)?;
        let why = "whole_batch_loss needs a step as one micro-batch on one rank: gradients of parts of a batch are those of \
                   another loss";
        Some((key, format!("{what}, but {why}; {remedy}, or {CACHED_EMBEDDINGS}")))
    }

    /// Returns the first of the [`mistakes`](Self::mistakes) as an error.
    fn check(&self) -> Result<(), PlanError> {
        let mistake = self.mistakes().into_iter().next();
        mistake.map_or(Ok(()), |(_, message)| Err(PlanError::Goal { message }))
    }

    /// The goal with its tokens, where it is stated in tokens, turned into a global batch of samples.
    ///
    /// # Errors
    ///
    /// When the model has no tokens, or they make up no whole number of samples on each rank.
    pub fn in_samples(&self, workload: &Workload) -> Result<Self, PlanError> {
        let Some(global_tokens) = self.global_tokens else { return Ok(self.clone()) };
        let samples = samples(self, global_tokens, workload)?;
        Ok(Self { global_batch: Some(samples), global_tokens: None, mean_tokens: None, ..self.clone() })
    }
}

/// Remedy for a loss over a batch that is too large for one micro-batch.
pub(super) const CACHED_EMBEDDINGS: &str = "cache the batch's embeddings (GradCache) and leave out whole_batch_loss";

pub(super) const NO_TOKENS: &str = "global_tokens needs a model with tokens: transformer, encoder_decoder, vit, recurrent, or declared \
                         with tokens_per_sample";

fn samples(goal: &Goal, global_tokens: u64, workload: &Workload) -> Result<u64, PlanError> {
    let Some(sample) = workload.sample.tokens else {
        return Err(PlanError::NoTokens { message: NO_TOKENS.to_owned() });
    };
    // Unequal shares are of any number of samples.
    let ranks = if goal.unequal { 1 } else { goal.world_size };
    match goal.mean_tokens {
        None => packed(global_tokens, sample, ranks),
        Some(mean) if mean > sample as f64 => {
            let message = format!("mean_tokens = {mean} is more than the {sample} tokens that a sample has room for");
            Err(PlanError::NoTokens { message })
        }
        Some(mean) => Ok(padded(global_tokens, mean, ranks)),
    }
}

/// Samples that are packed full: their tokens add up exactly.
fn packed(global_tokens: u64, sample: u64, world_size: u64) -> Result<u64, PlanError> {
    let step = sample.saturating_mul(world_size);
    if global_tokens.is_multiple_of(step) {
        return Ok(global_tokens / sample);
    }
    let below = global_tokens / step * step;
    let would_do = [below, below.saturating_add(step)].into_iter().filter(|tokens| *tokens > 0).collect();
    Err(PlanError::Tokens { global_tokens, sample, world_size, step, would_do })
}

/// Samples of `mean` tokens on average: the nearest number that the ranks can share.
fn padded(global_tokens: u64, mean: f64, world_size: u64) -> u64 {
    let per_rank = (global_tokens as f64 / mean / world_size as f64).round() as u64;
    per_rank.clamp(1, 1 << 30).saturating_mul(world_size)
}

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
    /// The model has no tokens, or a sample has fewer than the goal states.
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
    #[error(
        "{device} has no {} tensor cores for {precision}; use {nearest}",
        if precision.needs_bf16() { "bf16" } else { "fp16" }
    )]
    PrecisionUnsupported {
        /// The precision asked for.
        precision: Precision,
        /// The device.
        device: String,
        /// The device's mixed precision, else fp32.
        nearest: Precision,
    },
    /// No micro-batch fits, not even the one that needs the least.
    #[error("{0}{help}", help = .0.help())]
    DoesNotFit(Box<Misfit>),
}

impl PlanError {
    /// The error for a precision that the device has no units for.
    pub fn precision_unsupported(precision: Precision, device: &DeviceFacts) -> Self {
        let nearest = device.mixed_precision().unwrap_or_default();
        Self::PrecisionUnsupported { precision, device: device.name.clone(), nearest }
    }

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
