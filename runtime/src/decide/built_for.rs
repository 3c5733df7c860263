//! Match between the build's targets and the GPUs found.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_project::resolved::{Resolved, Selected};

use super::devices::Gpu;
use crate::tuned::Built;

/// Returns true if the GPU is the one that a target names.
pub(super) fn is_target(gpu: &GpuReading, built: &Built, profiles: &ProfileTable) -> bool {
    let [target] = built.targets else { return false };
    matches!(identify(gpu, profiles), Match::Exact { profile } if profile.id.as_str() == *target)
}

/// Returns true if the constants of the build are for all of these GPUs; `None` if the build left the decision to the
/// runtime.
pub(super) fn are_built_for(built: &Built, resolved: Option<&Resolved>, gpus: &[Gpu]) -> Option<bool> {
    if let Some(Selected::Native(there)) = resolved.map(|resolved| &resolved.selected) {
        let same = |gpu: &Gpu| gpu.reading.name == there.name && gpu.reading.memory_total == there.memory_total;
        return Some(!gpus.is_empty() && gpus.iter().all(same));
    }
    let [target] = built.targets else { return None };
    let exact = |gpu: &Gpu| matches!(&gpu.found, Match::Exact { profile } if profile.id.as_str() == *target);
    Some(!gpus.is_empty() && gpus.iter().all(exact))
}
