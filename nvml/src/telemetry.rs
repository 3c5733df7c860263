//! Repeated samples of all GPUs while they work.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::telemetry::{Gpu, GpuProcess, GpuSample, Throttle};
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use crate::driver::{FIRST_CALLS, open_library, optional, text, within};
use crate::raw::KeptSample;
use crate::{DriverError, GpuTrouble, Trouble, gpu};

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
        let nvml = Arc::new(open_library(library)?);
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
        let unit = WatchedGpu { gpu: gpu.without_impossible(), reading };
        Self { unit, instance, counters: Counters::default(), link_read_at: None, was_lost: false }
    }

    fn look(&mut self, nvml: &Arc<Nvml>, sample: &mut GpuSample, may_read_link: &mut bool) -> Result<(), Trouble> {
        let open = |error: NvmlError| Trouble::from_nvml(&error);
        let whole = nvml.device_by_index(self.unit.gpu.gpu).map_err(open)?;
        self.check_identity(&whole)?;
        let mut read = GpuSample::new(sample.at, sample.gpu);
        read.mig_slot = sample.mig_slot;
        if let Some(slot) = sample.mig_slot {
            read_slice(&whole.mig_device_by_index(slot).map_err(open)?, &mut read)?;
        } else {
            read_whole(&whole, self.unit.reading.has_unified_memory(), &mut read)?;
        }
        self.counters.read(nvml, &whole, self.instance, &mut read)?;
        let is_due = self.link_read_at.is_none_or(|asked| asked.elapsed() >= LINK_INTERVAL);
        let is_measured = read.pcie_to_gpu_bytes_per_s.is_some() || self.counters.measures_link();
        if self.has_link() && !is_measured && is_due && *may_read_link {
            *may_read_link = false;
            self.link_read_at = Some(Instant::now());
            read_link_throughput(&whole, &mut read)?;
        }
        *sample = read.without_impossible(&self.unit.gpu);
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
    gpu.max_memory_clock_mhz = whole.max_memory_clock_mhz;
    gpu.unified_memory = whole.has_unified_memory();
    if gpu.unified_memory {
        return Ok(gpu);
    }
    gpu.max_pcie_generation = optional(device.max_pcie_link_gen())?;
    gpu.max_pcie_lanes = optional(device.max_pcie_link_width())?;
    Ok(gpu)
}

/// Reads all figures of a whole GPU, except counters and link throughput.
fn read_whole(device: &Device<'_>, has_unified_memory: bool, to: &mut GpuSample) -> Result<(), Trouble> {
    let rates = optional(device.utilization_rates())?;
    to.utilisation_percent = rates.as_ref().map(|rates| f64::from(rates.gpu));
    to.memory_activity_percent = rates.as_ref().map(|rates| f64::from(rates.memory));
    read_memory(device, has_unified_memory, to)?;
    to.power_mw = optional(device.power_usage())?;
    to.power_limit_mw = gpu::power_limit(device)?;
    to.sm_clock_mhz = optional(device.clock_info(Clock::SM))?;
    to.memory_clock_mhz = optional(device.clock_info(Clock::Memory))?;
    to.performance_state = optional(device.performance_state())?.map(|state| state.as_c());
    to.throttle = optional(device.current_throttle_reasons())?.map(throttle).unwrap_or_default();
    to.temperature_c = optional(device.temperature(TemperatureSensor::Gpu))?;
    if !has_unified_memory {
        read_link(device, to)?;
    }
    read_processes(device, to)
}

/// Reads the PCIe link. A GPU with unified memory has none: its driver reports generation 1 and one lane.
fn read_link(device: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    to.pcie_generation = optional(device.current_pcie_link_gen())?;
    to.pcie_lanes = optional(device.current_pcie_link_width())?;
    Ok(())
}

/// Reads the figures of a MIG slice; other figures exist only for the whole GPU.
fn read_slice(slice: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    read_memory(slice, false, to)?;
    read_processes(slice, to)
}

/// Reads the traffic of the PCIe link. The driver samples each direction for 20 ms.
fn read_link_throughput(device: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    let bytes = |kilobytes: u32| u64::from(kilobytes) * 1000;
    to.pcie_to_gpu_bytes_per_s = optional(device.pcie_throughput(PcieUtilCounter::Receive))?.map(bytes);
    to.pcie_from_gpu_bytes_per_s = optional(device.pcie_throughput(PcieUtilCounter::Send))?.map(bytes);
    Ok(())
}

