use std::path::Path;

use gpu_tuned_core::device::GpuReading;
#[cfg(feature = "nvml")]
use gpu_tuned_nvml::{CudaEnvironment, DriverReading};

/// Reports of the drivers.
#[derive(Default)]
pub(super) struct Drivers {
    pub gpus: Vec<GpuReading>,
    /// GPUs that this process should have and does not get: one sentence each.
    pub missing: Vec<String>,
    /// Number of missing GPUs.
    pub missing_count: usize,
    /// Everything else that bounds the GPUs of this process: one sentence each.
    pub trouble: Vec<String>,
    pub driver_version: Option<String>,
}

/// Reads the GPUs that CUDA gives to this process, in CUDA's order.
///
/// NVML reports free memory. The GPUs and their order are CUDA's list if the program is built with CUDA, else predicted
/// from the environment.
#[cfg(feature = "nvml")]
pub(super) fn read(library: Option<&Path>) -> Drivers {
    let environment = CudaEnvironment::from_process();
    let (reading, trouble) = match gpu_tuned_nvml::read(library) {
        Ok(reading) => (reading, None),
        Err(error) => (DriverReading::default(), Some(error.to_string())),
    };
    let visible = environment.select(&reading);
    let drivers = Drivers {
        gpus: visible.gpus,
        missing: visible.missing,
        missing_count: visible.missing_count,
        trouble: trouble.into_iter().chain(visible.notes).collect(),
        driver_version: reading.driver_version.clone(),
    };
    #[cfg(feature = "cuda")]
    let drivers = super::cuda::listed(drivers, &reading.gpus);
    limited(drivers, &environment)
}

/// Applies the environment's memory limits.
#[cfg(feature = "nvml")]
fn limited(mut drivers: Drivers, environment: &CudaEnvironment) -> Drivers {
    drivers.trouble.extend(environment.limit(&mut drivers.gpus));
    drivers
}

/// Reads CUDA's list alone.
#[cfg(not(feature = "nvml"))]
pub(super) fn read(_library: Option<&Path>) -> Drivers {
    let trouble = "built without feature `nvml`: memory held by others is not known".to_owned();
    let drivers = Drivers { trouble: vec![trouble], ..Drivers::default() };
    #[cfg(feature = "cuda")]
    let drivers = super::cuda::listed(drivers, &[]);
    drivers
}
