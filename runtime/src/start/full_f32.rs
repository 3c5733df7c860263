//! TF32, settled before the GPU is opened.

use gpu_tuned_core::device::ComputeCapability;
use gpu_tuned_measure::warm::{Caches, WarmStart};
use gpu_tuned_nvml::{UnusableGpu, UsableGpu};
use gpu_tuned_observe::log::warn_user;
use gpu_tuned_train::device::{OpenError, Place, switch_tf32_off, tf32_is_off, tf32_is_on};

use super::StartError;
use crate::decide::Decision;

/// Actions of a start while TF32 is decided.
pub(super) struct Start<'s> {
    /// Switches the caches on for the GPU, without TF32 or with it.
    pub(super) warm: &'s dyn Fn(Option<&UsableGpu>, bool) -> WarmStart,
    /// Decides once more, with TF32 allowed or not whatever was asked for.
    pub(super) again: &'s dyn Fn(bool) -> Result<Decision, StartError>,
    /// True if the machine has one GPU.
    pub(super) alone: bool,
}

/// Switches TF32 off on the decided GPU if that is asked for, and the caches on by it. Where it stays on, or is off since
/// before, that is decided for.
pub(super) fn settle(
    decision: Decision,
    start: &Start<'_>,
) -> Result<Result<(Decision, WarmStart), UnusableGpu>, StartError> {
    if !is_asked(&decision) {
        return unasked(decision, start).map(Ok);
    }
    let gpu = decision.selection.gpu.as_ref();
    // Before the caches without TF32 are those of the process.
    let why = if tf32_is_on() {
        "this process has opened GPUs with it; start the session without TF32 before any other".to_owned()
    } else {
        let warm = (start.warm)(gpu, true);
        match switch_off(gpu, start.alone, &warm.caches) {
            Ok(None) => return Ok(Ok((decision, warm))),
            Ok(Some(why)) => why,
            Err(broken) => return Ok(Err(broken)),
        }
    };
    let mut decision = (start.again)(true)?;
    decision.tf32_stays(why);
    let warm = (start.warm)(decision.selection.gpu.as_ref(), false);
    Ok(Ok((decision, warm)))
}

/// TF32 stays what it is in the process: once off, it is off.
fn unasked(decision: Decision, start: &Start<'_>) -> Result<(Decision, WarmStart), StartError> {
    let is_off = tf32_is_off();
    if !is_off || !decision.plan.settings.allow_tf32 {
        let warm = (start.warm)(decision.selection.gpu.as_ref(), is_off);
        return Ok((decision, warm));
    }
    warn_user("allow_tf32 is true, but this process has switched TF32 off before, and it stays off");
    let before = decision.selection.fallbacks;
    let mut decision = (start.again)(false)?;
    decision.tf32_is_off();
    // With pins, the second decision omits the reasons why the build's constants do not apply.
    let fallbacks = &mut decision.selection.fallbacks;
    let missing = before.into_iter().filter(|fallback| !fallbacks.contains(fallback)).collect::<Vec<_>>();
    fallbacks.extend(missing);
    let warm = (start.warm)(decision.selection.gpu.as_ref(), true);
    Ok((decision, warm))
}

/// Returns true if TF32 is not allowed and the GPU has it.
fn is_asked(decision: &Decision) -> bool {
    let has_tf32 = |gpu: &UsableGpu| gpu.reading.compute_capability.is_some_and(ComputeCapability::has_tf32);
    decision.inputs.goal.pins.allow_tf32 == Some(false) && decision.selection.gpu.as_ref().is_some_and(has_tf32)
}

/// Switches TF32 off, or returns why it stays on. A GPU that refuses after others counts as failed.
fn switch_off(gpu: Option<&UsableGpu>, alone: bool, caches: &Caches) -> Result<Option<String>, UnusableGpu> {
    if let Some(why) = caches.tf32_in_them().filter(|_| !tf32_is_off()) {
        return Ok(Some(why));
    }
    let Some(gpu) = gpu else { return Ok(None) };
    match switch_tf32_off(&Place::of(&gpu.reading, alone)) {
        Ok(()) => Ok(None),
        Err(error @ OpenError::Tf32 { .. }) if !tf32_is_off() => Ok(Some(error.to_string())),
        Err(error) => Err(UnusableGpu { position: gpu.position, because: error.to_string() }),
    }
}
