//! Choice of devices and of the number of ranks.

use gpu_tuned_core::Goal;
use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::matching::Match;
use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_observe::Host;

use super::{DecideError, DecisionContext, GpusError};

use crate::detect::{Machine, UnusableGpu, UsableGpu};
use crate::selection::{Fallback, SelectedGpu, Shortfall};

/// The devices that a decision is for. Positions are those in [`Machine::gpus`].
#[derive(Clone, Debug, Default)]
pub(crate) enum DeviceRequest {
    /// The first GPU on which the plan fits: see [`Machine::preference`].
    #[default]
    FirstFit,
    /// GPUs by their positions.
    These(Vec<usize>),
    /// Every GPU that there is.
    All,
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

/// Chosen devices.
pub(super) struct Devices {
    /// The GPUs, in the order in which they were asked for; none on the CPU.
    pub gpus: Vec<Gpu>,
    /// Facts that apply to all of them.
    pub facts: DeviceFacts,
    /// Ranks that train together, here and on other machines.
    pub world_size: u64,
    /// Why it is not what was asked for.
    pub fallbacks: Vec<Fallback>,
}

impl Devices {
    pub(super) fn choose(here: DecisionContext<'_>, goal: &Goal, profiles: &ProfileTable) -> Result<Self, DecideError> {
        let asked = here.wanted.positions(here.machine);
        let (mut gpus, because) = usable(&asked, here, profiles);
        let ranks = Ranks::new(asked.len(), gpus.len(), here, goal, &because)?;
        let mut fallbacks = Vec::new();
        if gpus.is_empty() {
            fallbacks.push(Fallback::NoGpu { because });
        } else if ranks.local < asked.len() {
            gpus.truncate(ranks.local);
            let used = gpus.iter().map(|gpu| gpu.position).collect();
            fallbacks.push(Fallback::FewerGpus { asked, used, because });
        }
        let facts = DeviceFacts::common(gpus.iter().map(|gpu| &gpu.facts));
        let facts = facts.map(|facts| among(gpus.len(), &here.machine.host, facts));
        let facts = facts.unwrap_or_else(|| cpu(&here.machine.host));
        Ok(Self { gpus, facts, world_size: ranks.world_size, fallbacks })
    }
}

impl DeviceRequest {
    /// Returns true if this process may use several GPUs.
    fn is_several(&self) -> bool {
        match self {
            Self::FirstFit | Self::Cpu { .. } => false,
            Self::These(positions) => positions.len() > 1,
            Self::All => true,
        }
    }

