//! Measurements of a workload, the micro-batches to measure, and interpolation between measured ones.
//!
//! The planner chooses among the measured micro-batches of its device, and interpolates for all other sizes.

mod interpolation;
mod micro_batches;

pub use gpu_tuned_workload::measured::*;
pub(crate) use interpolation::Interpolation;
pub use micro_batches::{MOST_MICRO_BATCHES, micro_batches};

use crate::device::{DeviceFacts, Rates};
use crate::{Precision, Settings};

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
            mode: std::collections::BTreeMap::new(),
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
