//! GPUs as the driver describes and samples them. Times are seconds since 1970 (UTC).

use serde::{Deserialize, Serialize};

crate::sparse! {
    /// The description of a GPU.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct Gpu {
        /// The driver's index.
        pub gpu: u32,
        /// Slot of a MIG slice in its GPU.
        pub mig_slot: Option<u32>,
        /// The driver's name of the GPU.
        pub name: Option<String>,
        /// The driver's UUID.
        pub uuid: Option<String>,
        /// The matching profile, such as `h200`.
        pub profile: Option<String>,
        /// Total memory in bytes.
        pub memory_total_bytes: Option<u64>,
        /// True if the GPU shares the host's memory.
        #[serde(skip_serializing_if = "core::ops::Not::not")]
        pub unified_memory: bool,
        /// Default power limit in milliwatts.
        pub default_power_limit_mw: Option<u32>,
        /// Highest SM clock in MHz.
        pub max_sm_clock_mhz: Option<u32>,
        /// Highest PCIe generation of GPU and slot.
        pub max_pcie_generation: Option<u32>,
        /// Most PCIe lanes of GPU and slot.
        pub max_pcie_lanes: Option<u32>,
    }

    /// A sample of a GPU. Figures that the driver does not report are `None`.
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct GpuSample {
        /// Time of the sample.
        pub at: f64,
        /// The driver's index: [`Gpu::gpu`].
        pub gpu: u32,
        /// Slot of a MIG slice in its GPU.
        pub mig_slot: Option<u32>,
        /// Part of the driver's last sample period in which a kernel ran, in percent.
        pub utilisation_percent: Option<f64>,
        /// Part of the last sample period in which memory was read or written, in percent.
        pub memory_activity_percent: Option<f64>,
        /// SMs that worked, averaged since the last sample, in percent (GPM, from Hopper on).
        pub sm_activity_percent: Option<f64>,
        /// Resident warps over the most that can be resident, in percent (GPM).
        pub sm_occupancy_percent: Option<f64>,
        /// Time in which tensor cores worked, in percent (GPM).
        pub tensor_activity_percent: Option<f64>,
        /// Used memory bandwidth in percent (GPM).
        pub dram_activity_percent: Option<f64>,
        /// Memory in use by processes, in bytes.
        pub memory_used_bytes: Option<u64>,
        /// Power draw in milliwatts.
        pub power_mw: Option<u32>,
        /// Power limit in force, in milliwatts.
        pub power_limit_mw: Option<u32>,
        /// SM clock in MHz.
        pub sm_clock_mhz: Option<u32>,
        /// Memory clock in MHz.
        pub memory_clock_mhz: Option<u32>,
        /// Throttle reasons.
        pub throttle: Vec<Throttle>,
        /// Temperature of the chip in degrees Celsius.
        pub temperature_c: Option<u32>,
        /// Present PCIe generation; idle links slow down.
        pub pcie_generation: Option<u32>,
        /// Present PCIe lanes.
        pub pcie_lanes: Option<u32>,
        /// Bytes per second from the host to the GPU.
        pub pcie_to_gpu_bytes_per_s: Option<u64>,
        /// Bytes per second from the GPU to the host.
        pub pcie_from_gpu_bytes_per_s: Option<u64>,
        /// Compute processes on the GPU.
        pub processes: Option<Vec<GpuProcess>>,
        /// Reason why there are no figures.
        pub trouble: Option<String>,
    }

    /// A process on a GPU.
    #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct GpuProcess {
        /// Process ID in the driver's view: in a container, that of the host.
        pub pid: u32,
        /// Name of the program, where it is known.
        pub name: Option<String>,
        /// GPU memory of the process, in bytes.
        pub memory_bytes: Option<u64>,
    }
}

/// A reason for lowered clocks. Idleness and clocks that an application requested are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Throttle {
    /// The power limit, by software.
    PowerCap,
    /// The board's hardware slows down because power fails.
    PowerBrake,
    /// The driver's temperature limit.
    ThermalSoftware,
    /// The hardware's temperature limit.
    ThermalHardware,
    /// Hardware slowdown of an unspecified kind.
    Hardware,
    /// GPUs with synchronized clocks.
    SyncBoost,
    /// A reason of a newer version.
    #[serde(other)]
    Unknown,
}

impl Gpu {
    /// Creates a description with the driver's index alone.
    pub fn new(gpu: u32) -> Self {
        Self { gpu, ..Self::default() }
    }
}

impl GpuSample {
    /// Creates a sample without figures.
    pub fn new(at: f64, gpu: u32) -> Self {
        Self { at, gpu, ..Self::default() }
    }
}

impl GpuProcess {
    /// Creates a process with its ID alone.
    pub fn new(pid: u32) -> Self {
        Self { pid, ..Self::default() }
    }
}
