//! GPUs of this machine that a package is set up for.

use gpu_tuned::detect;
use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::{ProfileId, ProfileTable};
use serde::Serialize;

/// A GPU of this machine.
#[derive(Clone, Debug, Serialize)]
pub(super) struct GpuHere {
    /// Name in the driver.
    pub name: String,
    /// The profile that the GPU matches exactly.
    pub profile: Option<ProfileId>,
    /// True for a MIG slice or a virtual share.
    #[serde(skip)]
    pub is_part: bool,
}

/// GPUs of this machine that can train, first the one that a program takes.
#[derive(Debug, Default)]
pub(super) struct Here {
    pub gpus: Vec<GpuHere>,
    /// Reasons why GPUs are missing or cannot train, one sentence each.
    trouble: Vec<String>,
}

impl Here {
    pub(super) fn read(table: &ProfileTable, declared: &[ProfileId]) -> Self {
        let machine = detect();
        let matched = |gpu: &GpuReading| match identify(gpu, table) {
            Match::Exact { profile } => Some(profile.id),
            _ => None,
        };
        let order = machine.preference(|gpu| matched(gpu).is_some_and(|id| declared.contains(&id)));
        let mut here = Self { gpus: Vec::new(), trouble: machine.trouble.clone() };
        for position in order {
            let reading = &machine.gpus[position];
            let name = reading.name.clone().unwrap_or_else(|| format!("GPU {position} without a name"));
            match DeviceFacts::from_reading(reading, identify(reading, table).profile(), None) {
                None => here.trouble.push(reading.without_memory(position)),
                Some(DeviceFacts { refusal: Some(because), .. }) => {
                    here.trouble.push(format!("{name} cannot train: {because}"));
                }
                Some(_) => {
                    let is_part = reading.is_mig_slice() || reading.is_vgpu();
                    here.gpus.push(GpuHere { name, profile: matched(reading), is_part });
                }
            }
        }
        here
    }

    /// Profiles of the GPUs.
    pub(super) fn profiles(&self) -> impl Iterator<Item = &ProfileId> {
        self.gpus.iter().filter_map(|gpu| gpu.profile.as_ref())
    }

    /// Notes on missing GPUs, and on GPUs without a profile.
    pub(super) fn notes(&self) -> Vec<String> {
        let without = self.gpus.is_empty().then(|| WITHOUT_GPU.to_owned());
        let unmatched = self.gpus.iter().filter(|gpu| gpu.profile.is_none()).map(|GpuHere { name, is_part, .. }| {
            if *is_part {
                return format!("{name} is a part of a GPU: feature `native` builds for it");
            }
            format!(
                "no profile matches {name} exactly: feature `native` builds for it, and `cargo gpu-tuned targets --here \
                 --toml` prints a profile for gpu-tuned.toml"
            )
        });
        let mut notes: Vec<String> = self.trouble.iter().cloned().chain(unmatched).collect();
        notes.dedup();
        notes.extend(without);
        notes
    }
}

/// A note on commands without a GPU.
const WITHOUT_GPU: &str =
    "this machine has no usable GPU, so that the commands train on the CPU: with a GPU, add `cuda` to their features";
