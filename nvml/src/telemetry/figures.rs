//! Reads one sample of a GPU, figure by figure.

use gpu_tuned_core::telemetry::{GpuProcess, GpuSample, Throttle};
use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;

use crate::error::{nonzero, optional};
use crate::{Trouble, gpu};

/// Implausible clock in MHz.
const CLOCK_LIMIT: u32 = 20_000;
/// Implausible chip temperature in degrees Celsius.
const TEMPERATURE_LIMIT: u32 = 200;

/// Reads all figures of a whole GPU, except counters and link throughput.
pub(super) fn read_whole(device: &Device<'_>, has_unified_memory: bool, to: &mut GpuSample) -> Result<(), Trouble> {
    let rates = optional(device.utilization_rates())?;
    let percent = |figure: u32| (figure <= 100).then(|| f64::from(figure));
    to.utilisation_percent = rates.as_ref().and_then(|rates| percent(rates.gpu));
    to.memory_activity_percent = rates.as_ref().and_then(|rates| percent(rates.memory));
    read_memory(device, has_unified_memory, to)?;
    to.power_mw = gpu::plausible_power(optional(device.power_usage())?);
    to.power_limit_mw = gpu::power_limit(device)?;
    let clock = |megahertz: &u32| *megahertz < CLOCK_LIMIT;
    to.sm_clock_mhz = optional(device.clock_info(Clock::SM))?.filter(clock);
    to.memory_clock_mhz = optional(device.clock_info(Clock::Memory))?.filter(clock);
    to.throttle = optional(device.current_throttle_reasons())?.map(throttle).unwrap_or_default();
    let temperature = optional(device.temperature(TemperatureSensor::Gpu))?;
    to.temperature_c = temperature.filter(|celsius| *celsius < TEMPERATURE_LIMIT);
    if !has_unified_memory {
        read_link(device, to)?;
    }
    read_processes(device, to)
}

/// Reads the PCIe link. A GPU with unified memory has none: its driver reports generation 1 and one lane.
fn read_link(device: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    to.pcie_generation = nonzero(device.current_pcie_link_gen())?.filter(|generation| is_generation(*generation));
    to.pcie_lanes = nonzero(device.current_pcie_link_width())?.filter(|lanes| is_width(*lanes));
    Ok(())
}

/// Reads the figures of a MIG slice; other figures exist only for the whole GPU.
pub(super) fn read_slice(slice: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    read_memory(slice, false, to)?;
    read_processes(slice, to)
}

/// Reads the traffic of the PCIe link. The driver samples each direction for 20 ms.
pub(super) fn read_link_throughput(device: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    let bytes = |kilobytes: u32| u64::from(kilobytes) * 1000;
    to.pcie_to_gpu_bytes_per_s = optional(device.pcie_throughput(PcieUtilCounter::Receive))?.map(bytes);
    to.pcie_from_gpu_bytes_per_s = optional(device.pcie_throughput(PcieUtilCounter::Send))?.map(bytes);
    Ok(())
}

pub(super) const fn is_generation(generation: u32) -> bool {
    generation <= 16
}

pub(super) const fn is_width(lanes: u32) -> bool {
    lanes <= 32
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

/// Throttle reasons. The general hardware flag counts only if no specific hardware flag is set.
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
    throttle
}
