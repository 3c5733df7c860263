//! Measurements of a workload, the micro-batches to measure, and interpolation between measured ones.
//!
//! The planner chooses among the measured micro-batches of its device, and interpolates for all other sizes.
//! `gpu-tuned.lock` stores them.

mod interpolation;
mod micro_batches;
mod mode;
mod simulated;

use std::collections::BTreeMap;

pub(crate) use interpolation::Interpolation;
pub use micro_batches::{MOST_MICRO_BATCHES, micro_batches};
pub use mode::{Mode, ParseModeError};
use serde::{Deserialize, Serialize};

use crate::device::{DeviceFacts, Rates};
use crate::{Bytes, Precision, Settings};

/// Measurements of one workload, on any number of devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Number of values that training changes.
    pub parameters: u64,
    /// Hash of the names and shapes of the model's parameters, in hexadecimal.
    pub shape: String,
    /// Milliseconds that one host core takes to prepare a sample; `None` when it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ms_per_sample: Option<f64>,
    /// Devices by short name: a profile's name, or one derived from the driver's name.
    #[serde(default)]
    pub on: BTreeMap<String, MeasuredOn>,
}

/// The kind of device that trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A CUDA GPU.
    Gpu,
    /// The host's processor.
    Cpu,
}

/// Measurements on one device.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredOn {
    /// The driver's name of the device; for simulated steps the device that they stand for.
    pub device: String,
    /// GPU or CPU.
    pub kind: DeviceKind,
    /// Total memory of the device.
    pub memory_bytes: Bytes,
    /// Streaming multiprocessors; 0 for a CPU.
    pub sm_count: u32,
    /// Peak f32 rate of the ordinary units, 10^12 operations per second. Times are scaled to other devices by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp32_tflops: Option<f64>,
    /// Peak memory bandwidth, 10^9 bytes per second. Times are scaled to other devices by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_gb_s: Option<f64>,
    /// Release of the driver; `None` for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Release of Burn that was measured.
    pub burn: String,
    /// Release of `CubeCL` that was measured, or whose memory manager was simulated; `None` for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubecl: Option<String>,
    /// Bytes that opening the device took, before the first tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_bytes: Option<Bytes>,
    /// Bytes that the process used beyond context and memory pools once all kernels were loaded, and none ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels_bytes: Option<Bytes>,
    /// Measurements by precision and checkpointing.
    #[serde(default)]
    pub mode: BTreeMap<Mode, MeasuredMode>,
}

/// Measurements in one precision, with or without checkpointing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeasuredMode {
    /// Method of measuring the memory.
    pub method: MeasurementMethod,
    /// True until all sizes that plans need were tried, as after an interruption or at the end of the time: other sizes
    /// may be better.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_partial: bool,
    /// Every measured micro-batch, by its number of samples.
    pub batch: BTreeMap<u64, MeasuredBatch>,
}

/// Methods of measuring memory; the most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasurementMethod {
    /// Steps ran on the device.
    Executed,
    /// Steps allocated on the GPU, and no kernel was executed.
    DryRun,
    /// Steps ran on a CPU, and their allocations went through a model of the GPU's memory manager.
    Simulated,
}

/// Measurements of optimizer steps with one micro-batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredBatch {
    /// Bytes that the device's memory pools reserve once further steps add nothing; on a CPU, the most that was
    /// allocated. `None` when memory was not measured, as on a CPU without the counting allocator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<Bytes>,
    /// [`reserved_bytes`](Self::reserved_bytes) of a step that accumulates the gradients of several micro-batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_accumulating_bytes: Option<Bytes>,
    /// Bytes in use after the forward pass, with the loss alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use_bytes: Option<Bytes>,
    /// Median milliseconds of the forward and backward pass of one micro-batch; `None` when no step ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_step_ms: Option<f64>,
    /// Median milliseconds of the optimizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer_ms: Option<f64>,
    /// Half of the range of the repeats of the whole step, as a fraction of their median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
}

impl Measured {
    /// Largest figure that a lock may contain; sums of larger ones would saturate.
    pub const LARGEST: u64 = 1 << 50;

    /// Returns true if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.on.is_empty() && self.host_ms_per_sample.is_none()
    }
}

impl DeviceFacts {
    /// Entry for measurements on this device with a release of Burn; without measurements yet.
    pub fn measured_on(&self, burn: impl Into<String>) -> MeasuredOn {
        MeasuredOn {
            device: self.name.clone(),
            kind: self.kind,
            memory_bytes: self.memory_total,
            sm_count: self.sm_count,
            fp32_tflops: self.fp32_tflops,
            bandwidth_gb_s: self.bandwidth_gb_s,
            driver: None,
            burn: burn.into(),
            cubecl: None,
            context_bytes: None,
            kernels_bytes: None,
            mode: BTreeMap::new(),
        }
    }

    /// Returns true if measurements under this short name are of this device: the same profile or name, and the same
    /// number of multiprocessors, which a MIG slice does not have.
    pub(crate) fn matches(&self, name: &str, on: &MeasuredOn) -> bool {
        let named = self.profile.as_deref() == Some(name) || self.name == on.device;
        named && self.sm_count == on.sm_count
    }

    /// Returns true if a device like this one was measured.
    pub fn is_in(&self, measured: &Measured) -> bool {
        measured.on.iter().any(|(name, on)| self.matches(name, on))
    }

    /// The mode of a plan's settings on this device.
    pub fn mode(&self, settings: &Settings) -> Mode {
        let Settings { precision, gradient_checkpointing, allow_tf32, cuda_graphs, .. } = *settings;
        self.mode_of(precision, gradient_checkpointing, allow_tf32).with_graphs(cuda_graphs)
    }

    /// The mode of a precision on this device, without CUDA graphs.
    pub fn mode_of(&self, precision: Precision, checkpointing: bool, allow_tf32: bool) -> Mode {
        Mode::new(precision, checkpointing).with_full_f32(self.has_tf32 && !allow_tf32)
    }
}

impl Rates {
    /// Rate of a mode's matrix products.
    pub const fn product_rate(&self, mode: Mode) -> Option<f64> {
        use crate::Precision::{Bf16Params, F32, MixedBf16, MixedF16};
        match mode.precision {
            F32 if mode.full_f32 => self.fp32,
            F32 => self.tf32,
            MixedF16 => self.fp16,
            MixedBf16 | Bf16Params => self.bf16,
        }
    }
}
