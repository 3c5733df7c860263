//! GPUs as the driver describes and samples them. Times are seconds since 1970 (UTC).

use std::ops::RangeInclusive;

use serde::{Deserialize, Serialize};

use crate::profile::{Board, ProfileTable};

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
        /// Highest memory clock in MHz.
        pub max_memory_clock_mhz: Option<u32>,
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
        /// Performance state: 0 is the highest, CUDA programs run in 0 to 3, and an idle GPU is in 8 or more.
        pub performance_state: Option<u32>,
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
    #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
    #[serde(default)]
    #[non_exhaustive]
    pub struct GpuProcess {
        /// Process ID in the driver's view: in a container, that of the host.
        pub pid: u32,
        /// Name of the program, where it is known.
        pub name: Option<String>,
        /// Name of the user, or the number of one without a name.
        pub user: Option<String>,
        /// CPU time since the last sample, in percent of one core.
        pub cpu_percent: Option<f64>,
        /// The command line. It may hold secrets, and is in no recording.
        #[serde(skip)]
        pub command: Option<String>,
        /// GPU memory of the process, in bytes.
        pub memory_bytes: Option<u64>,
    }
}

/// A reason for lowered clocks. Idleness is none.
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
    /// Clocks that an administrator or an application set: locked, application or display clocks.
    ClockSetting,
    /// A reason of a newer version.
    #[serde(other)]
    Unknown,
}

/// Gigabytes per second of a PCIe lane of generations 1 to 6, by the specification.
const LANE_GB_S: [f64; 6] = [0.25, 0.5, 0.985, 1.969, 3.938, 7.563];
/// The fastest link where the driver and the profile report none: generation 6 with 16 lanes.
const FASTEST_LINK: (u32, u32) = (6, 16);
/// Measured traffic over the link's bandwidth, at most: the driver counts for 20 ms.
const LINK_TOLERANCE: f64 = 1.25;
/// Power limit of the strongest board in watts: a B300.
const STRONGEST_BOARD_W: f64 = 1400.0;
/// Power of a board over its limit, at most: boards exceed the limit for milliseconds.
const POWER_PEAK: f64 = 2.0;
/// A clock over the highest one, at most: offsets raise clocks beyond the reported limit.
const CLOCK_PEAK: f64 = 1.5;
/// Clocks in MHz. Drivers report zero for an unavailable figure.
const CLOCKS_MHZ: RangeInclusive<u32> = 1..=20_000;
/// PCIe generations. Newer ones than those of [`pcie_gb_s`] are possible.
const GENERATIONS: RangeInclusive<u32> = 1..=16;
/// PCIe lanes.
const LANES: RangeInclusive<u32> = 1..=32;
/// Temperature in degrees Celsius that no working chip reaches.
const HOTTEST_C: u32 = 150;

/// Gigabytes per second of a PCIe link in one direction; `None` for an unknown generation.
pub fn pcie_gb_s(generation: u32, lanes: u32) -> Option<f64> {
    let lane = LANE_GB_S.get(generation.checked_sub(1)? as usize)?;
    Some(lane * f64::from(lanes))
}

/// Returns true for a power limit that a board may have, in milliwatts.
pub fn is_power_limit(milliwatts: &u32) -> bool {
    *milliwatts > 0 && f64::from(*milliwatts) <= POWER_PEAK * STRONGEST_BOARD_W * 1e3
}

fn within(figure: Option<u32>, range: RangeInclusive<u32>) -> Option<u32> {
    figure.filter(|figure| range.contains(figure))
}

/// A part in percent. Counters that are averaged exceed 100 by their error.
fn percent(figure: f64) -> Option<f64> {
    (0.0..=110.0).contains(&figure).then(|| figure.min(100.0))
}

impl Gpu {
    /// Creates a description with the driver's index alone.
    pub fn new(gpu: u32) -> Self {
        Self { gpu, ..Self::default() }
    }

    /// Removes figures that no GPU has. Drivers report counters that ran over, and values of failed reads.
    #[must_use]
    pub fn without_impossible(self) -> Self {
        Self {
            default_power_limit_mw: self.default_power_limit_mw.filter(is_power_limit),
            max_sm_clock_mhz: within(self.max_sm_clock_mhz, CLOCKS_MHZ),
            max_memory_clock_mhz: within(self.max_memory_clock_mhz, CLOCKS_MHZ),
            max_pcie_generation: within(self.max_pcie_generation, GENERATIONS),
            max_pcie_lanes: within(self.max_pcie_lanes, LANES),
            ..self
        }
    }

