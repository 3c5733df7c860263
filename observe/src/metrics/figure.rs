//! Figures of the GPU and of the host: key, unit, name for Prometheus, and the field of the sample.

use crate::recording::{GpuSample, HostSample};

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

impl<S> Figure<S> {
    const fn new(
        key: &'static str,
        metric: &'static str,
        scale: f64,
        about: &'static str,
        of: fn(&S) -> Option<f64>,
    ) -> Self {
        Self { key, about, metric, scale, of }
    }
}

const ONE: f64 = 1.0;
const PERCENT: f64 = 0.01;
const MEGAHERTZ: f64 = 1e6;

fn bytes(bytes: Option<u64>) -> Option<f64> {
    bytes.map(|bytes| bytes as f64)
}

fn watts(milliwatts: Option<u32>) -> Option<f64> {
    milliwatts.map(|milliwatts| f64::from(milliwatts) / 1e3)
}

/// Figures of a GPU.
pub static GPU_FIGURES: [Figure<GpuSample>; 12] = [
    Figure::new(
        "utilisation_percent",
        "gpu_tuned_gpu_utilisation_ratio",
        PERCENT,
        "Part of the driver's last sample period in which a kernel ran",
        |gpu| gpu.utilisation_percent,
    ),
    Figure::new(
        "sm_activity_percent",
        "gpu_tuned_gpu_sm_activity_ratio",
        PERCENT,
        "Part of the SMs that worked, averaged since the last sample",
        |gpu| gpu.sm_activity_percent,
    ),
    Figure::new(
        "sm_occupancy_percent",
        "gpu_tuned_gpu_sm_occupancy_ratio",
        PERCENT,
        "Resident warps over the most that can be resident, since the last sample",
        |gpu| gpu.sm_occupancy_percent,
    ),
    Figure::new(
        "tensor_activity_percent",
        "gpu_tuned_gpu_tensor_activity_ratio",
        PERCENT,
        "Part of the time in which tensor cores worked, since the last sample",
        |gpu| gpu.tensor_activity_percent,
    ),
    Figure::new(
        "dram_activity_percent",
        "gpu_tuned_gpu_dram_activity_ratio",
        PERCENT,
        "Part of the memory bandwidth that was used, since the last sample",
        |gpu| gpu.dram_activity_percent,
    ),
    Figure::new(
        "memory_activity_percent",
        "gpu_tuned_gpu_memory_activity_ratio",
        PERCENT,
        "Part of the driver's last sample period in which memory was read or written",
        |gpu| gpu.memory_activity_percent,
    ),
    Figure::new("memory_used_bytes", "gpu_tuned_gpu_memory_used_bytes", ONE, "Memory in use by processes", |gpu| {
        bytes(gpu.memory_used_bytes)
    }),
    Figure::new("power_w", "gpu_tuned_gpu_power_watts", ONE, "Power drawn", |gpu| watts(gpu.power_mw)),
    Figure::new("sm_clock_mhz", "gpu_tuned_gpu_sm_clock_hertz", MEGAHERTZ, "Clock of the SMs", |gpu| {
        gpu.sm_clock_mhz.map(f64::from)
    }),
    Figure::new("temperature_c", "gpu_tuned_gpu_temperature_celsius", ONE, "Temperature of the chip", |gpu| {
        gpu.temperature_c.map(f64::from)
    }),
    Figure::new(
        "pcie_to_gpu_bytes_per_s",
        "gpu_tuned_gpu_pcie_to_gpu_bytes_per_second",
        ONE,
        "PCIe traffic from the host to the GPU",
        |gpu| bytes(gpu.pcie_to_gpu_bytes_per_s),
    ),
    Figure::new(
        "pcie_from_gpu_bytes_per_s",
        "gpu_tuned_gpu_pcie_from_gpu_bytes_per_second",
        ONE,
        "PCIe traffic from the GPU to the host",
        |gpu| bytes(gpu.pcie_from_gpu_bytes_per_s),
    ),
];

/// Figures of a GPU that rarely change: they are exported, and not summed up.
static GPU_STATE: [Figure<GpuSample>; 4] = [
    Figure::new("power_limit_w", "gpu_tuned_gpu_power_limit_watts", ONE, "Power limit in force", |gpu| {
        watts(gpu.power_limit_mw)
    }),
    Figure::new("memory_clock_mhz", "gpu_tuned_gpu_memory_clock_hertz", MEGAHERTZ, "Clock of the memory", |gpu| {
        gpu.memory_clock_mhz.map(f64::from)
    }),
    Figure::new("pcie_generation", "gpu_tuned_gpu_pcie_generation", ONE, "PCIe generation of the link", |gpu| {
        gpu.pcie_generation.map(f64::from)
    }),
    Figure::new("pcie_lanes", "gpu_tuned_gpu_pcie_lanes", ONE, "PCIe lanes of the link", |gpu| {
        gpu.pcie_lanes.map(f64::from)
    }),
];

/// Returns all figures of a GPU.
pub(crate) fn gpu_figures() -> impl Iterator<Item = &'static Figure<GpuSample>> {
    GPU_FIGURES.iter().chain(&GPU_STATE)
}

/// Figures of the host, and of the monitored program.
pub static HOST_FIGURES: [Figure<HostSample>; 5] = [
    Figure::new(
        "cpu_percent",
        "gpu_tuned_host_cpu_ratio",
        PERCENT,
        "Part of the CPU time of all cores that was used",
        |host| host.cpu_percent,
    ),
    Figure::new("memory_used_bytes", "gpu_tuned_host_memory_used_bytes", ONE, "Host memory in use", |host| {
        bytes(host.memory_used_bytes)
    }),
    Figure::new(
        "process_cpu_percent",
        "gpu_tuned_process_cpu_cores",
        PERCENT,
        "CPU cores kept busy by the monitored program and its children",
        |host| host.process.as_ref()?.cpu_percent,
    ),
    Figure::new(
        "process_memory_bytes",
        "gpu_tuned_process_memory_bytes",
        ONE,
        "Memory of the monitored program and its children",
        |host| bytes(host.process.as_ref()?.memory_bytes),
    ),
    Figure::new(
        "process_busiest_thread_percent",
        "gpu_tuned_process_busiest_thread_ratio",
        PERCENT,
        "CPU time of the monitored program's busiest thread, of one core",
        |host| host.process.as_ref()?.busiest_thread_percent,
    ),
];
