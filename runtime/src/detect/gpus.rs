use std::path::Path;

use gpu_tuned_core::device::GpuReading;

/// Reports of the drivers.
#[derive(Default)]
pub(super) struct Drivers {
    pub gpus: Vec<GpuReading>,
    pub trouble: Vec<String>,
    pub driver_version: Option<String>,
}

/// Reads NVML, then CUDA: the first reports free memory, the second the GPUs of this program and their order.
pub(super) fn read(library: Option<&Path>) -> Drivers {
    let drivers = management(library);
    #[cfg(feature = "cuda")]
    let drivers = in_cuda_order(drivers);
    drivers
}

#[cfg(feature = "nvml")]
fn management(library: Option<&Path>) -> Drivers {
    match gpu_tuned_nvml::read(library) {
        Ok(reading) => Drivers {
            gpus: reading.gpus,
            trouble: reading.trouble.iter().map(|gpu| format!("GPU {}: {}", gpu.index, gpu.what)).collect(),
            driver_version: reading.driver_version,
        },
        Err(error) => Drivers { trouble: vec![error.to_string()], ..Drivers::default() },
    }
}

#[cfg(not(feature = "nvml"))]
fn management(_library: Option<&Path>) -> Drivers {
    let trouble = "built without feature `nvml`: memory held by others is not known".to_owned();
    Drivers { trouble: vec![trouble], ..Drivers::default() }
}

/// Keeps the GPUs that CUDA shows, if it can be asked.
#[cfg(feature = "cuda")]
fn in_cuda_order(mut drivers: Drivers) -> Drivers {
    match gpu_tuned_train::device::cuda_devices() {
        Ok(devices) => {
            if devices.is_empty() && !drivers.gpus.is_empty() {
                let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
                let trouble =
                    super::cuda::unseen(&drivers.gpus, gpu_tuned_train::device::has_driver(), visible.as_deref());
                drivers.trouble.push(trouble);
            }
            drivers.gpus = super::cuda::in_cuda_order(&drivers.gpus, &devices);
        }
        Err(error) => drivers.trouble.push(error.to_string()),
    }
    drivers
}