    fn board(&self) -> Option<&'static Board> {
        ProfileTable::shipped_profile(self.profile.as_deref()?).map(|profile| &profile.board)
    }

    /// Highest power that a reading may have, in milliwatts, with this limit in force.
    fn highest_power_mw(&self, limit_mw: Option<u32>) -> f64 {
        let published = self.board().and_then(|board| board.tdp_w).map(|watts| watts * 1e3);
        let limits = [limit_mw, self.default_power_limit_mw].map(|limit| limit.map(f64::from));
        let limit = limits.into_iter().chain([published]).flatten().reduce(f64::max);
        POWER_PEAK * limit.unwrap_or(STRONGEST_BOARD_W * 1e3)
    }

    /// Highest traffic of the PCIe link in one direction, in bytes per second. `present` is its generation and lanes.
    fn highest_traffic(&self, present: [Option<u32>; 2]) -> f64 {
        let board = self.board();
        let most = |reported: [Option<u32>; 2], published: Option<u32>, fastest: u32| {
            reported.into_iter().flatten().max().or(published).unwrap_or(fastest)
        };
        let [generation, lanes] = present;
        let generation =
            most([self.max_pcie_generation, generation], board.and_then(|board| board.pcie_gen), FASTEST_LINK.0);
        let lanes = most([self.max_pcie_lanes, lanes], board.and_then(|board| board.pcie_lanes), FASTEST_LINK.1);
        LINK_TOLERANCE * pcie_gb_s(generation, lanes).map_or(f64::INFINITY, |gb_s| gb_s * 1e9)
    }
}

impl GpuSample {
    /// Creates a sample without figures.
    pub fn new(at: f64, gpu: u32) -> Self {
        Self { at, gpu, ..Self::default() }
    }

    /// Removes figures that this GPU cannot have: beyond its link, its power limit, its clocks or its memory.
    #[must_use]
    pub fn without_impossible(self, gpu: &Gpu) -> Self {
        let clock = |clock: Option<u32>, most: Option<u32>| {
            let most = most.map_or(f64::INFINITY, |most| CLOCK_PEAK * f64::from(most));
            within(clock, CLOCKS_MHZ).filter(|clock| f64::from(*clock) <= most)
        };
        let is_power =
            |milliwatts: &u32, limit| *milliwatts > 0 && f64::from(*milliwatts) <= gpu.highest_power_mw(limit);
        let power_limit_mw = self.power_limit_mw.filter(is_power_limit).filter(|limit| is_power(limit, None));
        let link = [within(self.pcie_generation, GENERATIONS), within(self.pcie_lanes, LANES)];
        let most = gpu.highest_traffic(link);
        let is_traffic = |bytes_per_s: &u64| *bytes_per_s as f64 <= most;
        let fits = |bytes: &u64| gpu.memory_total_bytes.is_none_or(|total| *bytes <= total);
        let mut processes = self.processes;
        for process in processes.iter_mut().flatten() {
            process.memory_bytes = process.memory_bytes.filter(fits);
        }
        Self {
            utilisation_percent: self.utilisation_percent.and_then(percent),
            memory_activity_percent: self.memory_activity_percent.and_then(percent),
            sm_activity_percent: self.sm_activity_percent.and_then(percent),
            sm_occupancy_percent: self.sm_occupancy_percent.and_then(percent),
            tensor_activity_percent: self.tensor_activity_percent.and_then(percent),
            dram_activity_percent: self.dram_activity_percent.and_then(percent),
            memory_used_bytes: self.memory_used_bytes.filter(fits),
            power_mw: self.power_mw.filter(|milliwatts| is_power(milliwatts, power_limit_mw)),
            power_limit_mw,
            sm_clock_mhz: clock(self.sm_clock_mhz, gpu.max_sm_clock_mhz),
            memory_clock_mhz: clock(self.memory_clock_mhz, gpu.max_memory_clock_mhz),
            performance_state: self.performance_state.filter(|state| *state < 16),
            temperature_c: self.temperature_c.filter(|celsius| *celsius <= HOTTEST_C),
            pcie_generation: link[0],
            pcie_lanes: link[1],
            pcie_to_gpu_bytes_per_s: self.pcie_to_gpu_bytes_per_s.filter(is_traffic),
            pcie_from_gpu_bytes_per_s: self.pcie_from_gpu_bytes_per_s.filter(is_traffic),
            processes,
            ..self
        }
    }
}