    /// Positions of the GPUs. Missing GPUs of the machine have the last ones.
    fn positions(&self, machine: &Machine) -> Vec<usize> {
        match self {
            Self::FirstFit => vec![0],
            Self::These(positions) => positions.clone(),
            Self::All => (0..machine.gpus.len() + machine.missing_count).collect(),
            Self::Cpu { .. } => Vec::new(),
        }
    }
}

/// The GPUs among those asked for that can be planned for, and why not the others: one sentence each.
fn usable(asked: &[usize], here: DecisionContext<'_>, profiles: &ProfileTable) -> (Vec<Gpu>, Vec<String>) {
    let all = &here.machine.gpus;
    let mut because = match here.wanted {
        DeviceRequest::Cpu { because } => because.clone(),
        _ if all.is_empty() => here.machine.trouble.clone(),
        _ => Vec::new(),
    };
    if all.is_empty() {
        return (Vec::new(), because);
    }
    let mut gpus = Vec::new();
    let is_there = |position: &usize| *position < all.len();
    if !asked.iter().all(is_there) {
        because.extend(here.machine.missing.iter().cloned());
    }
    for &position in asked {
        // Missing GPUs have reasons of their own.
        if position >= all.len() && matches!(here.wanted, DeviceRequest::All) {
            continue;
        }
        match usable_gpu(position, here, profiles) {
            Ok(gpu) => gpus.push(Gpu::new(gpu, all[position].clone())),
            Err(unusable) => because.push(unusable.because),
        }
    }
    (gpus, because)
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

/// Who trains together.
struct Ranks {
    /// Ranks in this process.
    local: usize,
    /// Ranks in all.
    world_size: u64,
}

impl Ranks {
    fn new(
        asked: usize,
        usable: usize,
        here: DecisionContext<'_>,
        goal: &Goal,
        because: &[String],
    ) -> Result<Self, DecideError> {
        let world_size = goal.world_size;
        if !here.wanted.is_several() {
            return Ok(Self { local: usable, world_size });
        }
        let is_alone = world_size == 1 || world_size == asked as u64;
        if !is_alone && (usable < asked || asked == 0) {
            let (asked, usable, because) = (asked as u64, usable as u64, because.to_vec());
            return Err(GpusError::Missing { asked, usable, world_size, because }.into());
        }
        let shares = |ranks: &usize| goal.global_batch.is_none_or(|samples| samples.is_multiple_of(*ranks as u64));
        if usable < asked || usable == 0 {
            // One rank can always be: the CPU, when there is no GPU.
            let local = (1..=usable).rev().find(shares).unwrap_or(0);
            return Ok(Self { local, world_size: local.max(1) as u64 });
        }
        if is_alone && !shares(&asked) {
            let would_do = (1..=here.machine.gpus.len()).filter(shares).map(|ranks| ranks as u64).collect();
            let global_batch = goal.global_batch.unwrap_or_default();
            return Err(PlanError::WorldSize { global_batch, world_size: asked as u64, would_do }.into());
        }
        let local = asked as u64;
        if !is_alone && !world_size.is_multiple_of(local) {
            let would_do = (1..=here.machine.gpus.len() as u64).filter(|count| world_size.is_multiple_of(*count));
            return Err(GpusError::Share { local, world_size, would_do: would_do.collect() }.into());
        }
        Ok(Self { local: asked, world_size: world_size.max(local) })
    }
}

/// The facts of the weakest with the host's cores shared out: each rank has a loader of its own.
fn among(gpus: usize, host: &Host, facts: DeviceFacts) -> DeviceFacts {
    DeviceFacts { host_cores: Some((host.cores / gpus.max(1) as u64).max(1)), ..facts }
}

fn cpu(host: &Host) -> DeviceFacts {
    DeviceFacts::cpu(host.memory_total, host.memory_available, host.cores)
}

/// In what the weakest of several GPUs fall behind: each such figure once, with the GPU that has least of it.
pub(super) fn shortfalls(gpus: &[Gpu]) -> Vec<Shortfall> {
    let bytes = extremes(gpus, |facts| Some(facts.memory_available.0 as f64));
    let memory = bytes.map(|(gpu, free, most)| {
        let bytes = |figure| gpu_tuned_core::Bytes(figure as u64);
        Shortfall::Memory { gpu, free: bytes(free), most: bytes(most) }
    });
    let rate = extremes(gpus, |facts| facts.fp32_tflops);
    let rate = rate.map(|(gpu, tflops, most)| Shortfall::Rate { gpu, tflops, most });
    let bandwidth = extremes(gpus, |facts| facts.bandwidth_gb_s);
    let bandwidth = bandwidth.map(|(gpu, gb_s, most)| Shortfall::Bandwidth { gpu, gb_s, most });
    let bf16 = extremes(gpus, |facts| Some(f64::from(u8::from(facts.has_bf16))));
    let bf16 = bf16.map(|(gpu, ..)| Shortfall::Bf16 { gpu });
    [memory, rate, bandwidth, bf16].into_iter().flatten().collect()
}

/// Less than a hundredth is no difference: a display takes more memory than that.
const ALIKE: f64 = 0.99;

/// Position and value of the GPU with the least, and the largest value; `None` if all are equal or one is unknown.
fn extremes(gpus: &[Gpu], figure: impl Fn(&DeviceFacts) -> Option<f64>) -> Option<(usize, f64, f64)> {
    let all: Option<Vec<_>> = gpus.iter().map(|gpu| Some((gpu.position, figure(&gpu.facts)?))).collect();
    let all = all?;
    let (gpu, least) = all.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = all.iter().map(|(_, value)| *value).max_by(f64::total_cmp)?;
    (least < most * ALIKE).then_some((gpu, least, most))
}
