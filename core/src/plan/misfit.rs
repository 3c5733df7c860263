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
    /// The bytes of the micro-batch that needs the least.
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
    fn cheapest(
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        precision: Precision,
        modes: &[Mode],
        splits: &[Split],
    ) -> Self {
        let fits_in =
            |precision: Precision, workload: &Workload, goal: &Goal| Choice::exists(device, workload, goal, precision);
        let fits = |workload: &Workload, goal: &Goal| fits_in(precision, workload, goal);
        let with = |pins: Pins| Goal { pins, ..goal.clone() };
        if goal.pins.gradient_checkpointing == Some(false)
            && fits(workload, &with(Pins { gradient_checkpointing: None, ..goal.pins.clone() }))
        {
            return Self::Checkpointing;
        }
        if !goal.pins.is_empty() && fits(workload, &with(Pins::default())) {
            return Self::Unpin;
        }
        if precision == Precision::F32 && device.has_bf16 && fits_in(Precision::Bf16Params, workload, goal) {
            return Self::Bf16Params;
        }
        let state = |optimizer| workload.parameters.state(optimizer);
        for optimizer in [Optimizer::Adafactor, Optimizer::Momentum, Optimizer::Sgd] {
            let lighter = Workload { optimizer, ..workload.clone() };
            if state(optimizer) < state(workload.optimizer) && fits(&lighter, goal) {
                return Self::Optimizer(optimizer);
            }
        }
        Self::larger_gpu(device, workload, goal, modes, splits)
    }

    fn larger_gpu(device: &DeviceFacts, workload: &Workload, goal: &Goal, modes: &[Mode], splits: &[Split]) -> Self {
        let holds = |facts: &DeviceFacts, mode: Mode| {
            let in_one_piece = memory::largest_batch_in_one_piece(facts, workload, mode.precision);
            (facts.has_bf16 || !mode.precision.needs_bf16())
                && choice::any_fits(splits, &MemoryModel::of(facts, workload, goal, mode), in_one_piece)
        };
        let profiles = ProfileTable::builtin().iter().map(DeviceFacts::nominal);
        let holding = profiles.filter(|facts| modes.iter().any(|&mode| holds(facts, mode)));
        let smallest = holding.min_by_key(|facts| facts.memory_available);
        // What it takes on the GPU that is named: a wider one takes more for its kernels.
        let Least { memory, .. } = Least::of(smallest.as_ref().unwrap_or(device), workload, goal, modes, splits);
        let needed = memory.total().scaled(1.0 / (1.0 - goal.memory_headroom));
        Self::LargerGpu { needed, profile: smallest.map(|facts| facts.name) }
    }
}

impl Misfit {
    /// Itemises the micro-batch of the goal that needs the least memory, and looks for the cheapest change under which it would
    /// fit.
    pub(super) fn of(
        device: &DeviceFacts,
        workload: &Workload,
        goal: &Goal,
        precision: Precision,
    ) -> Result<Self, PlanError> {
        let splits = split::splits(device, workload, goal)?;
        let modes = choice::modes(device, workload, goal, precision);
        let Least { mode, split, memory } = Least::of(device, workload, goal, &modes, &splits);
        Ok(Self {
            device: device.name.clone(),
            memory,
            checkpointing: mode.checkpointing,
            too_large: TooLarge::of(device, workload, precision, split.batch),
            remedy: Remedy::cheapest(device, workload, goal, precision, &modes, &splits),
        })
    }
}

impl Misfit {
    /// The missing memory and the remedy, without the items.
    pub fn in_one_line(&self) -> String {
        let missing = self.memory.total() - self.memory.budget();
        let missing = (missing > Bytes::ZERO).then(|| format!("{missing} too much at batch {}", self.memory.batch));
        let too_large = self.too_large.as_ref().map(ToString::to_string);
        let what: Vec<_> = missing.into_iter().chain(too_large).collect();
        format!("does not fit: {}; {}", what.join("; "), self.remedy)
    }
}

/// The way to take a step that needs the least memory, rather one whose tensors are allocated in one piece each.
struct Least {
    mode: Mode,
    split: Split,
    memory: MemoryEstimate,
}

impl Least {
    fn of(device: &DeviceFacts, workload: &Workload, goal: &Goal, modes: &[Mode], splits: &[Split]) -> Self {
        let ways = modes.iter().flat_map(|&mode| {
            let bytes = MemoryModel::of(device, workload, goal, mode);
            choice::frugal(splits, &bytes).map(move |&split| {
                let memory = bytes.at(split.batch, split.micro_steps() > 1);
                Self { mode, split, memory }
            })
        });
        let in_one_piece =
            |Self { mode, .. }: &Self| memory::largest_batch_in_one_piece(device, workload, mode.precision);
        let least =
            ways.min_by_key(|least| (least.split.batch.saturating_sub(in_one_piece(least)), least.memory.total()));
        least.expect("BUG: there is always a mode, and a split")
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
        writeln!(f, "does not fit {} at batch size {}:", self.device, self.memory.batch)?;
        f.write_str(&self.memory.itemised(self.checkpointing))?;
        if let Some(too_large) = &self.too_large {
            write!(f, "\n  {too_large}")?;
        }
        Ok(())
    }
}
