//! TF32, switched off before the GPUs are opened where the plan does not allow it.

use gpu_tuned_core::device::ComputeCapability;

use crate::burn::{OpenError, Place, switch_tf32_off, tf32_is_off};
use crate::decide::{Broken, Decision};
use crate::selection::SelectedGpu;
use crate::told;
use crate::warm::{Caches, WarmStart};

/// Settles for the decided GPUs whether they have TF32, and switches the caches on by it with `warm`. Where TF32 cannot be
/// switched off it stays on for all of them, which is a fallback.
pub(super) fn settle(
    decision: &mut Decision,
    alone: bool,
    warm: impl Fn(&[SelectedGpu], bool) -> WarmStart,
) -> Result<WarmStart, Broken> {
    let asked = is_asked(decision);
    if !asked && !tf32_is_off() {
        return Ok(warm(&decision.selection.gpus, false));
    }
    if !asked {
        told::warn("allow_tf32 is true, but this process has switched TF32 off before, and it stays off");
    }
    let begun = warm(&decision.selection.gpus, true);
    let Some(why) = switch_off(&decision.selection.gpus, alone, &begun.caches)? else { return Ok(begun) };
    decision.keep_tf32(why);
    Ok(warm(&decision.selection.gpus, false))
}

/// Whether the plan does not allow what a GPU has.
fn is_asked(decision: &Decision) -> bool {
    let has_tf32 = |gpu: &SelectedGpu| gpu.reading.compute_capability.is_some_and(ComputeCapability::has_tf32);
    !decision.plan.settings.allow_tf32 && decision.selection.gpus.iter().any(has_tf32)
}

/// Switches TF32 off on all of them, or says why it stays on. A GPU that refuses after others is as good as broken.
fn switch_off(gpus: &[SelectedGpu], alone: bool, caches: &Caches) -> Result<Option<String>, Broken> {
    if let Some(why) = caches.tf32_in_them().filter(|_| !tf32_is_off()) {
        return Ok(Some(why));
    }
    for gpu in gpus {
        match switch_tf32_off(&Place::of(&gpu.reading, alone)) {
            Ok(()) => {}
            Err(error @ OpenError::Tf32 { .. }) if !tf32_is_off() => {
                return Ok(Some(format!("{error}; start the session before anything uses the GPU")));
            }
            Err(error) => return Err(Broken { position: gpu.position, because: error.to_string() }),
        }
    }
    Ok(None)
}
