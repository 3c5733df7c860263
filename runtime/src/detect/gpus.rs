use std::path::Path;
#[cfg(any(feature = "cuda", feature = "nvml"))]
use std::time::Duration;

use gpu_tuned_observe::Host;
#[cfg(any(feature = "cuda", feature = "nvml"))]
use gpu_tuned_observe::log::{warn_if_slow, warn_user};

use super::Machine;
#[cfg(any(feature = "cuda", feature = "nvml"))]
use gpu_tuned_nvml::{CudaEnvironment, DriverReading};

/// Reads the GPUs that this process can use, in CUDA's order. Trouble excludes missing GPUs.
///
/// NVML reports free memory. The GPUs and their order are CUDA's list if the program is built with CUDA, else predicted
/// from the environment.
#[cfg(any(feature = "cuda", feature = "nvml"))]
pub(super) fn read(library: Option<&Path>) -> Machine {
    let environment = CudaEnvironment::from_process();
    let (reading, trouble) = match managed(library) {
        Ok(reading) => (reading, None),
        Err(reason) => (DriverReading::default(), Some(reason)),
    };
    let visible = environment.select(&reading);
    #[cfg(feature = "cuda")]
    let visible = environment.confirm(visible, &reading.gpus, with_patience(gpu_tuned_nvml::cuda_devices));
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

/// NVML's reading.
#[cfg(feature = "nvml")]
fn managed(library: Option<&Path>) -> Result<DriverReading, String> {
    with_patience(|| gpu_tuned_nvml::read(library)).map_err(|error| error.to_string())
}

/// Calls the driver, and warns if it takes long. Each call has a limit of a minute.
#[cfg(any(feature = "cuda", feature = "nvml"))]
fn with_patience<T>(call: impl FnOnce() -> T) -> T {
    const PATIENCE: Duration = Duration::from_secs(10);
    let warn = || {
        warn_user(
            "the NVIDIA driver has not answered for 10 s, waiting for a minute: see whether `nvidia-smi` works; if it \
             hangs, too, reset the GPU or reboot",
        );
    };
    warn_if_slow(PATIENCE, warn, call)
}

#[cfg(all(feature = "cuda", not(feature = "nvml")))]
fn managed(_library: Option<&Path>) -> Result<DriverReading, String> {
    Err(WITHOUT_NVML.to_owned())
}

#[cfg(not(feature = "nvml"))]
const WITHOUT_NVML: &str = "built without feature `nvml`: memory held by others is not known";

#[cfg(not(any(feature = "cuda", feature = "nvml")))]
pub(super) fn read(_library: Option<&Path>) -> Machine {
    Machine {
        gpus: Vec::new(),
        missing: Vec::new(),
        missing_count: 0,
        trouble: vec![WITHOUT_NVML.to_owned()],
        driver_version: None,
        host: Host::read(),
    }
}
