//! Reading of the machine: its GPUs, its driver, its host. No code here opens a device or panics.

mod gpus;
mod usable;

use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_observe::Host;
use serde::Serialize;

pub use usable::{UnusableGpu, UsableGpu};

/// State of a machine at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Machine {
    /// GPUs that this program can use, in CUDA's order: see `CUDA_VISIBLE_DEVICES` and `CUDA_DEVICE_ORDER`.
    pub gpus: Vec<GpuReading>,
    /// GPUs that this program should have and does not get, such as a lost one: one sentence each.
    pub missing: Vec<String>,
    /// Number of missing GPUs. One sentence may be about several.
    pub missing_count: usize,
    /// Why there are no GPUs, not all of them, or not all of their memory: one sentence each. Includes the missing ones.
    pub trouble: Vec<String>,
    /// The driver's version, such as `580.95.05`.
    pub driver_version: Option<String>,
    /// Processor and memory.
    pub host: Host,
}

/// Reads the machine. Loads the driver's library; opens no device and allocates no GPU memory.
pub fn detect() -> Machine {
    detect_through(None)
}

/// [`detect`], with the driver's management library (NVML) at `library` instead of its usual places.
pub fn detect_through(library: Option<&Path>) -> Machine {
    let begin = Instant::now();
    let mut machine = gpus::read(library);
    tracing::debug!(elapsed = ?begin.elapsed(), "read the drivers");
    machine.trouble.splice(0..0, machine.missing.iter().cloned());
    for trouble in &machine.trouble {
        tracing::info!("{trouble}");
    }
    for gpu in machine.gpus.iter_mut().filter(|gpu| gpu.has_unified_memory()) {
        share_memory(gpu, &machine.host);
    }
    machine
}

/// Bounds the free memory of a GPU that shares the host's: a control group may allow this process less of it. The total
/// identifies the module.
fn share_memory(gpu: &mut GpuReading, host: &Host) {
    gpu.unified_memory = true;
    gpu.memory_total = gpu.memory_total.or(Some(host.memory_total));
    gpu.memory_free = Some(gpu.memory_free.map_or(host.memory_available, |free| free.min(host.memory_available)));
}

/// Machine at the first call in this process. Later, memory of this process would count as used.
pub(crate) fn first_look() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(detect)
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Bytes;
    use gpu_tuned_core::device::GpuReading;
    use gpu_tuned_observe::Host;

    use super::share_memory;

    #[test]
    fn a_control_group_bounds_what_is_free_of_unified_memory_and_not_the_total() {
        let gib = |gib: u64| Some(Bytes::from_mib(gib << 10));
        let mut host = Host::read();
        (host.memory_total, host.memory_available) = (Bytes::from_mib(8 << 10), Bytes::from_mib(6 << 10));
        for (total, free, expected) in [
            (gib(61), gib(50), (gib(61), gib(6))),
            (gib(61), gib(2), (gib(61), gib(2))),
            (None, None, (gib(8), gib(6))),
        ] {
            let mut gpu = GpuReading::default();
            (gpu.memory_total, gpu.memory_free) = (total, free);
            share_memory(&mut gpu, &host);
            assert_eq!((gpu.unified_memory, (gpu.memory_total, gpu.memory_free)), (true, expected));
        }
    }
}
