//! GPUs as the driver describes and samples them. Times are seconds since 1970 (UTC).

use serde::{Deserialize, Serialize};

/// A GPU that is watched: what does not change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Gpu {
    /// Its number in this recording: the driver's index.
    pub gpu: u32,
    /// The slot of a MIG slice in its GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_slot: Option<u32>,
    /// The driver's name for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The driver's identifier.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The profile it was recognised as, such as `h200`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// All of its memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_total_bytes: Option<u64>,
    /// The power limit it was sold with, in milliwatts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_power_limit_mw: Option<u32>,
    /// The highest clock of its multiprocessors in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_sm_clock_mhz: Option<u32>,
    /// The PCIe generation that GPU and slot could have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pcie_generation: Option<u32>,
    /// The PCIe lanes that GPU and slot could have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_pcie_lanes: Option<u32>,
}

/// A GPU at one moment. A figure that the driver does not have is `None`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GpuSample {
    /// When.
    pub at: f64,
    /// Which: [`Gpu::gpu`].
    pub gpu: u32,
    /// The slot of a MIG slice in its GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mig_slot: Option<u32>,
    /// Part of the driver's last sample period in which a kernel ran, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub utilisation_percent: Option<f64>,
    /// Part of the last sample period in which memory was read or written, in percent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_activity_percent: Option<f64>,
    /// Multiprocessors that worked, on average since the last look, in percent (GPM, from Hopper on).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_activity_percent: Option<f64>,
    /// Warps that were resident, of those that could be, in percent (GPM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_occupancy_percent: Option<f64>,
    /// Time in which tensor cores worked, in percent (GPM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tensor_activity_percent: Option<f64>,
    /// Bandwidth of the memory that was used, in percent (GPM).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dram_activity_percent: Option<f64>,
    /// Memory that processes hold, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// Power drawn, in milliwatts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_mw: Option<u32>,
    /// The power limit in force, in milliwatts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_limit_mw: Option<u32>,
    /// Clock of the multiprocessors in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sm_clock_mhz: Option<u32>,
    /// Clock of the memory in MHz.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_clock_mhz: Option<u32>,
    /// What holds the clocks down.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub throttle: Vec<Throttle>,
    /// Temperature of the chip in degrees Celsius.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature_c: Option<u32>,
    /// PCIe generation of the moment; idle links are slowed down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_generation: Option<u32>,
    /// PCIe lanes of the moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_lanes: Option<u32>,
    /// Bytes per second from the host to the GPU.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_to_gpu_bytes_per_s: Option<u64>,
    /// Bytes per second from the GPU to the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pcie_from_gpu_bytes_per_s: Option<u64>,
    /// Compute processes on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Vec<GpuProcess>>,
    /// Why there are no figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trouble: Option<String>,
}

/// A process on a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct GpuProcess {
    /// Its number, as the driver sees it: in a container, that of the host.
    pub pid: u32,
    /// Its program, where the host can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Memory of the GPU that it holds, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

/// What holds clocks down; idleness and clocks that an application asked for are not among it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Throttle {
    /// The power limit, by software.
    PowerCap,
    /// The board's hardware says that power fails, or slows down for it.
    PowerBrake,
    /// The driver's temperature limit.
    ThermalSoftware,
    /// The hardware's temperature limit.
    ThermalHardware,
    /// Hardware slowdown of a kind that is not told apart.
    Hardware,
    /// GPUs that keep clocks together.
    SyncBoost,
    /// A newer version has more.
    #[serde(other)]
    Unknown,
}

impl Gpu {
    /// The GPU with this number, of which nothing else is known.
    pub fn new(gpu: u32) -> Self {
        Self { gpu, ..Self::default() }
    }
}

impl GpuSample {
    /// A look at a GPU, at a moment, without figures.
    pub fn new(at: f64, gpu: u32) -> Self {
        Self { at, gpu, ..Self::default() }
    }
}

impl GpuProcess {
    /// A process of which nothing else is known.
    pub fn new(pid: u32) -> Self {
        Self { pid, ..Self::default() }
    }
}
