//! Match between the build's targets and the GPUs found.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_project::resolved::{Resolved, Selected};

use super::devices::Gpu;
use crate::tuned::Built;

/// Returns true if the GPU is the one that the build is for.
pub(super) fn is_target(gpu: &GpuReading, built: &Built, resolved: Option<&Resolved>) -> bool {
    if let Some(Selected::Native(there)) = resolved.map(|resolved| &resolved.selected) {
        return is_same_model(gpu, there);
    }
    let [target] = built.targets else { return false };
    let none = ProfileTable::default();
    let profiles = resolved.map_or(&none, |resolved| &resolved.profile);
    matches!(identify(gpu, profiles), Match::Exact { profile } if profile.id.as_str() == *target)
}

/// Compares names and memory.
fn is_same_model(gpu: &GpuReading, other: &GpuReading) -> bool {
    gpu.name == other.name && gpu.memory_total == other.memory_total
}

/// Returns true if each of these GPUs is a target of the build that its settings apply to. `built_for_them` is the result of
/// [`are_built_for`].
pub(super) fn are_targets(built: &Built, gpus: &[Gpu], built_for_them: Option<bool>) -> bool {
    let is_named = |gpu: &Gpu| {
        let Match::Exact { profile } = &gpu.found else { return false };
        let is = |id: &&str| profile.id.as_str() == *id;
        built.targets.iter().any(is) && !built.misfits.iter().any(is)
    };
    built_for_them.unwrap_or_else(|| !gpus.is_empty() && gpus.iter().all(is_named))
}

/// Returns true if the constants of the build are for all of these GPUs; `None` if the build left the decision to the
/// runtime.
pub(super) fn are_built_for(built: &Built, resolved: Option<&Resolved>, gpus: &[Gpu]) -> Option<bool> {
    if let Some(Selected::Native(there)) = resolved.map(|resolved| &resolved.selected) {
        return Some(!gpus.is_empty() && gpus.iter().all(|gpu| is_same_model(&gpu.reading, there)));
    }
    let [target] = built.targets else { return None };
    let exact = |gpu: &Gpu| matches!(&gpu.found, Match::Exact { profile } if profile.id.as_str() == *target);
    Some(!gpus.is_empty() && gpus.iter().all(exact))
}
