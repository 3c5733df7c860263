//! Repeated samples of all GPUs while they work.

mod counters;
mod figures;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::telemetry::{Gpu, GpuSample};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::error::{nonzero, text};
use crate::limit::{FIRST_CALLS, within};
use crate::{DriverError, GpuTrouble, Trouble, gpu, library};
use counters::Counters;

/// Minimum time between two throughput queries of one GPU. The driver samples a PCIe link for 20 ms a query, so at
/// most one GPU is queried per sample.
const LINK_INTERVAL: Duration = Duration::from_secs(5);

/// Samples between two attempts to open a failed GPU.
const RETRY_INTERVAL: u64 = 10;

/// Samples all GPUs of the machine repeatedly; keeps the management library open.
///
/// A lost or inaccessible GPU is reported in [`GpuSample::trouble`] until it recovers, and does not hide the others.
/// A GPU that cannot be opened at first is added once it can. MIG slices are listed once, at the beginning.
#[derive(Debug)]
pub struct Telemetry {
    watched: Vec<Watched>,
    trouble: Vec<GpuTrouble>,
    driver_version: Option<String>,
    samples_taken: u64,
    nvml: Arc<Nvml>,
}

/// A sampled GPU or MIG slice.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WatchedGpu {
    /// Constant properties, as recordings store them, without the profile.
    pub gpu: Gpu,
    /// The reading taken at the beginning.
    pub reading: GpuReading,
}

#[derive(Debug)]
struct Watched {
    unit: WatchedGpu,
    /// GPU instance of a slice.
    instance: Option<u32>,
    counters: Counters,
    link_read_at: Option<Instant>,
    was_lost: bool,
}

impl Telemetry {
    /// Opens the library, as [`read`](crate::read) does, and finds the GPUs. Slices follow their GPU: clocks, power
    /// and temperature belong to the whole GPU.
    ///
    /// # Errors
    ///
    /// [`DriverError`] if the driver cannot be used, or does not answer for a minute.
    pub fn open(library: Option<&Path>) -> Result<Self, DriverError> {
        let library = library.map(Path::to_owned);
        within(FIRST_CALLS, move || Self::open_now(library.as_deref())).unwrap_or(Err(DriverError::Silent))
    }

    fn open_now(library: Option<&Path>) -> Result<Self, DriverError> {
        let nvml = Arc::new(library::open(library)?);
        let count = nvml.device_count().map_err(|error| DriverError::from_call("counting the GPUs", &error))?;
        let driver_version = nvml.sys_driver_version().ok().filter(|version| !version.is_empty());
        let mut telemetry = Self { watched: Vec::new(), trouble: Vec::new(), driver_version, samples_taken: 0, nvml };
        for index in 0..count {
            // Some drivers report a higher count than they have GPUs; no later index exists either.
            if !telemetry.add_gpu(index) {
                break;
            }
        }
        Ok(telemetry)
    }

    /// The sampled GPUs; slices follow their GPU.
    pub fn gpus(&self) -> impl Iterator<Item = &WatchedGpu> {
        self.watched.iter().map(|watched| &watched.unit)
    }

    /// The GPUs that are present but could not be opened yet.
    pub fn trouble(&self) -> &[GpuTrouble] {
        &self.trouble
    }

    /// The driver's version, such as `570.86.15`.
    pub fn driver_version(&self) -> Option<&str> {
        self.driver_version.as_deref()
    }

    /// Samples each GPU. `now` is the recording's clock, in seconds.
    ///
    /// Takes up to 40 ms longer when a GPU's PCIe throughput is due. GPUs with GPM need no such query.
    pub fn look(&mut self, now: impl Fn() -> f64) -> Vec<GpuSample> {
        self.samples_taken += 1;
        if self.samples_taken.is_multiple_of(RETRY_INTERVAL) {
            for trouble in std::mem::take(&mut self.trouble) {
                self.add_gpu(trouble.index);
            }
        }
        let nvml = Arc::clone(&self.nvml);
        let mut may_read_link = true;
        let look = |watched: &mut Watched| {
            let mut sample = GpuSample::new(now(), watched.unit.gpu.gpu);
            sample.mig_slot = watched.unit.gpu.mig_slot;
            if let Err(trouble) = watched.look(&nvml, &mut sample, &mut may_read_link) {
                watched.counters.forget();
                watched.was_lost = true;
                (sample.at, sample.trouble) = (now(), Some(trouble.to_string()));
            }
            sample
        };
        self.watched.iter_mut().map(look).collect()
    }

