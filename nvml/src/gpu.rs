//! Reads one GPU, field by field, and the slices of a GPU with MIG enabled.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, GpuReading, PciAddress, PciId, Virtualization};
use gpu_tuned_core::telemetry::is_power_limit;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::Clock;
use nvml_wrapper::struct_wrappers::device::PciInfo;

use crate::driver::{nonzero, optional, text};
use crate::{Trouble, host, raw};

/// Reads a whole GPU.
pub(crate) fn read(device: &Device<'_>, index: u32) -> Result<GpuReading, Trouble> {
    let mut gpu = GpuReading::default();
    gpu.index = index;
    read_identity(device, &mut gpu)?;
    read_memory(device, &mut gpu)?;
    host::share_memory(&mut gpu);
    gpu.sm_count = sm_count(nonzero(device.num_cores())?, gpu.compute_capability);
    gpu.memory_bus_bits = nonzero(device.memory_bus_width())?;
    gpu.max_memory_clock_mhz = nonzero(device.max_clock_info(Clock::Memory))?;
    gpu.max_sm_clock_mhz = nonzero(device.max_clock_info(Clock::SM))?;
    gpu.power_limit_mw = power_limit(device)?;
    gpu.default_power_limit_mw = nonzero(device.power_management_limit_default())?.filter(is_power_limit);
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

/// Power limit in force in milliwatts. Laptops hide the administrator's limit and report the enforced one.
pub(crate) fn power_limit(device: &Device<'_>) -> Result<Option<u32>, Trouble> {
    let enforced = nonzero(device.enforced_power_limit())?;
    let limit = if enforced.is_some() { enforced } else { nonzero(device.power_management_limit())? };
    Ok(limit.filter(is_power_limit))
}

fn address(pci: &PciInfo) -> Option<PciAddress> {
    let part = |number: u32| u8::try_from(number).ok();
    Some(PciAddress { domain: pci.domain, bus: part(pci.bus)?, device: part(pci.device)? })
}

fn id(packed: u32) -> Option<PciId> {
    (packed != 0).then_some(PciId::from_nvml(packed))
}

/// Reads the memory figures alone.
pub(crate) fn memory(device: &Device<'_>, has_unified_memory: bool) -> Result<GpuReading, Trouble> {
    let mut unit = GpuReading::default();
    unit.unified_memory = has_unified_memory;
    read_memory(device, &mut unit)?;
    host::share_memory(&mut unit);
    Ok(unit)
}

/// Reads the memory of a GPU or of a MIG slice; falls back to the older call on drivers without memory v2.
fn read_memory(device: &Device<'_>, unit: &mut GpuReading) -> Result<(), Trouble> {
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

/// Returns true if MIG is enabled. A GPU without MIG support has it disabled.
pub(crate) fn is_mig_enabled(device: &Device<'_>) -> Result<bool, Trouble> {
    Ok(optional(device.mig_mode())?.is_some_and(|mode| mode.current == 1))
}

/// Reads all slices that this process can see, with their slots. With MIG enabled, CUDA runs on slices only.
pub(crate) fn read_slices(device: &Device<'_>, whole: &GpuReading) -> Result<Vec<(u32, GpuReading)>, Trouble> {
    let mut slices = Vec::new();
    for slot in 0..optional(device.mig_device_count())?.unwrap_or(0) {
        // Empty slots and slices of other containers return errors.
        if let Some(slice) = optional(device.mig_device_by_index(slot))? {
            slices.extend(read_slice(&slice, whole)?.map(|reading| (slot, reading)));
        }
    }
    Ok(slices)
}

/// Reads one slice. Returns `None` for a slice without instance numbers, which cannot be distinguished from the whole
/// GPU.
fn read_slice(slice: &Device<'_>, whole: &GpuReading) -> Result<Option<GpuReading>, Trouble> {
    let Some(numbers) = optional(raw::mig_slice(slice))? else { return Ok(None) };
    let mut unit = GpuReading::default();
    // A slice answers few calls. Chip and board are those of the whole GPU. The slice's share of the memory bus is
    // unavailable.
    unit.index = whole.index;
    unit.pci_address = whole.pci_address;
    unit.pci_id = whole.pci_id;
    unit.pci_subsystem_id = whole.pci_subsystem_id;
    unit.compute_capability = whole.compute_capability;
    unit.max_memory_clock_mhz = whole.max_memory_clock_mhz;
    unit.max_sm_clock_mhz = whole.max_sm_clock_mhz;
    unit.power_limit_mw = whole.power_limit_mw;
    unit.default_power_limit_mw = whole.default_power_limit_mw;
    unit.virtualization = whole.virtualization;
    unit.name = text(slice.name())?.or_else(|| whole.name.clone());
    unit.uuid = text(slice.uuid())?;
    unit.gpu_uuid.clone_from(&whole.uuid);
    unit.sm_count = nonzero(slice.attributes().map(|attributes| attributes.multiprocessor_count))?;
    unit.other_processes = other_processes(slice)?;
    unit.mig = Some(numbers);
    read_memory(slice, &mut unit)?;
    Ok(Some(unit))
}
