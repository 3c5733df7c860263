use serde::{Deserialize, Serialize};

use super::{ComputeCapability, PciAddress, PciId, ProductName};
use crate::Bytes;

/// What a driver says of one GPU. A field that the driver did not answer, or answered with nonsense, is `None`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GpuReading {
    /// The driver's index: NVML's order, which is not CUDA's.
    pub index: u32,
    /// The GPU's (or the MIG slice's) UUID, as NVML spells it.
    pub uuid: Option<String>,
    /// The product name, as NVML spells it.
    pub name: Option<String>,
    /// Where the GPU sits on the PCI bus.
    pub pci_address: Option<PciAddress>,
    /// PCI vendor and device.
    pub pci_id: Option<PciId>,
    /// PCI subsystem vendor and device: tells boards with one chip apart (A2 and A16).
    pub pci_subsystem_id: Option<PciId>,
    /// The CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// All memory of the device (or of the MIG slice).
    pub memory_total: Option<Bytes>,
    /// Memory that the driver keeps for itself, where it says so (NVML memory v2).
    pub memory_reserved: Option<Bytes>,
    /// Memory that nobody holds at the moment of the reading.
    pub memory_free: Option<Bytes>,
    /// Streaming multiprocessors; of the slice, under MIG.
    pub sm_count: Option<u32>,
    /// Width of the memory bus in bits.
    pub memory_bus_bits: Option<u32>,
    /// Highest memory clock in MHz.
    pub max_memory_clock_mhz: Option<u32>,
    /// Highest clock of the multiprocessors in MHz; above the boost clock of the data sheet.
    pub max_sm_clock_mhz: Option<u32>,
    /// The power limit in force, in milliwatts.
    pub power_limit_mw: Option<u32>,
    /// The power limit that the board was shipped with, in milliwatts.
    pub default_power_limit_mw: Option<u32>,
    /// Present when this is a MIG slice of a GPU.
    pub mig: Option<MigSlice>,
    /// Present when the driver says that the GPU is a virtual one.
    pub virtualization: Option<Virtualization>,
    /// Compute processes of others on the GPU at the moment of the reading.
    pub other_processes: Option<u32>,
}

impl GpuReading {
    /// Whether it is a MIG slice of a GPU, by the driver's answer or by its name (CUDA tells the name only).
    pub fn is_mig_slice(&self) -> bool {
        self.mig.is_some() || self.product_name().is_some_and(|name| name.is_mig_slice)
    }

    /// Whether it is a virtual share of a GPU, by the driver's answer or by its name (older guests tell the name only).
    pub fn is_vgpu(&self) -> bool {
        self.virtualization == Some(Virtualization::Vgpu) || self.product_name().is_some_and(|name| name.is_vgpu)
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

/// How a GPU reaches a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Virtualization {
    /// The whole GPU is handed through.
    Passthrough,
    /// A share of a GPU (vGPU, GRID).
    Vgpu,
}
