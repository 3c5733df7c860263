//! A training program.

use gpu_tuned_core::Settings;
use gpu_tuned_core::plan::Expected;
use serde::{Deserialize, Serialize};

/// A training program begins: what it was built for, what it found, and how it trains.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Run {
    /// When.
    pub at: f64,
    /// Its process.
    pub pid: u32,
    /// The workload's name.
    pub workload: String,
    /// The target that it was built for, such as `h200`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// What it trains on.
    pub device: Device,
    /// What fell back, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// How it trains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// Samples of an optimizer step over all ranks, as they were asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<u64>,
    /// Ranks that train together.
    pub world_size: u64,
    /// Whether the model's batch statistics tie it to its micro-batch.
    pub batch_statistics: bool,
    /// Whether parts of the model are not trained: its backward pass is then shorter than others are.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub partly_frozen: bool,
    /// Memory that it may take, in bytes, after headroom.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_budget_bytes: Option<u64>,
    /// Memory that the plan predicts, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_planned_bytes: Option<u64>,
    /// What the planner expects of micro-batches on this device, smallest first, in this precision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<Expected>,
    /// The reason and source of each setting, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// The device of a training program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Device {
    /// What it is called.
    pub name: String,
    /// Whether it is a GPU; else it is the CPU.
    pub is_gpu: bool,
    /// The profile of it; `None` for one that is not known, or a CPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The driver's identifier of the GPU, one for each rank of this process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_uuids: Vec<String>,
    /// Whether it has tensor cores for bf16.
    pub has_bf16: bool,
    /// Whether it has TF32.
    pub has_tf32: bool,
}

impl Run {
    /// A program of which nothing else is known.
    pub fn new(at: f64, pid: u32) -> Self {
        Self { at, pid, world_size: 1, ..Self::default() }
    }
}
