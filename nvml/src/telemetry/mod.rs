//! All GPUs, looked at again and again while they work.

mod counters;
mod figures;

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::telemetry::{Gpu, GpuSample};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::answer::{known, nonzero, text};
use crate::{DriverError, GpuTrouble, Trouble, gpu, library, mig, raw};
use counters::Counters;

/// The driver watches a PCIe link for 20 ms when it is asked for its throughput: of all GPUs, one at most is asked in a
/// look, and each no more often than this.
const LINK_PAUSE: Duration = Duration::from_secs(5);

/// Of GPUs that could not be opened, looks after which they are tried again.
const RETRY: u64 = 10;

/// All GPUs of the machine, looked at again and again; the management library stays open for it.
///
/// A GPU that is lost, or may not be used any more, is [`GpuSample::trouble`] for as long as that lasts, and hides no other
/// one. One that could not be used at the beginning is taken up once it can be. MIG slices are those of the beginning.
#[derive(Debug)]
pub struct Telemetry {
    watched: Vec<Watched>,
    trouble: Vec<GpuTrouble>,
    driver_version: Option<String>,
    looks: u64,
    nvml: Arc<Nvml>,
}

/// A GPU, or a MIG slice of one, that is looked at.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct WatchedGpu {
    /// What does not change, as recordings have it; the profile is not looked for.
    pub gpu: Gpu,
    /// What was read of it at the beginning.
    pub reading: GpuReading,
}

#[derive(Debug)]
struct Watched {
    unit: WatchedGpu,
    /// The GPU instance that a slice lies in.
    instance: Option<u32>,
    counters: Counters,
    asked_link: Option<Instant>,
    was_away: bool,
}

impl Telemetry {
    /// Opens the library, as [`read`](crate::read) does, and finds the GPUs. Of one that is cut into MIG slices, the slices
    /// follow the whole: clocks, power and temperature are the whole's.
    ///
    /// # Errors
    ///
    /// When the driver cannot be asked: see [`DriverError`].
    pub fn open(library: Option<&Path>) -> Result<Self, DriverError> {
        let nvml = Arc::new(library::open(library)?);
        let count = nvml.device_count().map_err(|error| DriverError::from_call("counting the GPUs", &error))?;
        let driver_version = nvml.sys_driver_version().ok().filter(|version| !version.is_empty());
        let mut telemetry = Self { watched: Vec::new(), trouble: Vec::new(), driver_version, looks: 0, nvml };
        for index in 0..count {
            // The driver counts GPUs that it does not have: there is none behind this one, either.
            if !telemetry.take_up(index) {
                break;
            }
        }
        Ok(telemetry)
    }

    /// The GPUs that are watched, those under MIG followed by their slices.
    pub fn gpus(&self) -> impl Iterator<Item = &WatchedGpu> {
        self.watched.iter().map(|watched| &watched.unit)
    }

    /// The GPUs that are there and could not be opened yet.
    pub fn trouble(&self) -> &[GpuTrouble] {
        &self.trouble
    }

    /// The driver's version, such as `570.86.15`.
    pub fn driver_version(&self) -> Option<&str> {
        self.driver_version.as_deref()
    }

    /// Asks the driver about each GPU; `now` is the clock of the recording.
    ///
    /// Takes up to 40 ms longer when it is some GPU's turn to be asked for its PCIe throughput, which those with GPM are not.
    pub fn look(&mut self, now: impl Fn() -> f64) -> Vec<GpuSample> {
        self.looks += 1;
        if self.looks.is_multiple_of(RETRY) {
            for trouble in std::mem::take(&mut self.trouble) {
                self.take_up(trouble.index);
            }
        }
        let nvml = Arc::clone(&self.nvml);
        let mut may_ask_link = true;
        let look = |watched: &mut Watched| {
            let mut sample = GpuSample::new(now(), watched.unit.gpu.gpu);
            sample.mig_slot = watched.unit.gpu.mig_slot;
            if let Err(trouble) = watched.look(&nvml, &mut sample, &mut may_ask_link) {
                watched.counters.forget();
                watched.was_away = true;
                (sample.at, sample.trouble) = (now(), Some(trouble.to_string()));
            }
            sample
        };
        self.watched.iter_mut().map(look).collect()
    }

