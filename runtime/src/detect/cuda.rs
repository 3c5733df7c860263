//! NVML's readings joined to CUDA's list of GPUs.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_train::device::{CudaDevice, join};

/// Explains why CUDA lists none of NVML's GPUs, from the presence of CUDA's library and `CUDA_VISIBLE_DEVICES`.
pub(super) fn unseen(read: &[GpuReading], has_driver: bool, visible: Option<&str>) -> String {
    let names: Vec<_> = read.iter().map(|gpu| gpu.name.as_deref().unwrap_or("an unnamed GPU")).collect();
    let why = match visible {
        _ if !has_driver => {
            "its library (libcuda) is not on this machine; a container needs `compute` in NVIDIA_DRIVER_CAPABILITIES"
                .to_owned()
        }
        Some(visible) => format!("CUDA_VISIBLE_DEVICES is `{visible}`"),
        None => "does a container or a scheduler hide them?".to_owned(),
    };
    format!("CUDA shows none of the driver's GPUs ({}): {why}", names.join(", "))
}

/// Keeps the GPUs that CUDA lists, in CUDA's order, and adds GPUs that only CUDA lists (Jetson, WSL2).
pub(super) fn in_cuda_order(read: &[GpuReading], devices: &[CudaDevice]) -> Vec<GpuReading> {
    let alone = read.len() == 1;
    let is_joined = |reading: &GpuReading, device: &CudaDevice| {
        let could_be = join(reading.pci_address, reading.uuid.as_deref(), alone, devices);
        matches!(could_be[..], [only] if only.index == device.index)
    };
    let of_device = |device: &CudaDevice| {
        let mut joined = read.iter().filter(|reading| is_joined(reading, device));
        // MIG slices with the UUIDs of older drivers may all match one CUDA device.
        let reading = joined.next().filter(|_| joined.next().is_none());
        completed(reading.cloned().unwrap_or_else(|| unread(device)), device)
    };
    devices.iter().map(of_device).collect()
}

fn unread(device: &CudaDevice) -> GpuReading {
    let mut reading = GpuReading::default();
    reading.index = u32::try_from(device.index).unwrap_or(u32::MAX);
    reading
}

/// Fills fields that NVML does not report from CUDA.
fn completed(mut reading: GpuReading, device: &CudaDevice) -> GpuReading {
    reading.uuid = reading.uuid.or_else(|| device.uuid.clone());
    reading.name = reading.name.or_else(|| device.name.clone());
    reading.pci_address = reading.pci_address.or(device.pci_address);
    reading.compute_capability = reading.compute_capability.or(device.compute_capability);
    reading.sm_count = reading.sm_count.or(device.sm_count);
    reading.memory_total = reading.memory_total.or(device.memory_total);
    // A software limit may apply to CUDA only.
    reading.memory_free = reading.memory_free.map(|free| device.memory_total.map_or(free, |shown| free.min(shown)));
    reading
}

#[cfg(all(test, feature = "nvml"))]
mod tests;
