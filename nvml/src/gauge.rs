//! Repeated readings of one GPU while it works.

use std::path::Path;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{GpuIdentity, GpuReading};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use thiserror::Error;

use crate::driver::{FIRST_CALLS, Unit, open_library, optional, read_all, within};
use crate::{DriverError, Limited, SAMPLE_LIMIT, Trouble, gpu};

/// Reads one GPU repeatedly; keeps the management library open.
#[derive(Debug)]
pub struct Gauge(Limited<Opened, Result<Load, Trouble>>);

#[derive(Debug)]
struct Opened {
    nvml: Nvml,
    /// NVML's index of the GPU, and the slot of a MIG slice.
    index: u32,
    slot: Option<u32>,
    has_unified_memory: bool,
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
        let (library, gpu) = (library.map(Path::to_owned), gpu.clone());
        let open = move || Opened::new(library.as_deref(), &gpu);
        let opened = within(FIRST_CALLS, open).unwrap_or_else(|| Err(DriverError::Silent.into()))?;
        Ok(Self(Limited::new(opened)))
    }

    /// Reads the GPU now.
    ///
    /// # Errors
    ///
    /// [`Trouble`] if the GPU is gone for good, can no longer be opened, or does not answer within [`SAMPLE_LIMIT`].
    pub fn read(&mut self) -> Result<Load, Trouble> {
        self.0.call(SAMPLE_LIMIT, |opened| opened.read()).unwrap_or(Err(Trouble::Silent))
    }
}

impl Opened {
    fn new(library: Option<&Path>, gpu: &GpuReading) -> Result<Self, GaugeError> {
        let nvml = open_library(library)?;
        let (units, _) = read_all(&nvml)?;
        let Unit { slot, reading } = find_gpu(&units, gpu).ok_or_else(|| GaugeError::NoSuchGpu {
            name: gpu.name.clone().or_else(|| gpu.uuid.clone()).unwrap_or_else(|| "the GPU".to_owned()),
        })?;
        // Only CUDA reports it of some GPUs.
        let has_unified_memory = gpu.has_unified_memory() || reading.has_unified_memory();
        Ok(Self { nvml, index: reading.index, slot: *slot, has_unified_memory })
    }

    fn read(&self) -> Result<Load, Trouble> {
        let open = |error: NvmlError| Trouble::from_nvml(&error);
        let whole = self.nvml.device_by_index(self.index).map_err(open)?;
        match self.slot {
            Some(slot) => load(&whole.mig_device_by_index(slot).map_err(open)?, false),
            None => load(&whole, self.has_unified_memory),
        }
    }
}

fn load(device: &Device<'_>, has_unified_memory: bool) -> Result<Load, Trouble> {
    let unit = gpu::memory(device, has_unified_memory)?;
    let utilisation = optional(device.utilization_rates())?.map(|rates| rates.gpu);
    Ok(Load {
        memory_used: gpu::memory_used(&unit),
        memory_total: unit.memory_total,
        utilisation_percent: utilisation.filter(|percent| *percent <= 100),
    })
}

/// Finds the unit that is certainly the wanted GPU.
fn find_gpu<'u>(units: &'u [Unit], wanted: &GpuReading) -> Option<&'u Unit> {
    let same_slice = |unit: &Unit| Some(unit.reading.mig? == wanted.mig?);
    let mut found = GpuIdentity::from(wanted).find(true, units);
    found.retain(|unit| same_slice(unit) != Some(false));
    if let [unit] = found[..] { Some(unit) } else { None }
}
