//! Metrics of samples and steps: one table each for CSV, Prometheus, TensorBoard and traces.

use crate::monitor::amounts::watts;
use crate::recording::{GpuSample, HostSample, StepRecord, Throttle};

/// Throttle reasons, with their keys in recordings and their names in messages.
pub(crate) const THROTTLES: [(Throttle, &str, &str); 7] = [
    (Throttle::PowerCap, "power_cap", "power limit"),
    (Throttle::PowerBrake, "power_brake", "power supply"),
    (Throttle::ThermalSoftware, "thermal_software", "heat (driver)"),
    (Throttle::ThermalHardware, "thermal_hardware", "heat (hardware)"),
    (Throttle::Hardware, "hardware", "hardware"),
    (Throttle::SyncBoost, "sync_boost", "another GPU"),
    (Throttle::ClockSetting, "clock_setting", "clocks that were set"),
];

/// Returns the key of a throttle reason, as recordings spell it.
pub fn throttle_key(reason: Throttle) -> &'static str {
    THROTTLES.iter().find(|(throttle, ..)| *throttle == reason).map_or("unknown", |(_, key, _)| key)
}

/// A figure of a kind of sample.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Figure<S: 'static> {
    /// The key, which ends in the unit.
    pub key: &'static str,
    /// A description.
    pub about: &'static str,
    /// The name for Prometheus, which uses base units only.
    pub metric: &'static str,
    /// Factor from the key's unit to the base unit.
    pub scale: f64,
    /// Returns the figure of a sample.
    pub of: fn(&S) -> Option<f64>,
}

const ONE: f64 = 1.0;
const PERCENT: f64 = 0.01;
const MEGAHERTZ: f64 = 1e6;

/// Declares tables of figures: key, name for Prometheus without prefix, factor, field and description.
macro_rules! figures {
    ($($(#[$doc:meta])* $vis:vis $table:ident: [$sample:ty; $count:literal] {
        $($key:literal $metric:literal $scale:ident |$from:ident| $field:expr, $about:literal;)*
    })*) => {
        $($(#[$doc])* $vis static $table: [Figure<$sample>; $count] = [$(Figure {
            key: $key,
            about: $about,
            metric: concat!("gpu_tuned_", $metric),
            scale: $scale,
            of: |$from| $field,
        }),*];)*
    };
}

figures! {
    /// Figures of a GPU.
    pub GPU_FIGURES: [GpuSample; 12] {
        "utilisation_percent" "gpu_utilisation_ratio" PERCENT |gpu| gpu.utilisation_percent,
            "Part of the driver's last sample period in which a kernel ran";
        "sm_activity_percent" "gpu_sm_activity_ratio" PERCENT |gpu| gpu.sm_activity_percent,
            "Part of the SMs that worked, averaged since the last sample";
        "sm_occupancy_percent" "gpu_sm_occupancy_ratio" PERCENT |gpu| gpu.sm_occupancy_percent,
            "Resident warps over the most that can be resident, since the last sample";
        "tensor_activity_percent" "gpu_tensor_activity_ratio" PERCENT |gpu| gpu.tensor_activity_percent,
            "Part of the time in which tensor cores worked, since the last sample";
        "dram_activity_percent" "gpu_dram_activity_ratio" PERCENT |gpu| gpu.dram_activity_percent,
            "Part of the memory bandwidth that was used, since the last sample";
        "memory_activity_percent" "gpu_memory_activity_ratio" PERCENT |gpu| gpu.memory_activity_percent,
            "Part of the driver's last sample period in which memory was read or written";
        "memory_used_bytes" "gpu_memory_used_bytes" ONE |gpu| count(gpu.memory_used_bytes), "Memory in use by processes";
        "power_w" "gpu_power_watts" ONE |gpu| gpu.power_mw.map(watts), "Power drawn";
        "sm_clock_mhz" "gpu_sm_clock_hertz" MEGAHERTZ |gpu| gpu.sm_clock_mhz.map(f64::from), "Clock of the SMs";
        "temperature_c" "gpu_temperature_celsius" ONE |gpu| gpu.temperature_c.map(f64::from), "Temperature of the chip";
        "pcie_to_gpu_bytes_per_s" "gpu_pcie_to_gpu_bytes_per_second" ONE |gpu| count(gpu.pcie_to_gpu_bytes_per_s),
            "PCIe traffic from the host to the GPU";
        "pcie_from_gpu_bytes_per_s" "gpu_pcie_from_gpu_bytes_per_second" ONE |gpu| count(gpu.pcie_from_gpu_bytes_per_s),
            "PCIe traffic from the GPU to the host";
    }

    /// Figures of a GPU that rarely change: they are exported, and not summarized.
    GPU_STATE: [GpuSample; 5] {
        "power_limit_w" "gpu_power_limit_watts" ONE |gpu| gpu.power_limit_mw.map(watts), "Power limit in force";
        "memory_clock_mhz" "gpu_memory_clock_hertz" MEGAHERTZ |gpu| gpu.memory_clock_mhz.map(f64::from),
            "Clock of the memory";
        "performance_state" "gpu_performance_state" ONE |gpu| gpu.performance_state.map(f64::from),
            "Performance state, of which 0 is the highest";
        "pcie_generation" "gpu_pcie_generation" ONE |gpu| gpu.pcie_generation.map(f64::from), "PCIe generation of the link";
        "pcie_lanes" "gpu_pcie_lanes" ONE |gpu| gpu.pcie_lanes.map(f64::from), "PCIe lanes of the link";
    }

    /// Figures of the host, and of the monitored program.
    pub HOST_FIGURES: [HostSample; 5] {
        "cpu_percent" "host_cpu_ratio" PERCENT |host| host.cpu_percent, "Part of the CPU time of all cores that was used";
        "memory_used_bytes" "host_memory_used_bytes" ONE |host| count(host.memory_used_bytes), "Host memory in use";
        "process_cpu_percent" "process_cpu_cores" PERCENT |host| host.process.as_ref()?.cpu_percent,
            "CPU cores kept busy by the monitored program and its children";
        "process_memory_bytes" "process_memory_bytes" ONE |host| count(host.process.as_ref()?.memory_bytes),
            "Memory of the monitored program and its children";
        "process_busiest_thread_percent" "process_busiest_thread_ratio" PERCENT
            |host| host.process.as_ref()?.busiest_thread_percent,
            "CPU time of the monitored program's busiest thread, of one core";
    }
}

