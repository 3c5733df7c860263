//! A look at the machine: its GPUs, its driver, its host. Nothing here opens a device, and nothing panics.

#[cfg(any(feature = "cuda", all(test, feature = "burn", feature = "nvml")))]
mod cuda;
mod gpus;

use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_observe::Host;
use serde::Serialize;

/// What a machine has, at one moment.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Machine {
    /// The GPUs that this program could use, in the order in which CUDA numbers them, as far as that is known.
    pub gpus: Vec<GpuReading>,
    /// Why there are no GPUs, or not all of them: one sentence each.
    pub trouble: Vec<String>,
    /// The driver's version, such as `580.95.05`.
    pub driver_version: Option<String>,
    /// Processor and memory.
    pub host: Host,
}

/// Looks at the machine. Loads the driver's library, and neither opens a device nor takes memory on one.
pub fn detect() -> Machine {
    detect_through(None)
}

/// [`detect`], with the driver's management library (NVML) at `library` instead of its usual places.
pub fn detect_through(library: Option<&Path>) -> Machine {
    let begin = Instant::now();
    let driver = gpus::read(library);
    tracing::debug!(elapsed = ?begin.elapsed(), "asked the drivers");
    for trouble in &driver.trouble {
        tracing::info!("{trouble}");
    }
    Machine { gpus: driver.gpus, trouble: driver.trouble, driver_version: driver.driver_version, host: Host::read() }
}

/// The machine at the first call in this process: later on, memory that this process holds would count as taken.
pub(crate) fn first_look() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(detect)
}
