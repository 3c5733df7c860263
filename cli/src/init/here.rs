//! GPUs of this machine that a package is set up for.

use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_nvml::UsableGpu;
use serde::Serialize;

use crate::target::{Here, is_describable};

/// A GPU of this machine.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GpuHere {
    /// Name in the driver.
    pub name: String,
    /// The profile that the GPU matches exactly.
    pub profile: Option<ProfileId>,
    /// True if `targets --here --toml` prints a profile for it.
    #[serde(skip)]
    is_describable: bool,
}

/// GPUs of this machine that can train. First the one that a program takes, where GPUs with a declared profile have
/// precedence: the next commands build for it.
pub(super) fn gpus(here: &Here) -> Vec<GpuHere> {
    let gpu = |gpu: &UsableGpu| {
        let reading = &gpu.reading;
        let name = reading.name.clone().unwrap_or_else(|| format!("GPU {} without a name", gpu.position));
        let profile = gpu.found.exact_profile().map(|profile| profile.id.clone());
        GpuHere { name, profile, is_describable: is_describable(reading) }
    };
    let mut gpus: Vec<GpuHere> = here.usable.iter().map(gpu).collect();
    gpus.sort_by_key(|gpu| !gpu.profile.as_ref().is_some_and(|id| here.declared.contains(id)));
    gpus
}

/// Notes on missing GPUs, and on GPUs without a profile.
pub(super) fn notes(here: &Here, gpus: &[GpuHere]) -> Vec<String> {
    let unmatched = gpus.iter().filter(|gpu| gpu.profile.is_none()).map(|GpuHere { name, is_describable, .. }| {
        let described = if *is_describable {
            ", and `cargo gpu-tuned targets --here --toml` prints a profile for gpu-tuned.toml"
        } else {
            ""
        };
        format!("no profile matches {name} exactly: feature `native` builds for it{described}")
    });
    let mut notes: Vec<String> = here.trouble().into_iter().chain(unmatched).collect();
    notes.dedup();
    notes.extend(gpus.is_empty().then(|| WITHOUT_GPU.to_owned()));
    notes
}

/// A note on commands without a GPU.
const WITHOUT_GPU: &str =
    "this machine has no usable GPU, so that the commands train on the CPU: with a GPU, add `cuda` to their features";
