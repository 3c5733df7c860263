//! Choice of the device.

use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::matching::Match;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_observe::Host;

use super::DecisionContext;
use crate::detect::{UnusableGpu, UsableGpu};
use crate::selection::{Fallback, SelectedGpu};

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

/// A GPU that is taken.
pub(super) struct Gpu {
    position: usize,
    pub reading: GpuReading,
    pub found: Match,
    facts: DeviceFacts,
    memory_remark: Option<String>,
}

impl Gpu {
    fn new(gpu: UsableGpu, reading: GpuReading) -> Self {
        let UsableGpu { position, found, facts, memory_remark } = gpu;
        Self { position, reading, found, facts, memory_remark }
    }
}

impl From<Gpu> for SelectedGpu {
    fn from(gpu: Gpu) -> Self {
        let Gpu { position, reading, found, memory_remark, .. } = gpu;
        Self { position, device: (&found).into(), reading, memory_remark }
    }
}

/// Chosen device.
pub(super) struct Device {
    /// The GPU; `None` for the CPU.
    pub gpu: Option<Gpu>,
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
        let facts = gpu.as_ref().map_or_else(|| cpu(&here.machine.host), |gpu| gpu.facts.clone());
        let cores = |cores: u64| (cores / here.ranks.map_or(1, |ranks| ranks.local)).max(1);
        Self { facts: DeviceFacts { host_cores: facts.host_cores.map(cores), ..facts }, gpu, fallback }
    }
}

/// The GPU that can be planned for, or why there is none: one sentence each.
fn usable(here: DecisionContext<'_>, profiles: &ProfileTable) -> Result<Gpu, Vec<String>> {
    let all = &here.machine.gpus;
    let position = match here.wanted {
        DeviceRequest::Cpu { because } => return Err(because.clone()),
        _ if all.is_empty() => return Err(here.machine.trouble.clone()),
        DeviceRequest::FirstFit => 0,
        DeviceRequest::This(position) => *position,
    };
    match usable_gpu(position, here, profiles) {
        Ok(gpu) => Ok(Gpu::new(gpu, all[position].clone())),
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

fn cpu(host: &Host) -> DeviceFacts {
    DeviceFacts::cpu(host.memory_total, host.memory_available, host.cores)
}
