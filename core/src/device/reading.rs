//! GPUs as drivers report them: by NVML and by CUDA.

use core::fmt;

use serde::{Deserialize, Serialize};

use super::{ComputeCapability, PciAddress, PciId, ProductLine, ProductName};
use crate::Bytes;

/// A driver's reading of one GPU. Unavailable and implausible fields are `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GpuReading {
    /// The driver's index: NVML's order, not CUDA's.
    pub index: u32,
    /// The GPU's (or the MIG slice's) UUID, as NVML spells it.
    pub uuid: Option<String>,
    /// The UUID of the whole GPU, for a MIG slice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu_uuid: Option<String>,
    /// The product name, as NVML spells it.
    pub name: Option<String>,
    /// Address on the PCI bus.
    pub pci_address: Option<PciAddress>,
    /// PCI vendor and device.
    pub pci_id: Option<PciId>,
    /// PCI subsystem vendor and device; distinguishes boards with one chip (A2 and A16).
    pub pci_subsystem_id: Option<PciId>,
    /// The CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// All memory of the device (or of the MIG slice).
    pub memory_total: Option<Bytes>,
    /// Memory reserved by the driver (NVML memory v2).
    pub memory_reserved: Option<Bytes>,
    /// Memory free at the moment of the reading.
    pub memory_free: Option<Bytes>,
    /// Memory that this process may take, whatever is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Bytes>,
    /// True if the GPU shares the host's memory. Then the memory figures are the host's.
    pub unified_memory: bool,
    /// All memory by CUDA, which leaves out what the driver reserves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda_memory_total: Option<Bytes>,
    /// Level 2 cache.
    pub l2_cache: Option<Bytes>,
    /// Streaming multiprocessors (of the slice, under MIG).
    pub sm_count: Option<u32>,
    /// Share of the multiprocessors that this process may use, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compute_percent: Option<u32>,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: Option<u32>,
    /// Highest memory clock in MHz.
    pub max_memory_clock_mhz: Option<u32>,
    /// Highest clock of the multiprocessors in MHz; exceeds the boost clock of the data sheet.
    pub max_sm_clock_mhz: Option<u32>,
    /// Boost clock of the multiprocessors in MHz, by CUDA.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub boost_clock_mhz: Option<u32>,
    /// The board's power limit in force, in milliwatts. A MIG slice has the limit of the whole board.
    pub power_limit_mw: Option<u32>,
    /// The board's default power limit, in milliwatts. A MIG slice has the limit of the whole board.
    pub default_power_limit_mw: Option<u32>,
    /// Present for a MIG slice of a GPU.
    pub mig: Option<MigSlice>,
    /// Present for a GPU in a virtual machine.
    pub virtualization: Option<Virtualization>,
    /// Other compute processes on the GPU at the moment of the reading.
    pub other_processes: Option<u32>,
}

impl GpuReading {
    /// Returns true for a MIG slice, by the driver's report or by its name. CUDA reports the name only.
    pub fn is_mig_slice(&self) -> bool {
        self.mig.is_some() || self.product_name().is_some_and(|name| name.is_mig_slice)
    }

    /// Returns true for a virtual share, by the driver's report or by its name. Older guests report the name only.
    pub fn is_vgpu(&self) -> bool {
        self.virtualization == Some(Virtualization::Vgpu) || self.product_name().is_some_and(|name| name.is_vgpu)
    }

    /// Returns true if the GPU shares the host's memory, by the driver's report, or by its name and compute capability.
    pub fn has_unified_memory(&self) -> bool {
        let capability = self.compute_capability.unwrap_or_default();
        self.unified_memory || ProductLine::new(self.name.as_deref(), capability) == Some(ProductLine::Integrated)
    }

    /// Number and product name of GPU `number`, for messages.
    pub fn numbered_name(&self, number: usize) -> String {
        format!("GPU {number} ({})", self.name.as_deref().unwrap_or("without a name"))
    }

    /// Explains that GPU `number` has no plan, because its memory is unknown.
    pub fn explain_missing_memory(&self, number: usize) -> String {
        let reason = match self.memory_total.filter(|total| *total > Bytes::ZERO) {
            None => "the driver does not report its memory".to_owned(),
            Some(total) => format!("the driver reports {total} of memory, more than such a GPU has"),
        };
        format!("{} cannot be planned for: {reason}", self.numbered_name(number))
    }

    /// Fills figures that this reading lacks from CUDA. CUDA may limit this process to less memory than is free.
    pub fn complete(&mut self, device: &CudaDevice) {
        self.unified_memory |= device.unified_memory;
        self.uuid = self.uuid.take().or_else(|| device.uuid.clone());
        self.name = self.name.take().or_else(|| device.name.clone());
        self.pci_address = self.pci_address.or(device.pci_address);
        self.compute_capability = self.compute_capability.or(device.compute_capability);
        self.memory_total = self.memory_total.or(device.memory_total);
        self.memory_free = self.memory_free.map(|free| device.memory_total.map_or(free, |total| free.min(total)));
        self.cuda_memory_total = self.cuda_memory_total.or(device.memory_total);
        self.l2_cache = self.l2_cache.or(device.l2_cache);
        self.sm_count = self.sm_count.or(device.sm_count);
        self.memory_bus_bits = self.memory_bus_bits.or(device.memory_bus_bits);
        self.max_memory_clock_mhz = self.max_memory_clock_mhz.or(device.max_memory_clock_mhz);
        self.max_sm_clock_mhz = self.max_sm_clock_mhz.or(device.max_sm_clock_mhz);
        self.boost_clock_mhz = self.boost_clock_mhz.or(device.max_sm_clock_mhz);
    }

    /// Compute capability by the driver, else that of an old product line.
    pub(crate) fn known_capability(&self) -> Option<ComputeCapability> {
        self.compute_capability.or_else(|| self.product_name()?.old_capability())
    }

    fn product_name(&self) -> Option<ProductName<'_>> {
        self.name.as_deref().map(ProductName::parse)
    }
}

/// A slice of a GPU under MIG.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MigSlice {
    /// Number of the GPU instance.
    pub gpu_instance: u32,
    /// Number of the compute instance within it.
    pub compute_instance: u32,
}

/// Kinds of access of a virtual machine to a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Virtualization {
    /// The whole GPU is passed through.
    Passthrough,
    /// A share of a GPU (vGPU, GRID).
    Vgpu,
}

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
mod tests;
