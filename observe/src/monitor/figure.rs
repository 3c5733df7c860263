//! The figures that are watched: what they are called, in which unit, and where samples have them.

use crate::recording::{GpuSample, HostSample, ProcessSample};

/// A figure of a kind of sample.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Figure<S: 'static> {
    /// Its key, which ends in its unit.
    pub key: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Its name for Prometheus, which has base units only.
    pub metric: &'static str,
    /// What a value is multiplied by for Prometheus.
    pub scale: f64,
    /// Where a sample has it.
    pub of: fn(&S) -> Option<f64>,
}

const PERCENT: f64 = 0.01;
const MEGAHERTZ: f64 = 1e6;

/// The figures of a GPU.
pub static GPU_FIGURES: [Figure<GpuSample>; 12] = [
    Figure {
        key: "utilisation_percent",
        about: "Part of the driver's last sample period in which a kernel ran",
        metric: "gpu_tuned_gpu_utilisation_ratio",
        scale: PERCENT,
        of: |gpu| gpu.utilisation_percent,
    },
    Figure {
        key: "sm_activity_percent",
        about: "Multiprocessors that worked, on average since the last look",
        metric: "gpu_tuned_gpu_sm_activity_ratio",
        scale: PERCENT,
        of: |gpu| gpu.sm_activity_percent,
    },
    Figure {
        key: "sm_occupancy_percent",
        about: "Warps that were resident, of those that could be, since the last look",
        metric: "gpu_tuned_gpu_sm_occupancy_ratio",
        scale: PERCENT,
        of: |gpu| gpu.sm_occupancy_percent,
    },
    Figure {
        key: "tensor_activity_percent",
        about: "Time in which tensor cores worked, since the last look",
        metric: "gpu_tuned_gpu_tensor_activity_ratio",
        scale: PERCENT,
        of: |gpu| gpu.tensor_activity_percent,
    },
    Figure {
        key: "dram_activity_percent",
        about: "Bandwidth of the memory that was used, since the last look",
        metric: "gpu_tuned_gpu_dram_activity_ratio",
        scale: PERCENT,
        of: |gpu| gpu.dram_activity_percent,
    },
    Figure {
        key: "memory_activity_percent",
        about: "Part of the driver's last sample period in which memory was read or written",
        metric: "gpu_tuned_gpu_memory_activity_ratio",
        scale: PERCENT,
        of: |gpu| gpu.memory_activity_percent,
    },
    Figure {
        key: "memory_used_bytes",
        about: "Memory that processes hold",
        metric: "gpu_tuned_gpu_memory_used_bytes",
        scale: 1.0,
        of: |gpu| gpu.memory_used_bytes.map(|bytes| bytes as f64),
    },
    Figure {
        key: "power_w",
        about: "Power drawn",
        metric: "gpu_tuned_gpu_power_watts",
        scale: 1.0,
        of: |gpu| gpu.power_mw.map(|milliwatts| f64::from(milliwatts) / 1e3),
    },
    Figure {
        key: "sm_clock_mhz",
        about: "Clock of the multiprocessors",
        metric: "gpu_tuned_gpu_sm_clock_hertz",
        scale: MEGAHERTZ,
        of: |gpu| gpu.sm_clock_mhz.map(f64::from),
    },
    Figure {
        key: "temperature_c",
        about: "Temperature of the chip",
        metric: "gpu_tuned_gpu_temperature_celsius",
        scale: 1.0,
        of: |gpu| gpu.temperature_c.map(f64::from),
    },
    Figure {
        key: "pcie_to_gpu_bytes_per_s",
        about: "Traffic of the PCIe link to the GPU, in bytes per second",
        metric: "gpu_tuned_gpu_pcie_to_gpu_bytes_per_second",
        scale: 1.0,
        of: |gpu| gpu.pcie_to_gpu_bytes_per_s.map(|bytes| bytes as f64),
    },
    Figure {
        key: "pcie_from_gpu_bytes_per_s",
        about: "Traffic of the PCIe link from the GPU, in bytes per second",
        metric: "gpu_tuned_gpu_pcie_from_gpu_bytes_per_second",
        scale: 1.0,
        of: |gpu| gpu.pcie_from_gpu_bytes_per_s.map(|bytes| bytes as f64),
    },
];

/// The figures of the host, and of the program that is watched.
pub static HOST_FIGURES: [Figure<HostSample>; 5] = [
    Figure {
        key: "cpu_percent",
        about: "Work of all processors, of what they could do together",
        metric: "gpu_tuned_host_cpu_ratio",
        scale: PERCENT,
        of: |host| host.cpu_percent,
    },
    Figure {
        key: "memory_used_bytes",
        about: "Memory of the host in use",
        metric: "gpu_tuned_host_memory_used_bytes",
        scale: 1.0,
        of: |host| host.memory_used_bytes.map(|bytes| bytes as f64),
    },
    Figure {
        key: "process_cpu_percent",
        about: "Work of the watched program and its children, in processors",
        metric: "gpu_tuned_process_cpu_cores",
        scale: PERCENT,
        of: |host| process(host)?.cpu_percent,
    },
    Figure {
        key: "process_memory_bytes",
        about: "Memory that the watched program and its children hold",
        metric: "gpu_tuned_process_memory_bytes",
        scale: 1.0,
        of: |host| process(host)?.memory_bytes.map(|bytes| bytes as f64),
    },
    Figure {
        key: "process_busiest_thread_percent",
        about: "Work of the watched program's busiest thread, of one processor",
        metric: "gpu_tuned_process_busiest_thread_ratio",
        scale: PERCENT,
        of: |host| process(host)?.busiest_thread_percent,
    },
];

fn process(host: &HostSample) -> Option<&ProcessSample> {
    host.process.as_ref()
}
