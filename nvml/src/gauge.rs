//! Repeated readings of one GPU while it works.

use std::path::Path;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{GpuReading, MigSlice, PciAddress};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use thiserror::Error;

use crate::answer::{optional, text};
use crate::{DriverError, Trouble, gpu, library, mig, raw};

/// Reads one GPU repeatedly; keeps the management library open.
#[derive(Debug)]
pub struct Gauge {
    nvml: Nvml,
    location: DeviceSlot,
}

/// Memory use and utilisation of a GPU at one moment. A figure that the driver does not report is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Memory used by all processes, this one included. Excludes memory reserved by the driver, if the driver reports
    /// that figure.
    pub memory_used: Option<Bytes>,
    /// Total memory of the GPU (or of the MIG slice).
    pub memory_total: Option<Bytes>,
    /// Share of the driver's last sample period in which a kernel of any process ran, in percent. A period lasts
    /// between a sixth of a second and a second. MIG slices have no such figure.
    pub utilisation_percent: Option<u32>,
}

/// Reasons why a GPU cannot be read repeatedly.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GaugeError {
    /// The driver itself cannot be used.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// No GPU of the driver matches.
    #[error("the driver lists no GPU with the UUID or PCI address of {name}")]
    NoSuchGpu {
        /// Name of the wanted GPU.
        name: String,
    },
    /// The GPU cannot be used.
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

/// NVML's index of a GPU, and the MIG slot for a slice.
#[derive(Clone, Copy, Debug)]
struct DeviceSlot {
    index: u32,
    slot: Option<u32>,
}

/// A GPU or a MIG slice with its identifiers.
struct VisibleGpu {
    location: DeviceSlot,
    uuid: Option<String>,
    pci_address: Option<PciAddress>,
    slice: Option<MigSlice>,
}

impl Gauge {
    /// Opens the library, as [`read`](crate::read) does, and finds the GPU of an earlier reading from CUDA or the
    /// driver.
    ///
    /// GPUs are matched by UUID, else by PCI address. If the reading has neither, a machine's only GPU matches.
    /// Indices are ignored: CUDA and NVML number GPUs differently.
    ///
    /// # Errors
    ///
    /// See [`GaugeError`].
    pub fn open(library: Option<&Path>, gpu: &GpuReading) -> Result<Self, GaugeError> {
        let nvml = library::open(library)?;
        let units = units(&nvml)?;
        let location = find_gpu(&units, gpu).ok_or_else(|| GaugeError::NoSuchGpu {
            name: gpu.name.clone().or_else(|| gpu.uuid.clone()).unwrap_or_else(|| "the GPU".to_owned()),
        })?;
        Ok(Self { nvml, location })
    }

    /// Reads the GPU now.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if the GPU is gone for good, or can no longer be opened.
    pub fn read(&self) -> Result<Load, Trouble> {
        let open = |error: NvmlError| Trouble::from_nvml(&error);
        let whole = self.nvml.device_by_index(self.location.index).map_err(open)?;
        match self.location.slot {
            Some(slot) => load(&whole.mig_device_by_index(slot).map_err(open)?),
            None => load(&whole),
        }
    }
}

fn load(device: &Device<'_>) -> Result<Load, Trouble> {
    let mut unit = GpuReading::default();
    gpu::read_memory(device, &mut unit)?;
    let utilisation = optional(device.utilization_rates())?.map(|rates| rates.gpu);
    Ok(Load {
        memory_used: gpu::memory_used(&unit),
        memory_total: unit.memory_total,
        utilisation_percent: utilisation.filter(|percent| *percent <= 100),
    })
}

/// All GPUs that can be opened. GPUs with MIG enabled are replaced by their slices.
fn units(nvml: &Nvml) -> Result<Vec<VisibleGpu>, GaugeError> {
    let count = nvml.device_count().map_err(|error| DriverError::from_call("counting the GPUs", &error))?;
    let mut units = Vec::new();
    for index in 0..count {
        match nvml.device_by_index(index) {
            // A failing GPU must not hide the others.
            Ok(device) => units.extend(open_units(&device, index).unwrap_or_default()),
            // Some drivers report a higher count than they have GPUs.
            Err(NvmlError::InvalidArg) => break,
            Err(_) => {}
        }
    }
    Ok(units)
}

fn open_units(device: &Device<'_>, index: u32) -> Result<Vec<VisibleGpu>, Trouble> {
    let pci_address = optional(device.pci_info())?.and_then(|pci| gpu::address(&pci));
    let unit = |device: &Device<'_>, slot, slice| -> Result<VisibleGpu, Trouble> {
        Ok(VisibleGpu { location: DeviceSlot { index, slot }, uuid: text(device.uuid())?, pci_address, slice })
    };
    if !mig::is_enabled(device)? {
        return Ok(vec![unit(device, None, None)?]);
    }
    let mut units = Vec::new();
    for slot in 0..optional(device.mig_device_count())?.unwrap_or(0) {
        let Some(slice) = optional(device.mig_device_by_index(slot))? else { continue };
        let instances = optional(raw::gpu_instance(&slice))?.zip(optional(raw::compute_instance(&slice))?);
        let numbers = instances.map(|(gpu_instance, compute_instance)| MigSlice { gpu_instance, compute_instance });
        units.push(unit(&slice, Some(slot), numbers)?);
    }
    Ok(units)
}

/// Finds the unit that is certainly the wanted GPU.
fn find_gpu(units: &[VisibleGpu], wanted: &GpuReading) -> Option<DeviceSlot> {
    let same_uuid = |unit: &VisibleGpu| {
        Some(bare_uuid(unit.uuid.as_deref()?).eq_ignore_ascii_case(bare_uuid(wanted.uuid.as_deref()?)))
    };
    let same_address = |unit: &VisibleGpu| Some(unit.pci_address? == wanted.pci_address?);
    let same_slice = |unit: &VisibleGpu| Some(unit.slice? == wanted.mig?);
    if let Some(unit) = units.iter().find(|unit| same_uuid(unit) == Some(true)) {
        return Some(unit.location);
    }
    // A different UUID at the right address belongs to another slice of that GPU.
    let could_be = |unit: &&VisibleGpu| same_uuid(unit).is_none() && same_slice(unit) != Some(false);
    let mut there = units.iter().filter(could_be).filter(|unit| same_address(unit) == Some(true));
    match (there.next(), there.next(), units) {
        (Some(unit), None, _) => Some(unit.location),
        (None, _, [only]) if could_be(&only) && same_address(only).is_none() => Some(only.location),
        _ => None,
    }
}

/// A UUID without NVML's prefix, as CUDA writes it.
fn bare_uuid(uuid: &str) -> &str {
    uuid.trim().trim_start_matches("GPU-").trim_start_matches("MIG-")
}
