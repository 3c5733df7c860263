//! NVML's readings joined to CUDA's list of GPUs.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_train::device::{CudaDevice, join};

use super::gpus::Drivers;

/// Replaces the predicted GPUs by CUDA's list, if CUDA can be asked. `read` are all GPUs of NVML's.
#[cfg(feature = "cuda")]
pub(super) fn listed(mut predicted: Drivers, read: &[GpuReading]) -> Drivers {
    match gpu_tuned_train::device::cuda_devices() {
        Ok(devices) => {
            let shown = in_cuda_order(read, &devices);
            if devices.is_empty() && !predicted.gpus.is_empty() {
                let visible = std::env::var("CUDA_VISIBLE_DEVICES").ok();
                predicted.missing.push(unseen(read, gpu_tuned_train::device::has_driver(), visible.as_deref()));
            }
            predicted = replaced(predicted, shown);
        }
        Err(error) => predicted.trouble.push(error.to_string()),
    }
    predicted
}

/// Replaces the predicted GPUs by those that CUDA shows, and adds the GPUs that it lacks to the missing ones.
///
/// If CUDA shows more GPUs than predicted, the prediction's reasons are dropped: NVML was absent or did not list all.
fn replaced(predicted: Drivers, shown: Vec<GpuReading>) -> Drivers {
    let expected = predicted.gpus.len() + predicted.missing_count;
    let missing_count = expected.saturating_sub(shown.len());
    let mut missing = predicted.missing;
    if shown.len() > predicted.gpus.len() {
        missing.clear();
        if missing_count > 0 {
            missing.push(format!("CUDA shows {} of the {expected} GPUs that this process should have", shown.len()));
        }
    } else if !shown.is_empty() {
        missing.extend(not_shown(&predicted.gpus, &shown));
    }
    Drivers { gpus: shown, missing, missing_count, ..predicted }
}

/// Explains why CUDA lists none of NVML's GPUs, from the presence of CUDA's library and `CUDA_VISIBLE_DEVICES`.
fn unseen(read: &[GpuReading], has_driver: bool, visible: Option<&str>) -> String {
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

/// Reports predicted GPUs that CUDA does not show, if it shows fewer.
fn not_shown(predicted: &[GpuReading], shown: &[GpuReading]) -> Vec<String> {
    let is_shown =
        |gpu: &&GpuReading| shown.iter().any(|shown| (&shown.uuid, shown.pci_address) == (&gpu.uuid, gpu.pci_address));
    let lacking = predicted.len().saturating_sub(shown.len());
    let missing = predicted.iter().filter(|gpu| !is_shown(gpu)).take(lacking);
    let name = |gpu: &GpuReading| gpu.name.clone().unwrap_or_else(|| "without a name".to_owned());
    missing.map(|gpu| format!("GPU {}: CUDA does not show it ({})", gpu.index, name(gpu))).collect()
}

/// Keeps the GPUs that CUDA lists, in CUDA's order, and adds GPUs that only CUDA lists (Jetson, WSL2).
fn in_cuda_order(read: &[GpuReading], devices: &[CudaDevice]) -> Vec<GpuReading> {
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

fn figures(device: &CudaDevice) -> GpuReading {
    let mut figures = unread(device);
    figures.uuid.clone_from(&device.uuid);
    figures.name.clone_from(&device.name);
    figures.pci_address = device.pci_address;
    figures.compute_capability = device.compute_capability;
    figures.unified_memory = device.unified_memory;
    figures.memory_total = device.memory_total;
    figures.sm_count = device.sm_count;
    figures.max_sm_clock_mhz = device.max_sm_clock_mhz;
    figures.max_memory_clock_mhz = device.max_memory_clock_mhz;
    figures.memory_bus_bits = device.memory_bus_bits;
    figures.l2_cache = device.l2_cache;
    figures
}

/// Fills fields that NVML does not report from CUDA.
fn completed(mut reading: GpuReading, device: &CudaDevice) -> GpuReading {
    reading.complete(&figures(device));
    // A software limit may apply to CUDA only.
    reading.memory_free = reading.memory_free.map(|free| device.memory_total.map_or(free, |shown| free.min(shown)));
    reading
}

#[cfg(all(test, feature = "nvml"))]
mod tests;