fn count(count: Option<u64>) -> Option<f64> {
    count.map(|count| count as f64)
}

pub(crate) fn gpu_figures() -> impl Iterator<Item = &'static Figure<GpuSample>> {
    GPU_FIGURES.iter().chain(&GPU_STATE)
}

/// A figure of a step: its group, its key, which ends in its unit, and its value.
pub(crate) type StepFigure = (&'static str, &'static str, Option<f64>);

/// Returns the seconds of each phase of a step.
pub(crate) fn phases(step: &StepRecord) -> [StepFigure; 8] {
    [
        ("loader", "waited_s", step.waited_s),
        ("time", "outside_s", step.outside_s),
        ("time", "upload_s", step.upload_s),
        ("time", "loss_s", step.loss_s),
        ("time", "backward_s", step.backward_s),
        ("time", "update_s", step.update_s),
        ("time", "exchange_s", step.exchange_s),
        ("time", "drain_s", step.drain_s),
    ]
}

pub(crate) fn step_figures(step: &StepRecord) -> impl Iterator<Item = StepFigure> + use<> {
    let figures = [
        ("time", "seconds", Some(step.seconds)),
        ("train", "samples", Some(step.samples as f64)),
        ("train", "micro_batches", Some(step.micro_batches as f64)),
        ("train", "micro_batch", Some(step.micro_batch as f64)),
        ("train", "loss", step.loss),
        ("train", "gradient_norm", step.gradient_norm),
        ("train", "loss_scale", step.loss_scale),
        ("train", "applied", Some(f64::from(u8::from(step.applied)))),
        ("train", "rescues", Some(step.rescues as f64)),
        ("time", "loss_cpu_s", step.loss_cpu_s),
        ("loader", "queued", count(step.queued)),
        ("loader", "prepared", count(step.prepared)),
        ("loader", "prepared_s", step.prepared_s),
        ("loader", "prepared_cpu_s", step.prepared_cpu_s),
        ("memory", "in_use_bytes", count(step.in_use_bytes)),
        ("memory", "reserved_bytes", count(step.reserved_bytes)),
    ];
    figures.into_iter().chain(phases(step))
}

#[cfg(test)]
mod tests {
    use super::{THROTTLES, Throttle, throttle_key};

    #[test]
    fn keys_are_those_of_recordings() {
        for reason in THROTTLES.into_iter().map(|(reason, ..)| reason).chain([Throttle::Unknown]) {
            assert_eq!(serde_json::to_value(reason).expect("JSON"), throttle_key(reason));
        }
    }
}