    /// Watches the GPU `index`, or notes what is the matter with it; `false` where there is none.
    fn take_up(&mut self, index: u32) -> bool {
        let nvml = Arc::clone(&self.nvml);
        let opened = nvml.device_by_index(index);
        let is_there = !matches!(opened, Err(NvmlError::InvalidArg));
        match opened.map_err(|error| Trouble::of(&error)).and_then(|device| Watched::all_of(&device, index)) {
            Ok(units) => self.watched.extend(units),
            Err(what) => self.trouble.push(GpuTrouble { index, what }),
        }
        is_there
    }
}

impl Watched {
    /// A GPU, followed by its slices.
    fn all_of(device: &Device<'_>, index: u32) -> Result<Vec<Self>, Trouble> {
        let whole = gpu::read(device, index)?;
        let mut units = vec![Self::of(&identity(device, &whole)?, whole.clone(), None)];
        if mig::is_enabled(device)? {
            for slot in 0..known(device.mig_device_count())?.unwrap_or(0) {
                let Some(slice) = known(device.mig_device_by_index(slot))? else { continue };
                let Some(reading) = mig::read_slice(&slice, &whole)? else { continue };
                let mut gpu = Gpu::new(index);
                gpu.mig_slot = Some(slot);
                let instance = known(raw::gpu_instance(&slice))?;
                units.push(Self::of(&gpu, reading, instance));
            }
        }
        Ok(units)
    }

    fn of(gpu: &Gpu, reading: GpuReading, instance: Option<u32>) -> Self {
        let mut gpu = gpu.clone();
        gpu.name.clone_from(&reading.name);
        gpu.uuid.clone_from(&reading.uuid);
        gpu.memory_total_bytes = reading.memory_total.map(|bytes| bytes.0);
        let unit = WatchedGpu { gpu, reading };
        Self { unit, instance, counters: Counters::default(), asked_link: None, was_away: false }
    }

    fn look(&mut self, nvml: &Arc<Nvml>, sample: &mut GpuSample, may_ask_link: &mut bool) -> Result<(), Trouble> {
        let open = |error: NvmlError| Trouble::of(&error);
        let whole = nvml.device_by_index(self.unit.gpu.gpu).map_err(open)?;
        self.check_identity(&whole)?;
        let mut read = GpuSample::new(sample.at, sample.gpu);
        read.mig_slot = sample.mig_slot;
        if let Some(slot) = sample.mig_slot {
            figures::read_slice(&whole.mig_device_by_index(slot).map_err(open)?, &mut read)?;
        } else {
            figures::read_whole(&whole, &mut read)?;
        }
        self.counters.read(nvml, &whole, self.instance, &mut read)?;
        let is_due = self.asked_link.is_none_or(|asked| asked.elapsed() >= LINK_PAUSE);
        let is_told = read.pcie_to_gpu_bytes_per_s.is_some() || self.counters.tell_of_link();
        if sample.mig_slot.is_none() && !is_told && is_due && *may_ask_link {
            *may_ask_link = false;
            self.asked_link = Some(Instant::now());
            figures::read_link_throughput(&whole, &mut read)?;
        }
        *sample = read;
        Ok(())
    }

    /// A GPU that comes back has to be the one that went.
    fn check_identity(&mut self, whole: &Device<'_>) -> Result<(), Trouble> {
        if self.was_away && self.unit.gpu.mig_slot.is_none() {
            let uuid = text(whole.uuid())?;
            if uuid.is_some() && uuid != self.unit.gpu.uuid {
                let now = uuid.unwrap_or_default();
                return Err(Trouble::Other { reason: format!("another GPU has its number now ({now})") });
            }
        }
        self.was_away = false;
        Ok(())
    }
}

/// What does not change of a whole GPU.
fn identity(device: &Device<'_>, whole: &GpuReading) -> Result<Gpu, Trouble> {
    let mut gpu = Gpu::new(whole.index);
    gpu.default_power_limit_mw = whole.default_power_limit_mw;
    gpu.max_sm_clock_mhz = whole.max_sm_clock_mhz;
    gpu.max_pcie_generation =
        nonzero(device.max_pcie_link_gen())?.filter(|generation| figures::is_generation(*generation));
    gpu.max_pcie_lanes = nonzero(device.max_pcie_link_width())?.filter(|lanes| figures::is_width(*lanes));
    Ok(gpu)
}