impl GpuProcess {
    /// Creates a process with its ID alone.
    pub fn new(pid: u32) -> Self {
        Self { pid, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::{Gpu, GpuSample, STRONGEST_BOARD_W, pcie_gb_s};
    use crate::profile::ProfileTable;

    /// Samples of a GPU with these watts and bytes per second, without what is impossible.
    fn kept(gpu: &Gpu, watts: u32, bytes_per_s: u64) -> (bool, bool) {
        let mut sample = GpuSample::new(0.0, 0);
        (sample.power_mw, sample.pcie_to_gpu_bytes_per_s) = (Some(watts * 1000), Some(bytes_per_s));
        let sample = sample.without_impossible(gpu);
        (sample.power_mw.is_some(), sample.pcie_to_gpu_bytes_per_s.is_some())
    }

    #[test]
    fn counters_that_ran_over_are_removed_and_peaks_are_kept() {
        // A counter of 32 bits in kB/s that ran over.
        let over = u64::from(u32::MAX) * 1000;
        let unknown = Gpu::default();
        assert_eq!(kept(&unknown, 3700, over), (false, false));
        assert_eq!(kept(&unknown, 0, 0), (false, true));
        assert_eq!(kept(&unknown, 1400, 63_000_000_000), (true, true));
        let linked = Gpu { max_pcie_generation: Some(4), max_pcie_lanes: Some(16), ..Gpu::default() };
        let limited = Gpu { default_power_limit_mw: Some(450_000), ..linked };
        assert_eq!(kept(&limited, 600, 31_500_000_000), (true, true));
        assert_eq!(kept(&limited, 1000, 63_000_000_000), (false, false));
        // By the profile: a card of 70 W with 16 lanes of generation 3.
        let t4 = Gpu { profile: Some("t4".to_owned()), ..Gpu::default() };
        assert_eq!(kept(&t4, 100, 15_700_000_000), (true, true));
        assert_eq!(kept(&t4, 200, 31_500_000_000), (false, false));
    }

    #[test]
    fn figures_of_the_gpu_bound_those_of_its_samples() {
        let gpu = Gpu {
            max_sm_clock_mhz: Some(3105),
            max_memory_clock_mhz: Some(10_501),
            memory_total_bytes: Some(24 << 30),
            ..Gpu::default()
        };
        let sample = |clock, memory_clock, gib: u64, celsius| GpuSample {
            sm_clock_mhz: Some(clock),
            memory_clock_mhz: Some(memory_clock),
            memory_used_bytes: Some(gib << 30),
            temperature_c: Some(celsius),
            ..GpuSample::default()
        };
        // With an offset on the clocks.
        let possible = sample(3200, 11_500, 24, 105);
        assert_eq!(possible.clone().without_impossible(&gpu), possible);
        assert_eq!(sample(6000, 19_000, 25, 255).without_impossible(&gpu), GpuSample::default());
        assert_eq!(sample(0, 0, 0, 0).without_impossible(&gpu).sm_clock_mhz, None);
        let impossible =
            Gpu { max_sm_clock_mhz: Some(u32::MAX), default_power_limit_mw: Some(u32::MAX), ..gpu.clone() };
        assert_eq!(impossible.without_impossible(), Gpu { max_sm_clock_mhz: None, ..gpu });
    }

    #[test]
    fn bounds_are_those_of_specifications_and_profiles() {
        // 16 GT/s with 128 of 130 bits, and 8 bits a byte.
        assert!((pcie_gb_s(4, 16).expect("a generation") - 16.0 * 16.0 * 128.0 / 130.0 / 8.0).abs() < 0.01);
        assert_eq!([pcie_gb_s(0, 16), pcie_gb_s(9, 16)], [None; 2]);
        let strongest = ProfileTable::builtin().iter().filter_map(|profile| profile.board.tdp_w).reduce(f64::max);
        assert_eq!(strongest, Some(STRONGEST_BOARD_W));
    }
}