fn read_memory(device: &Device<'_>, has_unified_memory: bool, to: &mut GpuSample) -> Result<(), Trouble> {
    let unit = gpu::memory(device, has_unified_memory)?;
    to.memory_used_bytes = gpu::memory_used(&unit).map(|bytes| bytes.0);
    Ok(())
}

fn read_processes(device: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    let processes = optional(device.running_compute_processes())?;
    to.processes = processes.map(|processes| {
        let process = |info: nvml_wrapper::struct_wrappers::device::ProcessInfo| {
            let mut process = GpuProcess::new(info.pid);
            process.memory_bytes = match info.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes),
                UsedGpuMemory::Unavailable => None,
            };
            process
        };
        processes.into_iter().map(process).collect()
    });
    Ok(())
}

/// Throttle reasons. The general hardware flag counts only if no specific hardware flag is set, and the setting of clocks
/// only while the GPU works.
fn throttle(reasons: ThrottleReasons) -> Vec<Throttle> {
    let reasons_by_flag = [
        (ThrottleReasons::SW_POWER_CAP, Throttle::PowerCap),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::ThermalSoftware),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::ThermalHardware),
        (ThrottleReasons::SYNC_BOOST, Throttle::SyncBoost),
    ];
    let mut throttle: Vec<_> =
        reasons_by_flag.into_iter().filter(|(flag, _)| reasons.contains(*flag)).map(|(_, reason)| reason).collect();
    let is_explained = throttle.iter().any(|reason| matches!(reason, Throttle::PowerBrake | Throttle::ThermalHardware));
    if reasons.contains(ThrottleReasons::HW_SLOWDOWN) && !is_explained {
        throttle.push(Throttle::Hardware);
    }
    let settings = ThrottleReasons::APPLICATIONS_CLOCKS_SETTING | ThrottleReasons::DISPLAY_CLOCK_SETTING;
    if reasons.intersects(settings) && !reasons.contains(ThrottleReasons::GPU_IDLE) {
        throttle.push(Throttle::ClockSetting);
    }
    throttle
}

/// The counters read, in the order of the destructuring below.
const METRICS: [GpmMetricId; 6] = [
    GpmMetricId::SmUtil,
    GpmMetricId::SmOccupancy,
    GpmMetricId::AnyTensorUtil,
    GpmMetricId::DramBwUtil,
    GpmMetricId::PcieRxPerSec,
    GpmMetricId::PcieTxPerSec,
];

/// Counters of one GPU or slice, with the previous sample.
#[derive(Debug, Default)]
struct Counters {
    /// Whether the GPU has counters; `None` before the first query.
    supported: Option<bool>,
    measures_link: bool,
    last: Option<KeptSample>,
}

impl Counters {
    /// Returns true if the counters measured the traffic of the PCIe link.
    const fn measures_link(&self) -> bool {
        self.measures_link
    }

    /// Drops the previous sample, because the GPU was lost or replaced.
    fn forget(&mut self) {
        *self = Self::default();
    }

    /// Reads the counters since the previous sample; the first sample gives no figures.
    fn read(
        &mut self,
        nvml: &Arc<Nvml>,
        device: &Device<'_>,
        instance: Option<u32>,
        to: &mut GpuSample,
    ) -> Result<(), Trouble> {
        if self.supported.is_none() {
            self.supported = Some(optional(device.gpm_support())?.unwrap_or(false));
        }
        if self.supported != Some(true) {
            return Ok(());
        }
        let sample = optional(KeptSample::take(nvml, device, instance))?;
        let counted = match (&self.last, &sample) {
            (Some(last), Some(sample)) => optional(last.until(sample, &METRICS))?,
            _ => None,
        };
        self.last = sample;
        if let Some([sm, occupancy, tensor, dram, to_gpu, from_gpu]) = counted.as_deref() {
            to.sm_activity_percent = *sm;
            to.sm_occupancy_percent = *occupancy;
            to.tensor_activity_percent = *tensor;
            to.dram_activity_percent = *dram;
            // The link belongs to the whole GPU.
            if instance.is_none() {
                to.pcie_to_gpu_bytes_per_s = to_gpu.and_then(bytes);
                to.pcie_from_gpu_bytes_per_s = from_gpu.and_then(bytes);
                self.measures_link = to.pcie_to_gpu_bytes_per_s.is_some();
            }
        }
        Ok(())
    }
}

/// Converts MiB/s to bytes/s.
fn bytes(mib: f64) -> Option<u64> {
    (mib >= 0.0).then_some((mib * 1024.0 * 1024.0) as u64)
}
