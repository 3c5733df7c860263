//! GPUs of a machine that can train, and reasons against the others.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::ProfileTable;

use super::Machine;

/// A GPU that a plan can be made for.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct UsableGpu {
    /// Number of the GPU in CUDA's order: its position in [`Machine::gpus`].
    pub position: usize,
    /// Match with a profile.
    pub found: Match,
    /// Facts for the planner, with all cores of the host.
    pub facts: DeviceFacts,
    /// Source of the memory, if the driver reports none or an implausible one; one sentence.
    pub memory_remark: Option<String>,
}

/// A GPU that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusableGpu {
    /// Number of the GPU in CUDA's order.
    pub position: usize,
    /// The reason, one sentence.
    pub because: String,
}

impl Machine {
    /// Returns the GPU at `position`, matched with these profiles and the shipped ones.
    ///
    /// # Errors
    ///
    /// [`UnusableGpu`] if there is no such GPU, if its memory is unknown, or if Burn cannot train on it.
    pub fn usable(&self, position: usize, profiles: &ProfileTable) -> Result<UsableGpu, UnusableGpu> {
        let unusable = |because| UnusableGpu { position, because };
        let count = self.gpus.len();
        let missing = || unusable(format!("GPU {position} was asked for and there are {count}"));
        let reading = self.gpus.get(position).ok_or_else(missing)?;
        let found = identify(reading, profiles);
        let facts = DeviceFacts::from_reading(reading, found.profile(), Some(self.host.cores));
        let facts = facts.ok_or_else(|| unusable(reading.explain_missing_memory(position)))?;
        if let Some(reason) = &facts.refusal {
            return Err(unusable(format!("{} cannot train: {reason}", reading.numbered_name(position))));
        }
        let memory_remark = memory_remark(position, reading, &facts);
        Ok(UsableGpu { position, found, facts, memory_remark })
    }
}

/// Reports that the memory is that of the profile.
fn memory_remark(position: usize, reading: &GpuReading, facts: &DeviceFacts) -> Option<String> {
    let profile = facts.profile.as_ref().filter(|_| reading.memory_total != Some(facts.memory_total))?;
    let reported = reading.memory_total.filter(|total| *total > Bytes::ZERO);
    let reported = reported.map_or_else(|| "no memory".to_owned(), |total| format!("an implausible {total}"));
    let (gpu, used) = (reading.numbered_name(position), facts.memory_total);
    Some(format!("{gpu}: the driver reports {reported}; planned with the {used} of `{profile}`"))
}
