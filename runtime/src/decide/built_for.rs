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

/// Returns true if the GPU is a target of the build that its settings apply to. `built_for_it` is the result of
/// [`is_built_for`].
pub(super) fn is_named(built: &Built, gpu: Option<&Gpu>, built_for_it: Option<bool>) -> bool {
    let is_named = |gpu: &Gpu| {
        let Match::Exact { profile } = &gpu.found else { return false };
        let is = |id: &&str| profile.id.as_str() == *id;
        built.targets.iter().any(is) && !built.misfits.iter().any(is)
    };
    built_for_it.unwrap_or_else(|| gpu.is_some_and(is_named))
}

/// Returns true if the constants of the build are for the GPU; `None` if the build left the decision to the runtime.
pub(super) fn is_built_for(built: &Built, resolved: Option<&Resolved>, gpu: Option<&Gpu>) -> Option<bool> {
    if let Some(Selected::Native(there)) = resolved.map(|resolved| &resolved.selected) {
        return Some(gpu.is_some_and(|gpu| is_same_model(&gpu.reading, there)));
    }
    let [target] = built.targets else { return None };
    let exact = |gpu: &Gpu| matches!(&gpu.found, Match::Exact { profile } if profile.id.as_str() == *target);
    Some(gpu.is_some_and(exact))
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Bytes;
    use gpu_tuned_core::device::GpuReading;
    use gpu_tuned_project::resolved::{Resolved, Selected};

    use super::is_target;
    use crate::tuned::Built;

    #[test]
    fn a_native_build_is_for_gpus_of_its_model() {
        let reading = |name: &str, mib| {
            let mut reading = GpuReading::default();
            (reading.name, reading.memory_total) = (Some(name.to_owned()), Some(Bytes::from_mib(mib)));
            reading
        };
        let mut resolved = Resolved::from_builtin("generic").expect("it is shipped");
        resolved.selected = Selected::Native(Box::new(reading("NVIDIA GeForce RTX 3090", 24_576)));
        let built = Built { target: "native (NVIDIA GeForce RTX 3090)", ..Built::GENERIC };
        for (gpu, expected) in [
            (reading("NVIDIA GeForce RTX 3090", 24_576), true),
            (reading("NVIDIA GeForce RTX 3090", 49_152), false),
            (reading("NVIDIA GeForce RTX 4090", 24_564), false),
        ] {
            assert_eq!(is_target(&gpu, &built, Some(&resolved)), expected, "{gpu:?}");
        }
    }
}
