//! One GPU at one moment, figure by figure.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::telemetry::{GpuProcess, GpuSample, Throttle};
use nvml_wrapper::Device;
use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, PcieUtilCounter, TemperatureSensor};
use nvml_wrapper::enums::device::UsedGpuMemory;

use crate::answer::{known, nonzero};
use crate::{Trouble, gpu};

/// No board draws as much (100 kW), in milliwatts.
const POWER_LIMIT: u32 = 100_000_000;
/// No clock is as fast, in MHz.
const CLOCK_LIMIT: u32 = 20_000;
/// No chip lives as hot, in degrees Celsius.
const TEMPERATURE_LIMIT: u32 = 200;

/// What a whole GPU answers, but for its counters and the throughput of its link.
pub(super) fn read_whole(device: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    let rates = known(device.utilization_rates())?;
    let percent = |figure: u32| (figure <= 100).then(|| f64::from(figure));
    to.utilisation_percent = rates.as_ref().and_then(|rates| percent(rates.gpu));
    to.memory_activity_percent = rates.as_ref().and_then(|rates| percent(rates.memory));
    read_memory(device, to)?;
    let power = |milliwatts: &u32| *milliwatts < POWER_LIMIT;
    to.power_mw = known(device.power_usage())?.filter(power);
    // Laptops keep the administrator's limit to themselves and tell the one in force.
    let enforced = nonzero(device.enforced_power_limit())?;
    let limit = if enforced.is_some() { enforced } else { nonzero(device.power_management_limit())? };
    to.power_limit_mw = limit.filter(power);
    let clock = |megahertz: &u32| *megahertz < CLOCK_LIMIT;
    to.sm_clock_mhz = known(device.clock_info(Clock::SM))?.filter(clock);
    to.memory_clock_mhz = known(device.clock_info(Clock::Memory))?.filter(clock);
    to.throttle = known(device.current_throttle_reasons())?.map(throttle).unwrap_or_default();
    let temperature = known(device.temperature(TemperatureSensor::Gpu))?;
    to.temperature_c = temperature.filter(|celsius| *celsius < TEMPERATURE_LIMIT);
    to.pcie_generation = nonzero(device.current_pcie_link_gen())?.filter(|generation| is_generation(*generation));
    to.pcie_lanes = nonzero(device.current_pcie_link_width())?.filter(|lanes| is_width(*lanes));
    read_processes(device, to)
}

/// What a MIG slice answers; the rest is its GPU's.
pub(super) fn read_slice(slice: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    read_memory(slice, to)?;
    read_processes(slice, to)
}

/// Traffic of the PCIe link, which the driver watches for 20 ms in each direction.
pub(super) fn read_link_throughput(device: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    let bytes = |kilobytes: u32| u64::from(kilobytes) * 1000;
    to.pcie_to_gpu_bytes_per_s = known(device.pcie_throughput(PcieUtilCounter::Receive))?.map(bytes);
    to.pcie_from_gpu_bytes_per_s = known(device.pcie_throughput(PcieUtilCounter::Send))?.map(bytes);
    Ok(())
}

pub(super) const fn is_generation(generation: u32) -> bool {
    generation <= 16
}

pub(super) const fn is_width(lanes: u32) -> bool {
    lanes <= 32
}

fn read_memory(device: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    let mut unit = GpuReading::default();
    gpu::read_memory(device, &mut unit)?;
    to.memory_used_bytes = gpu::memory_used(&unit).map(|bytes| bytes.0);
    Ok(())
}

fn read_processes(device: &Device<'_>, to: &mut GpuSample) -> Result<(), Trouble> {
    let processes = known(device.running_compute_processes())?;
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

/// What holds clocks down; hardware that says why is not counted as hardware that does not.
fn throttle(reasons: ThrottleReasons) -> Vec<Throttle> {
    let told = [
        (ThrottleReasons::SW_POWER_CAP, Throttle::PowerCap),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Throttle::PowerBrake),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, Throttle::ThermalSoftware),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, Throttle::ThermalHardware),
        (ThrottleReasons::SYNC_BOOST, Throttle::SyncBoost),
    ];
    let mut throttle: Vec<_> =
        told.into_iter().filter(|(flag, _)| reasons.contains(*flag)).map(|(_, reason)| reason).collect();
    let is_explained = throttle.iter().any(|reason| matches!(reason, Throttle::PowerBrake | Throttle::ThermalHardware));
    if reasons.contains(ThrottleReasons::HW_SLOWDOWN) && !is_explained {
        throttle.push(Throttle::Hardware);
    }
    throttle
}
