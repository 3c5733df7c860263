//! What was measured of a workload: few points for each device and mode, as `gpu-tuned.lock` keeps them.

mod curve;
mod mode;
mod pages;
mod replayed;
mod reserved;
pub mod select;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub(crate) use curve::{Curve, Known};
pub use mode::{Mode, ParseModeError};
pub use pages::{Between, InPages, Need, Pages};
pub(crate) use reserved::Reserved;

use crate::Bytes;
use crate::device::{DeviceFacts, DeviceKind};

/// What was measured of one workload, on however many devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Values that training changes.
    pub parameters: u64,
    /// A hash of the names and shapes of the model's parameters, in hexadecimal.
    pub shape: String,
    /// Milliseconds that one host core takes to prepare a sample; `None` when it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ms_per_sample: Option<f64>,
    /// Each device by a short name: a profile's, or one made of what the driver calls it.
    #[serde(default)]
    pub on: BTreeMap<String, MeasuredOn>,
}

/// What was measured on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredOn {
    /// What the driver calls the device; of one that steps were replayed for, what it stands for.
    pub device: String,
    /// GPU or CPU.
    pub kind: DeviceKind,
    /// The device's memory.
    pub memory_bytes: Bytes,
    /// Streaming multiprocessors; 0 for a CPU.
    pub sm_count: u32,
    /// Peak f32 rate of the ordinary units, 10^12 operations per second: what times are carried to other devices by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp32_tflops: Option<f64>,
    /// Peak memory bandwidth, 10^9 bytes per second: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_gb_s: Option<f64>,
    /// The driver's release; `None` for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// The release of Burn that was measured.
    pub burn: String,
    /// The release of `CubeCL` that was measured, or whose memory manager was played; `None` for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubecl: Option<String>,
    /// What opening the device took, before the first tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_bytes: Option<Bytes>,
    /// What the process held beyond context and memory pools once all kernels were loaded, and none ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels_bytes: Option<Bytes>,
    /// Each way to run the step.
    #[serde(default)]
    pub mode: BTreeMap<Mode, MeasuredMode>,
}

/// What was measured in one mode.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredMode {
    /// How the memory was found out.
    pub way: Way,
    /// The most that was found above a line between the points, at other batches, or that may lie there, as a share of what the
    /// line says: what a prediction is raised by, so that it is a bound. Of dry runs it is one of 1 GiB where the line says less.
    /// Where steps were replayed, with what replaying is known to miss.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual: Option<f64>,
    /// The most by which other micro-batches, nearly as fast as any, were timed to take longer than lines between the points'
    /// times say, as a share of the time: what an estimate has to be faster by before it counts for more than a measurement.
    /// `None` where no others were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_residual: Option<f64>,
    /// What pages that were counted tell of micro-batches from these on, where they were. Between points it counts in place of
    /// lines.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub pages: BTreeMap<u64, Pages>,
    /// Each point by its micro-batch in samples; at most four.
    pub batch: BTreeMap<u64, Point>,
}

/// How memory was found out; the firmest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Steps were run on the device.
    Executed,
    /// Steps were run on a GPU without executing any kernel.
    DryRun,
    /// Steps were run on a CPU, and what they allocated was dealt out by the GPU's memory manager.
    Replayed,
}

/// Optimizer steps with one micro-batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// What the device's memory pools hold once steps add nothing to it; on a CPU, what was allocated at most. `None` when it was
    /// not measured, as on a CPU without the allocator that counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<Bytes>,
    /// What each sample more adds to that, up to the next line, where the number of pages may change; each sample less takes
    /// as much away, down to [`reserved_from`](Self::reserved_from). `None` where a line to the next point says as much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_bytes_per_sample: Option<Bytes>,
    /// The smallest micro-batch, in samples, of which the line through this point tells; above that of the point before, and
    /// `None` where it is the point's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_from: Option<u64>,
    /// The mode's [`residual`](MeasuredMode::residual), of the line through this point alone; without it the mode's counts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub residual: Option<f64>,
    /// [`reserved_bytes`](Self::reserved_bytes) when a step adds up the gradients of several micro-batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_accumulating_bytes: Option<Bytes>,
    /// Bytes in use after the forward pass, with the loss alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use_bytes: Option<Bytes>,
    /// Milliseconds of the forward and backward pass of one micro-batch, a median; `None` when nothing was executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_step_ms: Option<f64>,
    /// Milliseconds of the optimizer, a median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer_ms: Option<f64>,
    /// Half of the range of the repeats of the whole step, as a share of their median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
}

impl MeasuredOn {
    /// A device with these facts, of which nothing was measured yet, and the release of Burn.
    pub fn new(facts: &DeviceFacts, burn: impl Into<String>) -> Self {
        Self {
            device: facts.name.clone(),
            kind: facts.kind,
            memory_bytes: facts.memory_total,
            sm_count: facts.sm_count,
            fp32_tflops: facts.fp32_tflops,
            bandwidth_gb_s: facts.bandwidth_gb_s,
            driver: None,
            burn: burn.into(),
            cubecl: None,
            context_bytes: None,
            kernels_bytes: None,
            mode: BTreeMap::new(),
        }
    }

    /// Whether measurements under this short name are those of a device: the same profile or name, and as many
    /// multiprocessors, which a slice has not.
    pub(crate) fn is_of(&self, name: &str, device: &DeviceFacts) -> bool {
        let named = device.profile.as_deref() == Some(name) || device.name == self.device;
        named && device.sm_count == self.sm_count
    }
}

impl Measured {
    /// The most points that are kept for a mode.
    pub const MOST_POINTS: usize = 4;

    /// The largest figure that may be on record: beyond it sums would saturate.
    pub const LARGEST: u64 = 1 << 50;

    /// Whether anything was measured on a device like this.
    pub fn has(&self, device: &DeviceFacts) -> bool {
        self.on.iter().any(|(name, on)| on.is_of(name, device))
    }

    /// Whether nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.on.is_empty() && self.host_ms_per_sample.is_none()
    }
}