    /// Adds the GPU `index`, or its error. Returns `false` if there is no such GPU.
    fn add_gpu(&mut self, index: u32) -> bool {
        let nvml = Arc::clone(&self.nvml);
        let opened = nvml.device_by_index(index);
        let is_there = !matches!(opened, Err(NvmlError::InvalidArg));
        match opened.map_err(|error| Trouble::from_nvml(&error)).and_then(|device| Watched::open(&device, index)) {
            Ok(units) => self.watched.extend(units),
            Err(what) => self.trouble.push(GpuTrouble { index, what }),
        }
        is_there
    }
}

impl Watched {
    /// Opens a GPU and its slices.
    fn open(device: &Device<'_>, index: u32) -> Result<Vec<Self>, Trouble> {
        let whole = gpu::read(device, index)?;
        let mut units = vec![Self::new(&identity(device, &whole)?, whole.clone(), None)];
        if gpu::is_mig_enabled(device)? {
            for (slot, reading) in gpu::read_slices(device, &whole)? {
                let mut gpu = Gpu::new(index);
                gpu.mig_slot = Some(slot);
                let instance = reading.mig.map(|slice| slice.gpu_instance);
                units.push(Self::new(&gpu, reading, instance));
            }
        }
        Ok(units)
    }

    fn new(gpu: &Gpu, reading: GpuReading, instance: Option<u32>) -> Self {
        let mut gpu = gpu.clone();
        gpu.name.clone_from(&reading.name);
        gpu.uuid.clone_from(&reading.uuid);
        gpu.memory_total_bytes = reading.memory_total.map(|bytes| bytes.0);
        let unit = WatchedGpu { gpu, reading };
        Self { unit, instance, counters: Counters::default(), link_read_at: None, was_lost: false }
    }

    fn look(&mut self, nvml: &Arc<Nvml>, sample: &mut GpuSample, may_read_link: &mut bool) -> Result<(), Trouble> {
        let open = |error: NvmlError| Trouble::from_nvml(&error);
        let whole = nvml.device_by_index(self.unit.gpu.gpu).map_err(open)?;
        self.check_identity(&whole)?;
        let mut read = GpuSample::new(sample.at, sample.gpu);
        read.mig_slot = sample.mig_slot;
        if let Some(slot) = sample.mig_slot {
            figures::read_slice(&whole.mig_device_by_index(slot).map_err(open)?, &mut read)?;
        } else {
            figures::read_whole(&whole, self.unit.reading.has_unified_memory(), &mut read)?;
        }
        self.counters.read(nvml, &whole, self.instance, &mut read)?;
        let is_due = self.link_read_at.is_none_or(|asked| asked.elapsed() >= LINK_INTERVAL);
        let is_measured = read.pcie_to_gpu_bytes_per_s.is_some() || self.counters.measures_link();
        if self.has_link() && !is_measured && is_due && *may_read_link {
            *may_read_link = false;
            self.link_read_at = Some(Instant::now());
            figures::read_link_throughput(&whole, &mut read)?;
        }
        *sample = read;
        Ok(())
    }

    /// Returns true for a GPU on a PCIe link of its own.
    fn has_link(&self) -> bool {
        self.unit.gpu.mig_slot.is_none() && !self.unit.reading.has_unified_memory()
    }

    /// A GPU that comes back must have the UUID of the lost one.
    fn check_identity(&mut self, whole: &Device<'_>) -> Result<(), Trouble> {
        if self.was_lost && self.unit.gpu.mig_slot.is_none() {
            let uuid = text(whole.uuid())?;
            if uuid.is_some() && uuid != self.unit.gpu.uuid {
                let now = uuid.unwrap_or_default();
                return Err(Trouble::Other { reason: format!("another GPU has this index now ({now})") });
            }
        }
        self.was_lost = false;
        Ok(())
    }
}

/// Constant properties of a whole GPU.
fn identity(device: &Device<'_>, whole: &GpuReading) -> Result<Gpu, Trouble> {
    let mut gpu = Gpu::new(whole.index);
    gpu.default_power_limit_mw = whole.default_power_limit_mw;
    gpu.max_sm_clock_mhz = whole.max_sm_clock_mhz;
    gpu.unified_memory = whole.has_unified_memory();
    if gpu.unified_memory {
        return Ok(gpu);
    }
    gpu.max_pcie_generation =
        nonzero(device.max_pcie_link_gen())?.filter(|generation| figures::is_generation(*generation));
    gpu.max_pcie_lanes = nonzero(device.max_pcie_link_width())?.filter(|lanes| figures::is_width(*lanes));
    Ok(gpu)
}
