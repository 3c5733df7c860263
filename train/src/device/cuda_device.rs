//! GPUs as CUDA lists them.

use core::fmt;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, PciAddress};
use serde::{Deserialize, Serialize};

/// GPU as CUDA lists it, read without creating a context.
///
/// Free memory is missing, because CUDA reports it only to a context: see [`OpenGpu`](super::OpenGpu).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CudaDevice {
    /// CUDA's index, which Burn uses too: fastest first, after `CUDA_VISIBLE_DEVICES`.
    pub index: usize,
    /// Product name.
    pub name: Option<String>,
    /// PCI address. MIG slices of one GPU share it.
    pub pci_address: Option<PciAddress>,
    /// UUID of the GPU or MIG slice: 32 hexadecimal digits in five groups, without NVML's `GPU-` or `MIG-`.
    pub uuid: Option<String>,
    /// CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// Number of SMs; under MIG those of the slice.
    pub sm_count: Option<u32>,
    /// Total memory of the GPU or MIG slice.
    pub memory_total: Option<Bytes>,
    /// True if the GPU shares the host's memory.
    pub unified_memory: bool,
    /// Highest SM clock in MHz.
    pub max_sm_clock_mhz: Option<u32>,
    /// Highest memory clock in MHz.
    pub max_memory_clock_mhz: Option<u32>,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: Option<u32>,
    /// Level 2 cache.
    pub l2_cache: Option<Bytes>,
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

/// Returns the CUDA devices that may be one GPU of NVML's.
///
/// The PCI address joins them. The UUID, in NVML's spelling, distinguishes MIG slices of one GPU, and joins where an address
/// is unknown. Without both, the only device on both sides matches.
pub fn join<'a>(
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

/// Digits of a UUID without NVML's prefix; `None` for the spelling of drivers before 470 (`MIG-GPU-…/7/0`).
fn digits(uuid: &str) -> Option<&str> {
    let digits = uuid.trim().trim_start_matches("GPU-").trim_start_matches("MIG-");
    (digits.len() == 36 && digits.chars().all(|c| c == '-' || c.is_ascii_hexdigit())).then_some(digits)
}
