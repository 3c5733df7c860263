//! This machine: the GPUs that a program can use, its driver, its host. No code here opens a device or panics.

use std::fmt;
use std::path::Path;
use std::time::Instant;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::ProfileTable;
use serde::Serialize;

use crate::Host;
#[cfg(any(feature = "cuda", feature = "nvml"))]
use crate::log::{warn_if_slow, warn_user};
#[cfg(any(feature = "cuda", feature = "nvml"))]
use crate::{CudaEnvironment, DriverReading};

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

/// A GPU that a plan can be made for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct UsableGpu {
    /// Number of the GPU in CUDA's order: its position in [`Machine::gpus`].
    pub position: usize,
    /// Match with a profile.
    #[serde(rename = "device")]
    pub found: Match,
    /// Reading of the driver.
    pub reading: GpuReading,
    /// Facts for the planner, with all cores of the host.
    #[serde(skip)]
    pub facts: DeviceFacts,
    /// Source of the memory, if the driver reports none or an implausible one; one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
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

/// Reads the machine. Loads the driver's library; opens no device and allocates no GPU memory.
pub fn detect() -> Machine {
    detect_through(None)
}

/// [`detect`], with the driver's management library (NVML) at `library` instead of its usual places.
pub fn detect_through(library: Option<&Path>) -> Machine {
    let begin = Instant::now();
    let mut machine = read(library);
    tracing::debug!(elapsed = ?begin.elapsed(), "read the drivers");
    machine.trouble.splice(0..0, machine.missing.iter().cloned());
    for trouble in &machine.trouble {
        tracing::info!("{trouble}");
    }
    for gpu in machine.gpus.iter_mut().filter(|gpu| gpu.has_unified_memory()) {
        bound_by_host(gpu, &machine.host);
    }
    machine
}

/// Reads the GPUs that this process can use, in CUDA's order. Trouble excludes missing GPUs.
///
/// NVML reports free memory. The GPUs and their order are CUDA's list if the program is built with CUDA, else predicted
/// from the environment.
#[cfg(any(feature = "cuda", feature = "nvml"))]
fn read(library: Option<&Path>) -> Machine {
    let environment = CudaEnvironment::from_process();
    let (reading, trouble) = match read_nvml(library) {
        Ok(reading) => (reading, None),
        Err(reason) => (DriverReading::default(), Some(reason)),
    };
    let visible = environment.select(&reading);
    #[cfg(feature = "cuda")]
    let visible = environment.confirm(visible, &reading.gpus, with_patience(crate::cuda_devices));
    let mut gpus = visible.gpus;
    let limits = environment.limit(&mut gpus);
    Machine {
        gpus,
        missing: visible.missing,
        missing_count: visible.missing_count,
        trouble: trouble.into_iter().chain(visible.notes).chain(limits).collect(),
        driver_version: reading.driver_version,
        host: Host::read(),
    }
}

#[cfg(not(any(feature = "cuda", feature = "nvml")))]
fn read(_library: Option<&Path>) -> Machine {
    Machine {
        gpus: Vec::new(),
        missing: Vec::new(),
        missing_count: 0,
        trouble: vec![WITHOUT_NVML.to_owned()],
        driver_version: None,
        host: Host::read(),
    }
}

#[cfg(feature = "nvml")]
fn read_nvml(library: Option<&Path>) -> Result<DriverReading, String> {
    with_patience(|| crate::read(library)).map_err(|error| error.to_string())
}

#[cfg(all(feature = "cuda", not(feature = "nvml")))]
fn read_nvml(_library: Option<&Path>) -> Result<DriverReading, String> {
    Err(WITHOUT_NVML.to_owned())
}

#[cfg(not(feature = "nvml"))]
const WITHOUT_NVML: &str = "built without feature `nvml`: memory held by others is not known";

/// Calls the driver, and warns if it takes long. Each call has a limit of a minute.
#[cfg(any(feature = "cuda", feature = "nvml"))]
fn with_patience<T>(call: impl FnOnce() -> T) -> T {
    const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
    let warn = || {
        warn_user(
            "the NVIDIA driver has not answered for 10 s, waiting for a minute: see whether `nvidia-smi` works; if it \
             hangs, too, reset the GPU or reboot",
        );
    };
    warn_if_slow(PATIENCE, warn, call)
}

/// Bounds the free memory of a GPU that shares the host's: a control group may allow this process less of it. The total
/// identifies the module.
fn bound_by_host(gpu: &mut GpuReading, host: &Host) {
    gpu.unified_memory = true;
    gpu.memory_total = gpu.memory_total.or(Some(host.memory_total));
    gpu.memory_free = Some(gpu.memory_free.map_or(host.memory_available, |free| free.min(host.memory_available)));
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
        Ok(UsableGpu { position, found, reading: reading.clone(), facts, memory_remark })
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

impl UsableGpu {
    /// Name in the driver.
    pub fn name(&self) -> String {
        name(&self.reading)
    }
}

/// The name, and the match with a profile.
impl fmt::Display for UsableGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match &self.found {
            Match::Exact { profile } => write!(f, "{name} ({}, exact)", profile.id),
            Match::Variant { profile, differences } => {
                let differences: Vec<_> = differences.iter().map(ToString::to_string).collect();
                write!(f, "{name}: like {}, but {}", profile.id, differences.join(", "))
            }
            Match::Class { compute_capability } => {
                write!(f, "{name}: no profile, compute capability {compute_capability}")
            }
            Match::Unknown => write!(f, "{name}, which no profile describes"),
        }
    }
}

/// Name in the driver.
pub(crate) fn name(gpu: &GpuReading) -> String {
    gpu.name.clone().unwrap_or_else(|| format!("GPU {}", gpu.index))
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Bytes;
    use gpu_tuned_core::device::GpuReading;

    use super::bound_by_host;
    use crate::Host;

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
            bound_by_host(&mut gpu, &host);
            assert_eq!((gpu.unified_memory, (gpu.memory_total, gpu.memory_free)), (true, expected));
        }
    }
}
