//! What CUDA shows of the machine, joined to what the management library says of it.

use core::fmt;

use gpu_tuned_core::Bytes;
#[cfg(any(feature = "cuda", all(test, feature = "nvml")))]
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::device::{ComputeCapability, PciAddress};
use serde::{Deserialize, Serialize};

/// A GPU as CUDA shows it, read without creating a context.
///
/// Free memory is missing: CUDA tells it to a context only ([`OpenGpu`](crate::burn::OpenGpu) has it).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CudaDevice {
    /// CUDA's index, which is Burn's too: the fastest first, `CUDA_VISIBLE_DEVICES` applied.
    pub index: usize,
    /// The product name.
    pub name: Option<String>,
    /// Where the GPU sits on the PCI bus; slices of one GPU share it.
    pub pci_address: Option<PciAddress>,
    /// The GPU's (or the MIG slice's) UUID: 32 hexadecimal digits in five groups, without NVML's `GPU-` or `MIG-`.
    pub uuid: Option<String>,
    /// The CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// Streaming multiprocessors; of the slice, under MIG.
    pub sm_count: Option<u32>,
    /// All memory of the device (or of the MIG slice).
    pub memory_total: Option<Bytes>,
}

impl fmt::Display for CudaDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CUDA device {} ({}", self.index, self.name.as_deref().unwrap_or("unnamed"))?;
        if let Some(address) = self.pci_address {
            write!(f, " at {address}")?;
        }
        f.write_str(")")
    }
}

/// Why CUDA shows none of the GPUs that the management library reads, as far as that can be told: whether CUDA's library is
/// there, and what `CUDA_VISIBLE_DEVICES` says.
#[cfg(any(feature = "cuda", all(test, feature = "nvml")))]
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

/// Keeps the GPUs that CUDA shows, in its order, and adds those that only CUDA knows (Jetson, WSL2).
#[cfg(any(feature = "cuda", all(test, feature = "nvml")))]
pub(super) fn in_cuda_order(read: &[GpuReading], devices: &[CudaDevice]) -> Vec<GpuReading> {
    let alone = read.len() == 1;
    let is_joined = |reading: &GpuReading, device: &CudaDevice| {
        let could_be = join(reading.pci_address, reading.uuid.as_deref(), alone, devices);
        matches!(could_be[..], [only] if only.index == device.index)
    };
    let of_device = |device: &CudaDevice| {
        let mut joined = read.iter().filter(|reading| is_joined(reading, device));
        // Slices that older drivers name in another way may all be the one that CUDA shows.
        let reading = joined.next().filter(|_| joined.next().is_none());
        completed(reading.cloned().unwrap_or_else(|| unread(device)), device)
    };
    devices.iter().map(of_device).collect()
}

#[cfg(any(feature = "cuda", all(test, feature = "nvml")))]
fn unread(device: &CudaDevice) -> GpuReading {
    let mut reading = GpuReading::default();
    reading.index = u32::try_from(device.index).unwrap_or(u32::MAX);
    reading
}

/// Takes from CUDA what the management library does not answer.
#[cfg(any(feature = "cuda", all(test, feature = "nvml")))]
fn completed(mut reading: GpuReading, device: &CudaDevice) -> GpuReading {
    reading.uuid = reading.uuid.or_else(|| device.uuid.clone());
    reading.name = reading.name.or_else(|| device.name.clone());
    reading.pci_address = reading.pci_address.or(device.pci_address);
    reading.compute_capability = reading.compute_capability.or(device.compute_capability);
    reading.sm_count = reading.sm_count.or(device.sm_count);
    reading.memory_total = reading.memory_total.or(device.memory_total);
    // A software limit may stand between this program and CUDA only.
    reading.memory_free = reading.memory_free.map(|free| device.memory_total.map_or(free, |shown| free.min(shown)));
    reading
}

/// The devices that a GPU of NVML's could be.
///
/// The PCI address joins them; the UUID, as NVML spells it, tells the slices of one GPU apart, and joins where an address
/// is unknown. With neither, a device that is alone on both sides is the same one.
pub(crate) fn join<'a>(
    address: Option<PciAddress>,
    uuid: Option<&str>,
    alone: bool,
    devices: &'a [CudaDevice],
) -> Vec<&'a CudaDevice> {
    let uuid = uuid.and_then(digits);
    let same = |ours: Option<&str>| ours.zip(uuid).map(|(ours, wanted)| ours.eq_ignore_ascii_case(wanted));
    let by_uuid: Vec<_> = devices.iter().filter(|device| same(device.uuid.as_deref()) == Some(true)).collect();
    if !by_uuid.is_empty() {
        return by_uuid;
    }
    // A different UUID at the right address is another slice of that GPU.
    let possible: Vec<_> = devices.iter().filter(|device| same(device.uuid.as_deref()).is_none()).collect();
    let place = |device: &CudaDevice| device.pci_address.zip(address).map(|(ours, wanted)| ours == wanted);
    let by_address: Vec<_> = possible.iter().copied().filter(|device| place(device) == Some(true)).collect();
    let nothing_known = alone && devices.len() == 1 && possible.iter().all(|device| place(device).is_none());
    if by_address.is_empty() && nothing_known { possible } else { by_address }
}

/// The digits of a UUID, without NVML's prefix; `None` for the spelling of drivers before 470 (`MIG-GPU-…/7/0`).
fn digits(uuid: &str) -> Option<&str> {
    let digits = uuid.trim().trim_start_matches("GPU-").trim_start_matches("MIG-");
    (digits.len() == 36 && digits.chars().all(|c| c == '-' || c.is_ascii_hexdigit())).then_some(digits)
}

#[cfg(all(test, feature = "nvml"))]
mod tests;
