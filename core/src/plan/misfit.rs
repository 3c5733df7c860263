use core::fmt;

use serde::Serialize;

use super::choice::{self, Choice};
use super::memory::{self, MemoryModel};
use super::split::{self, Split};
use super::{MemoryEstimate, PlanError};
use crate::device::DeviceFacts;
use crate::measured::Mode;
use crate::profile::ProfileTable;
use crate::workload::{Optimizer, Workload};
use crate::{Bytes, Goal, Pins, Precision};

/// A workload that a device cannot hold, with every byte itemised.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Misfit {
    /// What the device is called.
    pub device: String,
    /// The bytes of the smallest micro-batch.
    pub memory: MemoryEstimate,
    /// Whether the figures are with gradient checkpointing.
    pub checkpointing: bool,
    /// What is too large to be allocated in one piece, when that is what fails.
    pub too_large: Option<TooLarge>,
    /// The cheapest change that would make it fit.
    pub remedy: Remedy,
}

/// A tensor that is too large to be allocated in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TooLarge {
    /// A parameter tensor.
    Parameter {
        /// Its bytes.
        bytes: Bytes,
        /// The most that the device allocates in one piece.
        most: Bytes,
    },
    /// The largest tensor of a micro-batch.
    Activation {
        /// The largest micro-batch for which it can be allocated.
        batch: u64,
    },
}

/// A change that makes a workload fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Let the planner choose what the config fixes.
    Unpin,
    /// Recompute activations.
    Checkpointing,
    /// Train with bf16 parameters.
    Bf16Params,
    /// Use an optimizer with less state.
    Optimizer(Optimizer),
    /// Use a GPU with more memory.
    LargerGpu {
        /// What is needed, headroom included.
        needed: Bytes,
        /// The smallest shipped profile that holds it.
        profile: Option<String>,
    },
}

impl Remedy {
    /// The first that works, from what changes least to what costs most.
    pub(super) fn cheapest(
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        mode: Mode,
        accumulates: bool,
    ) -> Self {
        let fits_in =
            |precision: Precision, workload: &Workload, goal: &Goal| Choice::exists(device, workload, goal, precision);
        let fits = |workload: &Workload, goal: &Goal| fits_in(mode.precision, workload, goal);
        let with = |pins: Pins| Goal { pins, ..goal.clone() };
        if goal.pins.gradient_checkpointing == Some(false)
            && fits(workload, &with(Pins { gradient_checkpointing: None, ..goal.pins.clone() }))
        {
            return Self::Checkpointing;
        }
        if !goal.pins.is_empty() && fits(workload, &with(Pins::default())) {
            return Self::Unpin;
        }
        if mode.precision == Precision::F32 && device.has_bf16 && fits_in(Precision::Bf16Params, workload, goal) {
            return Self::Bf16Params;
        }
        let state = |optimizer| workload.parameters.state(optimizer);
        for optimizer in [Optimizer::Adafactor, Optimizer::Momentum, Optimizer::Sgd] {
            let lighter = Workload { optimizer, ..workload.clone() };
            if state(optimizer) < state(workload.optimizer) && fits(&lighter, goal) {
                return Self::Optimizer(optimizer);
            }
        }
        Self::larger_gpu(device, workload, goal, mode, accumulates)
    }

    fn larger_gpu(device: &DeviceFacts, workload: &Workload, goal: &Goal, mode: Mode, accumulates: bool) -> Self {
        let one_sample = |facts: &DeviceFacts| MemoryModel::of(facts, workload, goal, mode).at(1, accumulates);
        let holds = |facts: &DeviceFacts| {
            one_sample(facts).fits() && memory::largest_batch_in_one_piece(facts, workload, mode.precision) > 0
        };
        let computes = |facts: &DeviceFacts| facts.has_bf16 || !mode.precision.needs_bf16();
        let profiles = ProfileTable::builtin().iter().map(DeviceFacts::nominal);
        let smallest =
            profiles.filter(|facts| holds(facts) && computes(facts)).min_by_key(|facts| facts.memory_available);
        // What it takes on the GPU that is named: a wider one takes more for its kernels.
        let needed = one_sample(smallest.as_ref().unwrap_or(device)).total().scaled(1.0 / (1.0 - goal.memory_headroom));
        Self::LargerGpu { needed, profile: smallest.map(|facts| facts.name) }
    }
}

impl Misfit {
    /// Itemises the smallest micro-batch of the goal, and looks for the cheapest change under which it would fit.
    pub(super) fn of(
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        precision: Precision,
    ) -> Result<Self, PlanError> {
        let splits = split::splits(device, workload, goal)?;
        let &Split { batch, samples } = splits.iter().min().expect("BUG: there is always a split");
        let modes = choice::modes(device, workload, goal, precision);
        let &mode = modes.last().expect("BUG: there is always a mode");
        let accumulates = samples > batch;
        Ok(Self {
            device: device.name.clone(),
            memory: MemoryModel::of(device, workload, goal, mode).at(batch, accumulates),
            checkpointing: mode.checkpointing,
            too_large: TooLarge::of(device, workload, precision, batch),
            remedy: Remedy::cheapest(device, workload, goal, mode, accumulates),
        })
    }
}

impl TooLarge {
    fn of(device: &DeviceFacts, workload: &Workload, precision: Precision, batch: u64) -> Option<Self> {
        let most = memory::largest_piece(device)?;
        let bytes = memory::largest_parameter(workload, precision);
        if bytes > most {
            return Some(Self::Parameter { bytes, most });
        }
        let largest = memory::largest_batch_in_one_piece(device, workload, precision);
        (largest < batch).then_some(Self::Activation { batch: largest })
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { bytes, most } => {
                write!(f, "the largest parameter tensor has {bytes}, at most {most} are allocated in one piece")
            }
            Self::Activation { batch } => {
                write!(f, "the largest tensor cannot be allocated in one piece above batch size {batch}")
            }
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpin => f.write_str("leave the fixed settings to the planner: with its own it fits"),
            Self::Checkpointing => f.write_str("allow gradient checkpointing: with it it fits"),
            Self::Bf16Params => {
                f.write_str("precision = \"bf16_params\" fits: weights, gradients and optimizer in bf16")
            }
            Self::Optimizer(optimizer) => write!(f, "optimizer = \"{optimizer}\" fits: it keeps less state"),
            Self::LargerGpu { needed, profile: Some(profile) } => {
                write!(f, "it needs a GPU with {needed}, such as `{profile}`")
            }
            Self::LargerGpu { needed, profile: None } => {
                write!(
                    f,
                    "it needs a GPU with {needed}: no shipped profile has that; use a smaller model or several GPUs"
                )
            }
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let memory = &self.memory;
        writeln!(f, "does not fit {} at batch size {}:", self.device, memory.batch)?;
        for (item, bytes) in memory.items().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO) {
            let note = if item == "activations" && self.checkpointing { " (with checkpointing)" } else { "" };
            writeln!(f, "  {item:<22} {bytes:>11}{note}")?;
        }
        writeln!(f, "  {:<22} {:>11}", "= needed", memory.total())?;
        writeln!(f, "  {:<22} {:>11}", "available", memory.available)?;
        write!(f, "  {:<22} {:>11}", "- headroom", memory.headroom)?;
        if let Some(too_large) = &self.too_large {
            write!(f, "\n  {too_large}")?;
        }
        Ok(())
    }
}
