//! Reads the slices of a GPU with MIG enabled.

use gpu_tuned_core::device::{GpuReading, MigSlice};
use nvml_wrapper::Device;

use crate::answer::{nonzero, optional, text};
use crate::{Trouble, gpu, raw};

/// Returns true if MIG is enabled. A GPU without MIG support has it disabled.
pub(crate) fn is_enabled(device: &Device<'_>) -> Result<bool, Trouble> {
    Ok(optional(device.mig_mode())?.is_some_and(|mode| mode.current == 1))
}

/// Reads all slices that this process can see. With MIG enabled, CUDA runs on slices only.
pub(crate) fn read_slices(device: &Device<'_>, whole: &GpuReading) -> Result<Vec<GpuReading>, Trouble> {
    let slots = optional(device.mig_device_count())?.unwrap_or(0);
    let mut slices = Vec::new();
    for slot in 0..slots {
        // Empty slots and slices of other containers return errors.
        if let Some(slice) = optional(device.mig_device_by_index(slot))? {
            slices.extend(read_slice(&slice, whole)?);
        }
    }
    if slices.is_empty() { Err(Trouble::NoMigSlice) } else { Ok(slices) }
}

/// Reads one slice. Returns `None` for a slice without instance numbers, which cannot be distinguished from the whole
/// GPU.
pub(crate) fn read_slice(slice: &Device<'_>, whole: &GpuReading) -> Result<Option<GpuReading>, Trouble> {
    let instances = (optional(raw::gpu_instance(slice))?, optional(raw::compute_instance(slice))?);
    let (Some(gpu_instance), Some(compute_instance)) = instances else { return Ok(None) };
    let mut unit = GpuReading::default();
    // A slice answers few calls. Chip and board are those of the whole GPU. The slice's share of the memory bus and
    // of the power is unavailable.
    unit.index = whole.index;
    unit.pci_address = whole.pci_address;
    unit.pci_id = whole.pci_id;
    unit.pci_subsystem_id = whole.pci_subsystem_id;
    unit.compute_capability = whole.compute_capability;
    unit.max_memory_clock_mhz = whole.max_memory_clock_mhz;
    unit.max_sm_clock_mhz = whole.max_sm_clock_mhz;
    unit.virtualization = whole.virtualization;
    unit.name = text(slice.name())?.or_else(|| whole.name.clone());
    unit.uuid = text(slice.uuid())?;
    unit.sm_count = nonzero(slice.attributes().map(|attributes| attributes.multiprocessor_count))?;
    unit.other_processes = gpu::other_processes(slice)?;
    unit.mig = Some(MigSlice { gpu_instance, compute_instance });
    gpu::read_memory(slice, &mut unit)?;
    Ok(Some(unit))
}
