//! GPUs as CUDA lists them, and their identity in NVML.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{ComputeCapability, GpuReading, PciAddress};
use crate::Bytes;

/// GPU as CUDA lists it, read without creating a context.
///
/// Free memory is missing, because CUDA reports it only to a context.
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

/// Identifiers of a GPU or a MIG slice in NVML or CUDA.
#[derive(Clone, Copy, Debug, Default)]
pub struct GpuIdentity<'a> {
    /// PCI address. MIG slices of one GPU share it.
    pub pci_address: Option<PciAddress>,
    /// UUID, with or without NVML's prefix.
    pub uuid: Option<&'a str>,
    /// Product name.
    pub name: Option<&'a str>,
}

impl<'a> From<&'a CudaDevice> for GpuIdentity<'a> {
    fn from(device: &'a CudaDevice) -> Self {
        Self { pci_address: device.pci_address, uuid: device.uuid.as_deref(), name: device.name.as_deref() }
    }
}

impl<'a> From<&'a GpuReading> for GpuIdentity<'a> {
    fn from(reading: &'a GpuReading) -> Self {
        Self { pci_address: reading.pci_address, uuid: reading.uuid.as_deref(), name: reading.name.as_deref() }
    }
}

impl GpuIdentity<'_> {
    /// Returns the candidates that may be this GPU.
    ///
    /// The UUID decides, because MIG slices of one GPU share its PCI address. Without a UUID on either side the address
    /// decides. Without both, the only GPU of both sides matches, unless the names differ. `alone` is true if this GPU is
    /// the only one of its side.
    pub fn find<'c, C>(self, alone: bool, candidates: &'c [C]) -> Vec<&'c C>
    where
        for<'i> GpuIdentity<'i>: From<&'i C>,
    {
        let same_uuid =
            |other: &C| Some(digits(self.uuid?)?.eq_ignore_ascii_case(GpuIdentity::from(other).uuid.and_then(digits)?));
        let by_uuid: Vec<_> = candidates.iter().filter(|other| same_uuid(other) == Some(true)).collect();
        if !by_uuid.is_empty() {
            return by_uuid;
        }
        // A different UUID at the right address is another slice of that GPU.
        let possible: Vec<_> = candidates.iter().filter(|other| same_uuid(other).is_none()).collect();
        let same_address = |other: &C| Some(self.pci_address? == GpuIdentity::from(other).pci_address?);
        let by_address: Vec<_> = possible.iter().copied().filter(|other| same_address(other) == Some(true)).collect();
        let is_only = alone && candidates.len() == 1;
        let could_be = |other: &C| same_address(other).is_none() && self.is_named_like(other.into());
        if by_address.is_empty() && is_only && possible.iter().all(|other| could_be(other)) {
            possible
        } else {
            by_address
        }
    }

    /// Compares names as far as both are known. A Jetson is `Orin (nvgpu)` for NVML and `Orin` for CUDA.
    fn is_named_like(self, other: GpuIdentity<'_>) -> bool {
        self.name.zip(other.name).is_none_or(|(ours, theirs)| ours.starts_with(theirs) || theirs.starts_with(ours))
    }
}

/// Digits of a UUID without NVML's prefix; `None` for the spelling of drivers before 470 (`MIG-GPU-…/7/0`).
fn digits(uuid: &str) -> Option<&str> {
    let digits = uuid.trim().trim_start_matches("GPU-").trim_start_matches("MIG-");
    (digits.len() == 36 && digits.chars().all(|c| c == '-' || c.is_ascii_hexdigit())).then_some(digits)
}

#[cfg(test)]
mod tests {
    use super::{CudaDevice, GpuIdentity};

    const A: &str = "a0000000-0000-0000-0000-00000000000a";
    const B: &str = "b0000000-0000-0000-0000-00000000000b";

    fn cuda(index: usize, bus: Option<u8>, uuid: Option<&str>) -> CudaDevice {
        let pci_address = bus.map(|bus| format!("0000:{bus:02x}:00.0").parse().expect("an address"));
        CudaDevice { index, pci_address, uuid: uuid.map(str::to_owned), ..CudaDevice::default() }
    }

    fn found(bus: Option<u8>, uuid: Option<&str>, alone: bool, devices: &[CudaDevice]) -> Vec<usize> {
        let pci_address = bus.and_then(|bus| format!("0000:{bus:02x}:00.0").parse().ok());
        let identity = GpuIdentity { pci_address, uuid, name: None };
        identity.find(alone, devices).into_iter().map(|device| device.index).collect()
    }

    #[test]
    fn uuid_and_address_join_a_gpu() {
        let two = [cuda(0, Some(0x81), Some(B)), cuda(1, Some(0x01), Some(A))];
        let no_uuid = [cuda(0, Some(0x81), None), cuda(1, Some(0x01), None)];
        let no_address = [cuda(0, None, Some(B)), cuda(1, None, Some(A))];
        let nvml_uuid = format!("GPU-{A}");
        for (devices, bus, uuid, expected) in [
            (&two, Some(1), Some(&*nvml_uuid), &[1][..]),
            (&two, Some(1), None, &[1]),
            (&no_uuid, Some(1), Some(&nvml_uuid), &[1]),
            (&no_address, Some(1), Some(&nvml_uuid), &[1]),
            (&two, Some(2), None, &[]),
            (&two, None, None, &[]),
        ] {
            assert_eq!(found(bus, uuid, true, devices), expected, "{bus:?}, {uuid:?}");
        }
    }

    #[test]
    fn the_uuid_distinguishes_slices_of_one_gpu() {
        let slices = [cuda(0, Some(1), Some(A)), cuda(1, Some(1), Some(B))];
        let slice = format!("MIG-{B}");
        assert_eq!(found(Some(1), Some(&slice), false, &slices), [1]);
        assert_eq!(found(Some(1), Some(&slice), false, &slices[..1]), [0; 0]);
        assert_eq!(found(Some(1), Some("MIG-GPU-old/7/0"), false, &slices), [0, 1]);
    }

    #[test]
    fn the_only_gpu_of_both_sides_needs_no_identifier() {
        let one = [cuda(0, None, None)];
        assert_eq!(found(Some(1), None, true, &one), [0]);
        assert_eq!(found(Some(1), None, false, &one), [0; 0]);
        assert_eq!(found(Some(1), None, true, &[cuda(0, Some(2), None)]), [0; 0]);
    }

    #[test]
    fn the_only_gpu_of_another_name_is_another_gpu() {
        for (nvml, cuda, is_same) in
            [("Orin (nvgpu)", "Orin", true), ("NVIDIA GB10", "NVIDIA GB10", true), ("NVIDIA L4", "Orin", false)]
        {
            let device = CudaDevice { name: Some(cuda.to_owned()), ..CudaDevice::default() };
            let identity = GpuIdentity { name: Some(nvml), ..GpuIdentity::default() };
            assert_eq!(!identity.find(true, &[device]).is_empty(), is_same, "{nvml}, {cuda}");
        }
    }
}
