//! One GPU, looked at again and again while it works.

use std::path::Path;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{GpuReading, MigSlice, PciAddress};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use thiserror::Error;

use crate::answer::{known, text};
use crate::{DriverError, Trouble, gpu, library, mig, raw};

/// A GPU that is looked at again and again; the management library stays open for it.
#[derive(Debug)]
pub struct Gauge {
    nvml: Nvml,
    place: Place,
}

/// What a GPU is doing at one moment. A figure that the driver does not have is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Load {
    /// Memory that processes hold, this one and all others; without what the driver keeps for itself, where it says so.
    pub memory_used: Option<Bytes>,
    /// All memory of the GPU (or of the MIG slice).
    pub memory_total: Option<Bytes>,
    /// Part of the driver's last sample period (between a sixth of a second and a second) in which a kernel ran, of any
    /// process, in percent. MIG slices have none.
    pub utilisation_percent: Option<u32>,
}

/// Why a GPU cannot be looked at.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GaugeError {
    /// The driver could not be asked at all.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// None of the driver's GPUs is known to be this one.
    #[error("the driver shows no GPU that is known to be {name}: it has neither its UUID nor its PCI address")]
    NoSuchGpu {
        /// What the GPU is called.
        name: String,
    },
    /// The GPU cannot be used.
    #[error(transparent)]
    Trouble(#[from] Trouble),
}

/// Where the driver has a GPU, or a slice of one.
#[derive(Clone, Copy, Debug)]
struct Place {
    index: u32,
    slot: Option<u32>,
}

/// A GPU, or a slice of one, and what tells it from the others.
struct Unit {
    place: Place,
    uuid: Option<String>,
    pci_address: Option<PciAddress>,
    slice: Option<MigSlice>,
}

impl Gauge {
    /// Opens the library, as [`read`](crate::read) does, and finds the GPU that was once read as `gpu`, by CUDA or by the
    /// driver.
    ///
    /// The UUID tells which it is; where it is not known, the PCI address; and where neither is, it is the only GPU that
    /// there is. An index is not asked: CUDA's is another than the driver's.
    ///
    /// # Errors
    ///
    /// See [`GaugeError`].
    pub fn open(library: Option<&Path>, gpu: &GpuReading) -> Result<Self, GaugeError> {
        let nvml = library::open(library)?;
        let units = units(&nvml)?;
        let place = found(&units, gpu).ok_or_else(|| GaugeError::NoSuchGpu {
            name: gpu.name.clone().or_else(|| gpu.uuid.clone()).unwrap_or_else(|| "it".to_owned()),
        })?;
        Ok(Self { nvml, place })
    }

    /// Asks the driver.
    ///
    /// # Errors
    ///
    /// [`Trouble`] where the GPU is gone for good, or cannot be opened any more.
    pub fn read(&self) -> Result<Load, Trouble> {
        let open = |error: NvmlError| Trouble::of(&error);
        let whole = self.nvml.device_by_index(self.place.index).map_err(open)?;
        match self.place.slot {
            Some(slot) => load(&whole.mig_device_by_index(slot).map_err(open)?),
            None => load(&whole),
        }
    }
}

fn load(device: &Device<'_>) -> Result<Load, Trouble> {
    let mut unit = GpuReading::default();
    gpu::read_memory(device, &mut unit)?;
    let utilisation = known(device.utilization_rates())?.map(|rates| rates.gpu);
    Ok(Load {
        memory_used: gpu::memory_used(&unit),
        memory_total: unit.memory_total,
        utilisation_percent: utilisation.filter(|percent| *percent <= 100),
    })
}

/// All GPUs that can be opened, those under MIG as their slices.
fn units(nvml: &Nvml) -> Result<Vec<Unit>, GaugeError> {
    let count = nvml.device_count().map_err(|error| DriverError::from_call("counting the GPUs", &error))?;
    let mut units = Vec::new();
    for index in 0..count {
        match nvml.device_by_index(index) {
            // What is the matter with one of them is no matter of the others.
            Ok(device) => units.extend(units_of(&device, index).unwrap_or_default()),
            // The driver counts GPUs that it does not have.
            Err(NvmlError::InvalidArg) => break,
            Err(_) => {}
        }
    }
    Ok(units)
}

fn units_of(device: &Device<'_>, index: u32) -> Result<Vec<Unit>, Trouble> {
    let pci_address = known(device.pci_info())?.and_then(|pci| gpu::address(&pci));
    let unit = |device: &Device<'_>, slot, slice| -> Result<Unit, Trouble> {
        Ok(Unit { place: Place { index, slot }, uuid: text(device.uuid())?, pci_address, slice })
    };
    if !mig::is_enabled(device)? {
        return Ok(vec![unit(device, None, None)?]);
    }
    let mut units = Vec::new();
    for slot in 0..known(device.mig_device_count())?.unwrap_or(0) {
        let Some(slice) = known(device.mig_device_by_index(slot))? else { continue };
        let instances = known(raw::gpu_instance(&slice))?.zip(known(raw::compute_instance(&slice))?);
        let numbers = instances.map(|(gpu_instance, compute_instance)| MigSlice { gpu_instance, compute_instance });
        units.push(unit(&slice, Some(slot), numbers)?);
    }
    Ok(units)
}

/// The unit that is the wanted GPU, if it is certain.
fn found(units: &[Unit], wanted: &GpuReading) -> Option<Place> {
    let same_uuid =
        |unit: &Unit| Some(digits(unit.uuid.as_deref()?).eq_ignore_ascii_case(digits(wanted.uuid.as_deref()?)));
    let same_address = |unit: &Unit| Some(unit.pci_address? == wanted.pci_address?);
    let same_slice = |unit: &Unit| Some(unit.slice? == wanted.mig?);
    if let Some(unit) = units.iter().find(|unit| same_uuid(unit) == Some(true)) {
        return Some(unit.place);
    }
    // Another UUID at the right address is another slice of that GPU.
    let could_be = |unit: &&Unit| same_uuid(unit).is_none() && same_slice(unit) != Some(false);
    let mut there = units.iter().filter(could_be).filter(|unit| same_address(unit) == Some(true));
    match (there.next(), there.next(), units) {
        (Some(unit), None, _) => Some(unit.place),
        (None, _, [only]) if could_be(&only) && same_address(only).is_none() => Some(only.place),
        _ => None,
    }
}

/// A UUID without NVML's prefix, as CUDA spells it.
fn digits(uuid: &str) -> &str {
    uuid.trim().trim_start_matches("GPU-").trim_start_matches("MIG-")
}
