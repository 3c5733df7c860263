//! Report of a workload that does not fit a device.

use core::fmt;

use serde::Serialize;

use super::estimate::MemoryEstimate;
use crate::Bytes;
use crate::goal::CACHED_EMBEDDINGS;

/// A workload that does not fit a device, with every byte itemised.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Misfit {
    /// Name of the device.
    pub device: String,
    /// Memory of the micro-batch that needs the least.
    pub memory: MemoryEstimate,
    /// True if the figures are with activation checkpointing.
    pub checkpointing: bool,
    /// Tensor that is too large to be allocated in one piece, if that is the cause.
    pub too_large: Option<TooLarge>,
    /// True if the step cannot be cut into micro-batches, because its loss is over the whole batch.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub whole_batch: bool,
    /// Changes that make the workload fit, cheapest first; at least one.
    pub remedies: Vec<Remedy>,
}

/// A tensor that is too large to be allocated in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TooLarge {
    /// A parameter tensor.
    Parameter {
        /// Bytes of the tensor.
        bytes: Bytes,
        /// Largest allocation of the device in one piece.
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
    /// Leave pinned settings to the planner.
    Unpin {
        /// The change.
        change: &'static str,
        /// Memory of the plan, in bytes.
        needed: Bytes,
    },
    /// Set keys of the goal, of the training method or of the model.
    Keys {
        /// The keys with their values, as in an attribute.
        keys: String,
        /// Effect of the change.
        effect: &'static str,
        /// Memory of the plan, in bytes.
        needed: Bytes,
    },
    /// Compute a loss over the whole batch from cached embeddings.
    CacheEmbeddings,
    /// Train on another GPU of this machine.
    TakeGpu {
        /// Number of the GPU in CUDA's order.
        position: usize,
        /// Name of the GPU.
        gpu: String,
        /// Free memory of the GPU.
        free: Bytes,
    },
    /// Free the memory of a GPU of this machine.
    FreeGpu {
        /// Number of the GPU in CUDA's order.
        position: usize,
        /// Name of the GPU.
        gpu: String,
        /// Free memory of the GPU.
        free: Bytes,
        /// Memory of the GPU that this process may take at most.
        total: Bytes,
    },
    /// Raise a limit of this process.
    RaiseLimit {
        /// Name of the limit, such as that of a variable.
        name: String,
        /// The limit.
        limit: Bytes,
    },
    /// Use a GPU with more memory.
    LargerGpu {
        /// Memory that is needed, headroom included.
        needed: Bytes,
        /// Smallest shipped profile of the same kind that fits, or of any board without one.
        profile: Option<String>,
    },
}

/// Why a step is not cut into micro-batches.
const UNCUT: &str = "whole_batch_loss: the step is not cut, because parts of the batch have another loss";

impl Misfit {
    /// Describes the missing memory and the cheapest remedy, without the items.
    pub fn in_one_line(&self) -> String {
        let remedy = self.remedies.first().map_or_else(String::new, |remedy| format!("; {remedy}"));
        self.causes() + &remedy
    }

    /// Describes the missing memory, without remedies.
    pub fn causes(&self) -> String {
        let missing = self.memory.total() - self.memory.budget();
        let missing = (missing > Bytes::ZERO).then(|| format!("{missing} too much at batch {}", self.memory.batch));
        let too_large = self.too_large.as_ref().map(ToString::to_string);
        let uncut = self.whole_batch.then(|| UNCUT.to_owned());
        let what: Vec<_> = missing.into_iter().chain(too_large).chain(uncut).collect();
        format!("does not fit: {}", what.join("; "))
    }

    /// Lists the remedies, one a line.
    pub(super) fn help(&self) -> String {
        self.remedies.iter().map(|remedy| format!("\n  help: {remedy}")).collect()
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { bytes, most } => {
                write!(f, "the largest parameter tensor has {bytes}, at most {most} are allocated in one piece")
            }
            Self::Activation { batch: 0 } => write!(f, "its largest tensor cannot be allocated in one piece"),
            Self::Activation { batch } => {
                write!(f, "the largest tensor cannot be allocated in one piece above batch size {batch}")
            }
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpin { change, needed } => write!(f, "{change}, which needs {needed}"),
            Self::Keys { keys, effect, needed } => write!(f, "set {keys}, which needs {needed} ({effect})"),
            Self::CacheEmbeddings => f.write_str(CACHED_EMBEDDINGS),
            Self::TakeGpu { position, gpu, free } => {
                write!(f, "take GPU {position} ({gpu}), which has {free} free: there it fits")
            }
            Self::FreeGpu { position, gpu, free, total } => {
                write!(
                    f,
                    "free the memory of GPU {position} ({gpu}), of which {free} of {total} are free: then it fits"
                )
            }
            Self::RaiseLimit { name, limit } => {
                write!(f, "raise the limit {name}, which allows this process {limit}: then it fits")
            }
            Self::LargerGpu { needed, profile: Some(profile) } => {
                write!(f, "use a GPU with {needed}, such as `{profile}`")
            }
            Self::LargerGpu { needed, profile: None } => {
                write!(f, "use a smaller model: it needs {needed}, and no GPU with a profile has that")
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
        if self.whole_batch { write!(f, "\n  {UNCUT}") } else { Ok(()) }
    }
}
