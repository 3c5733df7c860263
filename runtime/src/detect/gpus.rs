use std::path::Path;

use gpu_tuned_core::device::GpuReading;

/// What the drivers say.
#[derive(Default)]
pub(super) struct Drivers {
    pub gpus: Vec<GpuReading>,
    pub trouble: Vec<String>,
    pub driver_version: Option<String>,
}

/// Asks the management library, then CUDA: the first knows what is free, the second what this program may use, and in
/// which order.
pub(super) fn read(library: Option<&Path>) -> Drivers {
    in_cuda_order(management(library))
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

/// Keeps the GPUs that CUDA shows, in its order, and adds those that only CUDA knows (Jetson, WSL2).
#[cfg(feature = "cuda")]
fn in_cuda_order(mut drivers: Drivers) -> Drivers {
    use crate::burn::{Place, cuda_devices};

    let devices = match cuda_devices() {
        Ok(devices) => devices,
        Err(error) => {
            drivers.trouble.push(error.to_string());
            return drivers;
        }
    };
    let read = core::mem::take(&mut drivers.gpus);
    let alone = read.len() == 1;
    let joined = |reading: &GpuReading, index: usize| {
        Place::of(reading, alone).find(&devices).is_ok_and(|device| device.index == index)
    };
    drivers.gpus = devices
        .iter()
        .map(|device| {
            let reading = read.iter().find(|reading| joined(reading, device.index));
            reading.cloned().unwrap_or_else(|| {
                let mut reading = GpuReading::default();
                reading.index = u32::try_from(device.index).unwrap_or(u32::MAX);
                reading.uuid.clone_from(&device.uuid);
                reading.name.clone_from(&device.name);
                reading.pci_address = device.pci_address;
                reading.compute_capability = device.compute_capability;
                reading.sm_count = device.sm_count;
                reading.memory_total = device.memory_total;
                reading
            })
        })
        .collect();
    drivers
}

#[cfg(not(feature = "cuda"))]
fn in_cuda_order(drivers: Drivers) -> Drivers {
    drivers
}
