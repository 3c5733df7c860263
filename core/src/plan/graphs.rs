//! CUDA graphs in a plan.

use super::choice::Choice;
use super::reason::Reason;
use crate::device::{DeviceFacts, DeviceKind};
use crate::{Goal, Provenance, Setting};

/// Smallest gain in throughput for which CUDA graphs are worth their memory, as a fraction.
pub(super) const WORTHWHILE_GAIN: f64 = 0.05;

/// The best way to run a step with CUDA graphs, against the best one without.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Graphs {
    /// No step with CUDA graphs was timed on this device, or the device has none.
    NotMeasured,
    /// No timed micro-batch fits the memory and the goal.
    DoNotFit,
    /// Gain in throughput, as a fraction.
    Measured { gain: f64 },
}

impl Graphs {
    /// Returns true if their gain is worth their memory.
    pub(super) fn are_worthwhile(self) -> bool {
        matches!(self, Self::Measured { gain } if gain >= WORTHWHILE_GAIN)
    }
}

/// Reason for the setting.
pub(super) fn reason(device: &DeviceFacts, goal: &Goal, choice: &Choice) -> Reason {
    let (provenance, why) = match choice.graphs {
        _ if device.kind == DeviceKind::Cpu => (Provenance::Derived, "a CPU has none".to_owned()),
        _ if goal.world_size > 1 => (Provenance::Derived, "they do not work with several ranks".to_owned()),
        Graphs::NotMeasured => (Provenance::Derived, "not timed here by `cargo gpu-tuned measure`".to_owned()),
        Graphs::DoNotFit => (Provenance::Measured, "no timed micro-batch fits memory and goal".to_owned()),
        Graphs::Measured { gain } if gain < WORTHWHILE_GAIN => {
            let percent = (gain * 100.0).max(0.0);
            (Provenance::Measured, format!("they gain only {percent:.1}%, less than 5%"))
        }
        Graphs::Measured { gain } => {
            let percent = gain * 100.0;
            let allowed = if choice.best.mode.cuda_graphs { "" } else { ", but are not allowed" };
            (Provenance::Measured, format!("{percent:.0}% more samples/s{allowed}"))
        }
    };
    Reason { setting: Setting::CudaGraphs, provenance, why }
}
