//! GPUs under MIG: their slices, one by one.

use gpu_tuned_core::device::{GpuReading, MigSlice};
use nvml_wrapper::Device;

use crate::answer::{known, nonzero, text};
use crate::{Trouble, gpu, raw};

/// Whether MIG is switched on. A GPU that does not know MIG has it off.
pub(crate) fn is_enabled(device: &Device<'_>) -> Result<bool, Trouble> {
    Ok(known(device.mig_mode())?.is_some_and(|mode| mode.current == 1))
}

/// Reads all slices that this process can see; CUDA runs on nothing else while MIG is on.
pub(crate) fn read_slices(device: &Device<'_>, whole: &GpuReading) -> Result<Vec<GpuReading>, Trouble> {
    let slots = known(device.mig_device_count())?.unwrap_or(0);
    let mut slices = Vec::new();
    for slot in 0..slots {
        // Empty slots, and slices of other containers, answer with an error each.
        if let Some(slice) = known(device.mig_device_by_index(slot))? {
            slices.extend(read_slice(&slice, whole)?);
        }
    }
    if slices.is_empty() { Err(Trouble::NoMigSlice) } else { Ok(slices) }
}

/// A slice without instance numbers cannot be told from the whole GPU and is left out.
pub(crate) fn read_slice(slice: &Device<'_>, whole: &GpuReading) -> Result<Option<GpuReading>, Trouble> {
    let instances = (known(raw::gpu_instance(slice))?, known(raw::compute_instance(slice))?);
    let (Some(gpu_instance), Some(compute_instance)) = instances else { return Ok(None) };
    let mut unit = GpuReading::default();
    // The slice answers few calls. What the chip and the board are holds for it, too; its share of the memory bus and
    // of the power does not follow from the whole.
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
