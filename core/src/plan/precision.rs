use super::error::PlanError;
use super::reason::Reason;
use crate::device::{DeviceFacts, DeviceKind};
use crate::{Goal, Precision, Provenance, Setting};

/// A precision and why.
#[derive(Debug)]
pub(super) struct Decision {
    pub value: Precision,
    pub reason: Reason,
}

/// Takes the precision that the user asks for, if it can be carried out here; else f32.
pub(super) fn decide(device: &DeviceFacts, goal: &Goal) -> Result<Decision, PlanError> {
    let asked = goal.pins.precision.or(goal.precision);
    let value = asked.unwrap_or_default();
    if value.needs_bf16() && !device.has_bf16 {
        return Err(PlanError::PrecisionUnsupported { precision: value, device: device.name.clone() });
    }
    let (provenance, why) = match asked {
        Some(_) => (Provenance::Declared, "asked for".to_owned()),
        None => (Provenance::Derived, "keeps the meaning of the run on every device".to_owned()),
    };
    Ok(Decision { value, reason: Reason { setting: Setting::Precision, provenance, why } })
}

pub(super) fn tf32_reason(device: &DeviceFacts) -> Reason {
    let why = match (device.kind, device.has_tf32) {
        (_, true) => "has TF32 tensor cores; Burn uses them for f32 products when its autotuning finds them faster",
        (DeviceKind::Gpu, false) => "compute capability below 8.0 has no TF32",
        (DeviceKind::Cpu, false) => "a CPU has no TF32",
    };
    Reason { setting: Setting::AllowTf32, provenance: Provenance::Derived, why: why.to_owned() }
}
