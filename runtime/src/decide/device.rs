//! Choice of the device, and its match with the targets of the build.

use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::{Profile, ProfileTable};
use gpu_tuned_nvml::{UnusableGpu, UsableGpu};
use gpu_tuned_project::resolved::{Resolved, Selected};

use super::DecisionContext;
use crate::selection::Fallback;
use crate::tuned::Built;

/// The device that a decision is for. Positions are those in [`Machine::gpus`](crate::Machine::gpus).
#[derive(Clone, Debug, Default)]
pub(crate) enum DeviceRequest {
    /// The first GPU on which the plan fits: see [`Machine::preference`](crate::Machine::preference).
    #[default]
    FirstFit,
    /// A GPU by its position.
    This(usize),
    /// The CPU.
    Cpu {
        /// Why: one sentence each.
        because: Vec<String>,
    },
}

/// Chosen device.
pub(super) struct Device {
    /// The GPU; `None` for the CPU.
    pub gpu: Option<UsableGpu>,
    /// Its facts. Ranks of one host share its cores.
    pub facts: DeviceFacts,
    /// Why there is no GPU.
    pub fallback: Option<Fallback>,
}

impl Device {
    pub(super) fn choose(here: DecisionContext<'_>, profiles: &ProfileTable) -> Self {
        let (gpu, fallback) = match usable(here, profiles) {
            Ok(gpu) => (Some(gpu), None),
            Err(because) => (None, Some(Fallback::NoGpu { because })),
        };
        let facts = gpu.as_ref().map_or_else(|| here.machine.host.facts(), |gpu| gpu.facts.clone());
        let cores = |cores: u64| (cores / here.ranks.map_or(1, |ranks| ranks.local)).max(1);
        Self { facts: DeviceFacts { host_cores: facts.host_cores.map(cores), ..facts }, gpu, fallback }
    }
}

/// The GPU that can be planned for, or why there is none: one sentence each.
fn usable(here: DecisionContext<'_>, profiles: &ProfileTable) -> Result<UsableGpu, Vec<String>> {
    let all = &here.machine.gpus;
    let position = match here.wanted {
        DeviceRequest::Cpu { because } => return Err(because.clone()),
        _ if all.is_empty() => return Err(here.machine.trouble.clone()),
        DeviceRequest::FirstFit => 0,
        DeviceRequest::This(position) => *position,
    };
    match usable_gpu(position, here, profiles) {
        Ok(gpu) => Ok(gpu),
        Err(unusable) => {
            let missing = here.machine.missing.iter().filter(|_| position >= all.len()).cloned();
            Err(missing.chain([unusable.because]).collect())
        }
    }
}

/// The GPU at `position`, unless it failed to open.
pub(super) fn usable_gpu(
    position: usize,
    here: DecisionContext<'_>,
    profiles: &ProfileTable,
) -> Result<UsableGpu, UnusableGpu> {
    let broken = here.broken.iter().find(|broken| broken.position == position);
    broken.map_or_else(|| here.machine.usable(position, profiles), |broken| Err(broken.clone()))
}

/// Returns true if the constants of the build are for this GPU alone.
pub(super) fn is_target(built: &Built, resolved: Option<&Resolved>, gpu: &GpuReading) -> bool {
    let none = ProfileTable::default();
    let found = identify(gpu, resolved.map_or(&none, |resolved| &resolved.profile));
    is_built_for(built, resolved, Some((gpu, &found))) == Some(true)
}

/// Returns true if the constants of the build are for the GPU with this reading and match; `None` if the build left the
/// decision to the runtime.
pub(super) fn is_built_for(
    built: &Built,
    resolved: Option<&Resolved>,
    gpu: Option<(&GpuReading, &Match)>,
) -> Option<bool> {
    if let Some(Selected::Native(there)) = resolved.map(|resolved| &resolved.selected) {
        let is_same_model = |gpu: &GpuReading| (&gpu.name, gpu.memory_total) == (&there.name, there.memory_total);
        return Some(gpu.is_some_and(|(gpu, _)| is_same_model(gpu)));
    }
    let [target] = built.targets else { return None };
    let exact = gpu.and_then(|(_, found)| found.exact_profile());
    Some(exact.is_some_and(|profile| profile.id.as_str() == *target))
}

/// Returns true if the GPU is a target of the build that its settings apply to. `built_for_it` is the result of
/// [`is_built_for`].
pub(super) fn is_named(built: &Built, gpu: Option<&UsableGpu>, built_for_it: Option<bool>) -> bool {
    let is_named = |profile: &Profile| {
        let is = |id: &&str| profile.id.as_str() == *id;
        built.targets.iter().any(is) && !built.misfits.iter().any(is)
    };
    built_for_it.unwrap_or_else(|| gpu.and_then(|gpu| gpu.found.exact_profile()).is_some_and(is_named))
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
            assert_eq!(is_target(&built, Some(&resolved), &gpu), expected, "{gpu:?}");
        }
    }
}
