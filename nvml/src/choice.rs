//! The GPU that a program takes among those of a machine: their order, the first that fits, and remedies.

use std::fmt;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::plan::Remedy;
use serde::Serialize;

use crate::machine::name;
use crate::{Host, HostMemoryLimit, Machine, UnusableGpu};

/// A GPU that comes first and is not taken.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PassedOver {
    /// Number of the GPU in CUDA's order; `None` for a GPU that this process does not get.
    pub position: Option<usize>,
    /// Why another GPU is taken.
    pub because: String,
}

impl fmt::Display for PassedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.because)
    }
}

/// Result of planning for a GPU.
#[derive(Clone, Debug)]
pub enum Fit<T> {
    /// The plan fits.
    Whole(T),
    /// The plan fits in fp32, in place of a requested precision.
    OtherPrecision {
        /// The plan.
        plan: T,
        /// Why the GPU lacks the precision.
        because: String,
    },
    /// There is no plan: the memory is too small, or the reason is given.
    No {
        /// The reason, if it is not the memory.
        because: Option<String>,
    },
}

/// The GPU that a start takes.
#[derive(Clone, Debug)]
pub struct FirstFit<T> {
    /// Number of the GPU in CUDA's order.
    pub position: usize,
    /// The plan.
    pub plan: T,
    /// GPUs that were tried before and lack the precision.
    pub failed: Vec<UnusableGpu>,
}

impl<T> FirstFit<T> {
    /// Returns the first GPU on which the plan fits as requested, else the first on which it fits in another precision.
    ///
    /// `fits` are the GPUs in the order in which a start tries them: see
    /// [`Machine::preference`](Machine::preference). It is consumed up to the returned GPU.
    pub fn new(fits: impl IntoIterator<Item = (usize, Fit<T>)>) -> Option<Self> {
        let mut failed = Vec::new();
        let mut second_choice = None;
        for (position, fit) in fits {
            match fit {
                Fit::Whole(plan) => return Some(Self { position, plan, failed }),
                Fit::OtherPrecision { plan, because } => {
                    second_choice = second_choice.or(Some((position, plan)));
                    failed.push(UnusableGpu { position, because });
                }
                Fit::No { because } => {
                    failed.extend(because.map(|because| UnusableGpu { position, because }));
                }
            }
        }
        second_choice.map(|(position, plan)| Self { position, plan, failed })
    }
}

impl Machine {
    /// Returns positions of the GPUs in the order in which a start for one GPU tries them.
    ///
    /// GPUs that the build names are first. Among these, and among the others, busy GPUs are last: those with less than
    /// half of their memory free. Otherwise the order is CUDA's.
    pub fn preference(&self, is_target: impl Fn(&GpuReading) -> bool) -> Vec<usize> {
        let mut positions: Vec<usize> = (0..self.gpus.len()).collect();
        positions.sort_by_cached_key(|&position| {
            let gpu = &self.gpus[position];
            (!is_target(gpu), is_busy(gpu))
        });
        positions
    }

    /// Returns the GPUs that come before `taken` if none is busy, with the reasons in `failed` or their free memory; then
    /// the missing GPUs.
    pub fn passed_over(
        &self,
        taken: usize,
        is_target: impl Fn(&GpuReading) -> bool,
        failed: &[UnusableGpu],
    ) -> Vec<PassedOver> {
        let rank = |position: usize| (!is_target(&self.gpus[position]), position);
        let earlier = (0..self.gpus.len()).filter(|&position| rank(position) < rank(taken));
        let because = |position: usize| {
            let failure = failed.iter().find(|failed| failed.position == position);
            failure.map_or_else(|| self.free_beside(position, taken), |failed| failed.because.clone())
        };
        let earlier = earlier.map(|position| PassedOver { position: Some(position), because: because(position) });
        let missing = self.missing.iter().map(|because| PassedOver { position: None, because: because.clone() });
        earlier.chain(missing).collect()
    }

    /// Compares the free memory of a GPU with that of the taken one.
    fn free_beside(&self, position: usize, taken: usize) -> String {
        let [gpu, other] = [&self.gpus[position], &self.gpus[taken]];
        let is_same_kind = (&gpu.name, gpu.memory_total) == (&other.name, other.memory_total);
        let kind = if is_same_kind { "the same kind".to_owned() } else { name(other) };
        let free =
            |gpu: &GpuReading| gpu.memory_free.map_or_else(|| "unknown memory".to_owned(), |free| free.to_string());
        format!("GPU {position} has {} free; GPU {taken} is {kind} and has {} free", free(gpu), free(other))
    }

    /// Names the GPU of this machine on which a workload fits that does not fit GPU `refused`; else one on which it fits
    /// once its memory is free; else the limit of this process without which it fits GPU `refused`. Memory of the host
    /// cannot be freed.
    pub fn remedy(&self, refused: usize, fits: impl Fn(&GpuReading) -> bool) -> Option<Remedy> {
        let others = self.gpus.iter().enumerate().filter(|(position, _)| *position != refused);
        let other = others.clone().find(|(_, gpu)| fits(gpu)).map(|(position, gpu)| Remedy::TakeGpu {
            position,
            gpu: name(gpu),
            free: gpu.memory_free.unwrap_or_else(|| usable(gpu)),
        });
        let refused = self.gpus.get(refused).map(|gpu| (refused, gpu));
        let freed = || {
            let mut all = refused.into_iter().chain(others);
            all.find_map(|(position, gpu)| {
                let (free, total) = (gpu.memory_free?, usable(gpu));
                let total = gpu.memory_limit.map_or(total, |limit| limit.min(total));
                let would_do = free < total && !gpu.has_unified_memory() && fits(&with_free(gpu, total));
                would_do.then(|| Remedy::FreeGpu { position, gpu: name(gpu), free, total })
            })
        };
        other.or_else(freed).or_else(|| {
            let (_, gpu) = refused?;
            let host = self.host.memory_limit.filter(|_| gpu.has_unified_memory());
            let host = host.map(|host| (host.name, host.limit, host.available_without));
            let (name, limit, total) = host.or_else(|| Some((GPU_MEMORY_LIMIT, gpu.memory_limit?, usable(gpu))))?;
            let mut unlimited = with_free(gpu, total);
            unlimited.memory_limit = None;
            fits(&unlimited).then(|| Remedy::RaiseLimit { name: name.to_owned(), limit })
        })
    }

    /// Names the limit on the host's memory without which a workload fits the CPU. `fits` gets the host without limit.
    pub fn host_remedy(&self, fits: impl Fn(&Host) -> bool) -> Option<Remedy> {
        let HostMemoryLimit { name, limit, available_without, .. } = self.host.memory_limit?;
        let mut host = self.host;
        (host.memory_available, host.memory_limit) = (available_without, None);
        host.memory_total = host.memory_total.max(available_without);
        fits(&host).then(|| Remedy::RaiseLimit { name: name.to_owned(), limit })
    }
}

/// The variable that sets [`GpuReading::memory_limit`].
const GPU_MEMORY_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

fn with_free(gpu: &GpuReading, free: Bytes) -> GpuReading {
    let mut gpu = gpu.clone();
    gpu.memory_free = Some(free);
    gpu
}

/// Memory of the GPU without what the driver reserves.
fn usable(gpu: &GpuReading) -> Bytes {
    gpu.memory_total.unwrap_or_default() - gpu.memory_reserved.unwrap_or_default()
}

/// Returns true if less than half of the memory is free.
fn is_busy(gpu: &GpuReading) -> bool {
    gpu.memory_free.zip(gpu.memory_total).is_some_and(|(free, total)| free < total.scaled(0.5))
}
