use serde::{Deserialize, Serialize};

use super::Setup;
use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Bytes, Precision};

/// What figures are of: those below another header say nothing of this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// How the lines are written: [`FORMAT`](Self::FORMAT).
    pub format: u32,
    /// The workload's name.
    pub workload: String,
    /// What the driver calls the device.
    pub device: String,
    /// GPU or CPU.
    pub kind: DeviceKind,
    /// The device's memory.
    pub memory_bytes: Bytes,
    /// Streaming multiprocessors; 0 for a CPU.
    pub sm_count: u32,
    /// Threads that train; `None` for a GPU.
    pub cpu_threads: Option<u64>,
    /// The driver's release; `None` for a CPU.
    pub driver: Option<String>,
    /// The release of Burn.
    pub burn: String,
    /// The release of `CubeCL`; `None` for a CPU.
    pub cubecl: Option<String>,
    /// Values that training changes.
    pub parameters: u64,
    /// A hash of the names and shapes of the model's parameters.
    pub shape: String,
    /// The model as its config describes it: it has dimensions, such as the length of a sequence, that no parameter shows.
    pub described: WorkloadSpec,
    /// Whether the build checks its arithmetic, as the profile `dev` does.
    pub debug: bool,
    /// Whether memory is counted, which on a CPU takes another allocator.
    pub counts_memory: bool,
    /// Whether steps in f32 were taken without TF32 on a device that has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub full_f32: bool,
}

impl Header {
    /// How lines are written now.
    pub const FORMAT: u32 = 1;
}

/// What a process sets out to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Begin {
    /// The settings that the program would train with.
    pub planned: Planned,
    /// What is asked for, in order, whether it is on record or not.
    pub setups: Vec<Setup>,
}

/// The settings that the program would train with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Planned {
    /// Number formats.
    pub precision: Precision,
    /// Whether activations are recomputed.
    pub checkpointing: bool,
    /// Samples of a micro-batch.
    pub batch: u64,
    /// Threads that prepare batches.
    pub workers: u64,
    /// Batches that wait.
    pub prefetch: u64,
    /// Micro-batches of a step.
    pub accumulation: u64,
}

impl Planned {
    /// Whether steps in this setup are those of the plan; how the batch comes to be there is not looked at.
    pub fn is(&self, setup: &Setup) -> bool {
        (self.precision, self.checkpointing, self.batch) == (setup.precision, setup.checkpointing, setup.batch)
    }
}
