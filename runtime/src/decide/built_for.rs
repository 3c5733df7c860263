//! Whether the build is for what was found.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_project::resolved::{Resolved, Selected};

use super::devices::Gpu;
use crate::tuned::Built;

/// Whether this is just the GPU that one target names.
pub(super) fn is_target(gpu: &GpuReading, built: &Built, profiles: &ProfileTable) -> bool {
    let [target] = built.targets else { return false };
    matches!(identify(gpu, profiles), Match::Exact { profile } if profile.id.as_str() == *target)
}

/// Whether the constants of the build are meant for all of these GPUs; `None` when the build left that to the runtime.
pub(super) fn are_built_for(built: &Built, resolved: Option<&Resolved>, gpus: &[Gpu]) -> Option<bool> {
    if let Some(Selected::Native(there)) = resolved.map(|resolved| &resolved.selected) {
        let same = |gpu: &Gpu| gpu.reading.name == there.name && gpu.reading.memory_total == there.memory_total;
        return Some(!gpus.is_empty() && gpus.iter().all(same));
    }
    let [target] = built.targets else { return None };
    let exact = |gpu: &Gpu| matches!(&gpu.found, Match::Exact { profile } if profile.id.as_str() == *target);
    Some(!gpus.is_empty() && gpus.iter().all(exact))
}
