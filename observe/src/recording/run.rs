//! The start of a training program.

use gpu_tuned_core::Settings;
use gpu_tuned_core::plan::Expected;
use serde::{Deserialize, Serialize};

/// The start of a training program: the build's target, the device, and the settings.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Run {
    /// Time of the start.
    pub at: f64,
    /// Process ID.
    pub pid: u32,
    /// Name of the workload.
    pub workload: String,
    /// Target of the build, such as `h200`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The device.
    pub device: Device,
    /// Fallbacks, in words.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// The settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub settings: Option<Settings>,
    /// Requested samples of an optimizer step over all ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub global_batch: Option<u64>,
    /// Ranks that train together.
    pub world_size: u64,
    /// The model has batch statistics, which depend on the micro-batch.
    pub batch_statistics: bool,
    /// Parts of the model are frozen, which makes the backward pass shorter.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub partly_frozen: bool,
    /// Memory budget after headroom, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_budget_bytes: Option<u64>,
    /// Memory that the plan predicts, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_planned_bytes: Option<u64>,
    /// The planner's predictions for micro-batches on this device in this precision, smallest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub expected: Vec<Expected>,
    /// Reason and provenance of each setting, one line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// The device of a training program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Device {
    /// Name of the device.
    pub name: String,
    /// The device is a GPU; else it is the CPU.
    pub is_gpu: bool,
    /// Profile of the device; `None` for a CPU or an unknown GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// UUIDs of the GPUs, one for each rank of this process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpu_uuids: Vec<String>,
    /// The device has bf16 tensor cores.
    pub has_bf16: bool,
    /// The device has TF32.
    pub has_tf32: bool,
}

impl Run {
    /// Creates a start without figures.
    pub fn new(at: f64, pid: u32) -> Self {
        Self { at, pid, world_size: 1, ..Self::default() }
    }
}
