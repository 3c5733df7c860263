//! Reads one GPU, field by field.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, GpuReading, PciAddress, PciId, Virtualization};
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::struct_wrappers::device::PciInfo;

use crate::answer::{nonzero, optional, text};
use crate::{Trouble, raw};

/// Reads a whole GPU.
pub(crate) fn read(device: &Device<'_>, index: u32) -> Result<GpuReading, Trouble> {
    let mut gpu = GpuReading::default();
    gpu.index = index;
    read_identity(device, &mut gpu)?;
    read_memory(device, &mut gpu)?;
    gpu.sm_count = sm_count(nonzero(device.num_cores())?, gpu.compute_capability);
    gpu.memory_bus_bits = nonzero(device.memory_bus_width())?;
    gpu.max_memory_clock_mhz = nonzero(device.max_clock_info(Clock::Memory))?;
    gpu.max_sm_clock_mhz = nonzero(device.max_clock_info(Clock::SM))?;
    // Laptops hide the administrator's limit and report the enforced one.
    let enforced = nonzero(device.enforced_power_limit())?;
    gpu.power_limit_mw = if enforced.is_some() { enforced } else { nonzero(device.power_management_limit())? };
    gpu.default_power_limit_mw = nonzero(device.power_management_limit_default())?;
    gpu.virtualization = virtualization(device)?;
    gpu.other_processes = other_processes(device)?;
    Ok(gpu)
}

fn read_identity(device: &Device<'_>, gpu: &mut GpuReading) -> Result<(), Trouble> {
    gpu.name = text(device.name())?;
    gpu.uuid = text(device.uuid())?;
    if let Some(pci) = optional(device.pci_info())? {
        gpu.pci_address = address(&pci);
        gpu.pci_id = id(pci.pci_device_id);
        gpu.pci_subsystem_id = pci.pci_sub_system_id.and_then(id);
    }
    gpu.compute_capability = optional(device.cuda_compute_capability())?.and_then(|capability| {
        let part = |number: i32| u8::try_from(number).ok();
        let capability = ComputeCapability::new(part(capability.major)?, part(capability.minor)?);
        (capability.major != 0).then_some(capability)
    });
    Ok(())
}

pub(crate) fn address(pci: &PciInfo) -> Option<PciAddress> {
    let part = |number: u32| u8::try_from(number).ok();
    Some(PciAddress { domain: pci.domain, bus: part(pci.bus)?, device: part(pci.device)? })
}

fn id(packed: u32) -> Option<PciId> {
    (packed != 0).then_some(PciId::from_nvml(packed))
}

/// Reads the memory of a GPU or of a MIG slice; falls back to the older call on drivers without memory v2.
pub(crate) fn read_memory(device: &Device<'_>, unit: &mut GpuReading) -> Result<(), Trouble> {
    let (total, free, reserved) = if let Some(memory) = optional(device.memory_info())? {
        (memory.total, memory.free, Some(memory.reserved))
    } else if let Some((total, free)) = optional(raw::memory_v1(device))? {
        (total, free, None)
    } else {
        return Ok(());
    };
    if total != 0 {
        let plausible = |amount: &u64| *amount <= total;
        unit.memory_total = Some(Bytes(total));
        unit.memory_free = Some(free).filter(plausible).map(Bytes);
        unit.memory_reserved = reserved.filter(plausible).map(Bytes);
    }
    Ok(())
}

/// Memory used by processes. Excludes memory reserved by the driver, if the driver reports that figure.
pub(crate) fn memory_used(unit: &GpuReading) -> Option<Bytes> {
    let (total, free) = unit.memory_total.zip(unit.memory_free)?;
    let reserved = unit.memory_reserved.unwrap_or(Bytes::ZERO);
    Some(Bytes(total.0.checked_sub(free.0)?.saturating_sub(reserved.0)))
}

/// NVML counts lanes ("CUDA cores"), not multiprocessors.
fn sm_count(cores: Option<u32>, capability: Option<ComputeCapability>) -> Option<u32> {
    let (cores, per_sm) = (cores?, capability?.cores_per_sm()?);
    cores.is_multiple_of(per_sm).then_some(cores / per_sm)
}

#[cfg(target_os = "linux")]
fn virtualization(device: &Device<'_>) -> Result<Option<Virtualization>, Trouble> {
    use nvml_wrapper::enum_wrappers::device::GpuVirtualizationMode as Mode;
    Ok(optional(device.virtualization_mode())?.and_then(|mode| match mode {
        Mode::PassThrough => Some(Virtualization::Passthrough),
        Mode::Vgpu => Some(Virtualization::Vgpu),
        // A hypervisor sees its GPUs as bare metal.
        Mode::Bare | Mode::HostVgpu | Mode::HostVsga => None,
    }))
}

#[cfg(not(target_os = "linux"))]
fn virtualization(_: &Device<'_>) -> Result<Option<Virtualization>, Trouble> {
    Ok(None)
}

/// Number of other compute processes on a GPU or a MIG slice.
///
/// A container with its own process numbers may count this process among the others.
pub(crate) fn other_processes(device: &Device<'_>) -> Result<Option<u32>, Trouble> {
    let processes = optional(device.running_compute_processes())?;
    let is_other = |pid: u32| pid != std::process::id();
    Ok(processes.map(|processes| processes.iter().filter(|process| is_other(process.pid)).count() as u32))
}
