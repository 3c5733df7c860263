use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::phase::{Counted, Phase, Reason};
use crate::{Code, Expectation};

/// The answers of a driver: one scenario file.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Scenario {
    /// Driver version, such as `"570.86.15"`.
    pub driver_version: Option<String>,
    /// Major and minor, such as `[12, 8]`.
    pub cuda_driver_version: Option<[i32; 2]>,
    /// Result of `nvmlInit_v2`, if not success.
    pub init: Option<Code>,
    /// Result of counting the GPUs, if not success.
    pub count: Option<Code>,
    /// Reported number of GPUs, if it differs from the real one.
    pub counted: Option<u32>,
    /// Expected result of reading this machine; ignored by the player.
    pub expect: Option<Expectation>,
    /// The GPUs in NVML's order.
    #[serde(default)]
    pub gpu: Vec<Unit>,
}

/// A GPU or a MIG slice with its answers. Absent figures give "not supported".
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Unit {
    /// The product name.
    pub name: Option<String>,
    /// The product name as raw bytes, for names in invalid UTF-8; overrides `name`.
    pub name_bytes: Option<Vec<u8>>,
    /// `GPU-…` or `MIG-…`.
    pub uuid: Option<String>,
    /// `DOMAIN:BUS:DEVICE.FUNCTION` in hexadecimal. Without it the PCI call answers "not supported".
    pub pci_address: Option<PciPlace>,
    /// `VENDOR:DEVICE` in hexadecimal.
    pub pci_id: Option<Hex>,
    /// `VENDOR:DEVICE` of the board's maker in hexadecimal.
    pub subsystem: Option<Hex>,
    /// Major and minor, such as `[8, 9]`.
    pub compute_capability: Option<[i32; 2]>,
    /// All memory; without it both memory calls answer "not supported".
    pub memory_total_mib: Option<u64>,
    /// Memory reserved by the driver; only memory v2 reports it.
    pub memory_reserved_mib: Option<u64>,
    /// Free memory.
    pub memory_free_mib: Option<u64>,
    /// CUDA cores.
    pub cores: Option<u32>,
    /// Part of the last sample period in which a kernel ran, and in which memory was read or written, in percent.
    pub utilisation_percent: Option<[u32; 2]>,
    /// Width of the memory bus.
    pub bus_bits: Option<u32>,
    /// Highest memory clock.
    pub memory_clock_mhz: Option<u32>,
    /// Highest clock of the multiprocessors.
    pub sm_clock_mhz: Option<u32>,
    /// The power limit set by the administrator.
    pub power_limit_mw: Option<u32>,
    /// The power limit in force, everything considered.
    pub enforced_power_limit_mw: Option<u32>,
    /// The power limit that the board was shipped with.
    pub default_power_limit_mw: Option<u32>,
    /// Power drawn.
    pub power_draw_mw: Option<u32>,
    /// Clocks of the moment: of the multiprocessors and of the memory.
    pub clocks_mhz: Option<[u32; 2]>,
    /// Performance state, of which 0 is the highest.
    pub performance_state: Option<u32>,
    /// Throttle reasons.
    pub throttle: Option<Vec<Reason>>,
    /// Temperature of the chip.
    pub temperature_c: Option<u32>,
    /// Generation and lanes of the PCIe link at the moment.
    pub pcie: Option<[u32; 2]>,
    /// Generation and lanes that the PCIe link could have.
    pub pcie_max: Option<[u32; 2]>,
    /// Traffic of the PCIe link, to the GPU and from it, in kB per second.
    pub pcie_kb_s: Option<[u32; 2]>,
    /// Performance counters; absent if the GPU has none.
    pub counters: Option<Counted>,
    /// Virtualization mode.
    pub virtualization: Option<Virtualization>,
    /// Compute processes on the GPU.
    pub processes: Option<Vec<Process>>,
    /// True if MIG is enabled. Default: true with slices.
    pub mig_enabled: Option<bool>,
    /// The GPU's MIG slices.
    pub mig: Vec<Unit>,
    /// The slice's slot, where slots before it are empty; its position in the file otherwise.
    pub slot: Option<u32>,
    /// The slice's GPU instance.
    pub gpu_instance: Option<u32>,
    /// The slice's compute instance within the GPU instance.
    pub compute_instance: Option<u32>,
    /// The slice's multiprocessors.
    pub sm_count: Option<u32>,
    /// Calls that fail, each with its code.
    pub fails: BTreeMap<Call, Code>,
    /// Once this call was answered, all later ones answer "GPU is lost".
    pub lost_after: Option<Call>,
    /// Changes over time.
    pub phases: Vec<Phase>,
    /// True if the first phase follows the last.
    pub phases_repeat: bool,
}

/// A process with a compute context on a GPU.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Process {
    /// Process number; default: the calling process.
    pub pid: Option<u32>,
    /// GPU memory of the process.
    pub memory_mib: u64,
}

/// A call on a GPU, in snake case in scenarios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs, reason = "each is named after what it asks")]
pub enum Call {
    Handle,
    Name,
    Uuid,
    Pci,
    ComputeCapability,
    MemoryV1,
    MemoryV2,
    Cores,
    Utilisation,
    Bus,
    MemoryClock,
    SmClock,
    PowerLimit,
    EnforcedPowerLimit,
    DefaultPowerLimit,
    Virtualization,
    Processes,
    MigMode,
    MigCount,
    MigHandle,
    Attributes,
    GpuInstance,
    ComputeInstance,
    PowerDraw,
    Clocks,
    PerformanceState,
    Throttle,
    Temperature,
    PcieGeneration,
    PcieLanes,
    MaxPcieGeneration,
    MaxPcieLanes,
    PcieThroughput,
    CounterSupport,
    Counters,
}

/// NVML's `nvmlGpuVirtualizationMode_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
#[repr(u32)]
pub enum Virtualization {
    /// Bare metal.
    None = 0,
    /// Handed through whole.
    Passthrough = 1,
    /// A share, seen from within the virtual machine.
    Vgpu = 2,
    /// A GPU that is shared out, seen from the hypervisor.
    HostVgpu = 3,
    /// A value younger than the bindings.
    FromTheFuture = 9,
}

/// A pair of 16-bit hexadecimal numbers, such as a PCI vendor and device: `10de:2684`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct Hex(pub u16, pub u16);

impl TryFrom<String> for Hex {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let hex = |part| u16::from_str_radix(part, 16).ok();
        let pair = text.split_once(':').and_then(|(vendor, device)| Some(Self(hex(vendor)?, hex(device)?)));
        pair.ok_or_else(|| format!("`{text}` is not VENDOR:DEVICE in hexadecimal"))
    }
}

impl From<Hex> for String {
    fn from(Hex(vendor, device): Hex) -> Self {
        format!("{vendor:04x}:{device:04x}")
    }
}

/// An address on the PCI bus, written `00000000:01:00.0`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct PciPlace {
    /// Segment, bus and slot.
    pub numbers: [u32; 3],
    /// As written.
    pub text: String,
}

impl TryFrom<String> for PciPlace {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        let numbers: Vec<u32> = text.split([':', '.']).filter_map(|part| u32::from_str_radix(part, 16).ok()).collect();
        match numbers[..] {
            [domain, bus, device, _function] => Ok(Self { numbers: [domain, bus, device], text }),
            _ => Err(format!("`{text}` is not DOMAIN:BUS:DEVICE.FUNCTION in hexadecimal")),
        }
    }
}

impl From<PciPlace> for String {
    fn from(place: PciPlace) -> Self {
        place.text
    }
}

/// A scenario file that cannot be played.
#[derive(Debug)]
pub struct InvalidScenario {
    file: PathBuf,
    reason: String,
}

impl fmt::Display for InvalidScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.reason)
    }
}

impl std::error::Error for InvalidScenario {}

impl Scenario {
    /// Reads a scenario file.
    ///
    /// # Errors
    /// If the file is missing, or has an invalid key or value.
    pub fn load(file: &Path) -> Result<Self, InvalidScenario> {
        let invalid = |reason: String| InvalidScenario { file: file.to_owned(), reason };
        let text = std::fs::read_to_string(file).map_err(|error| invalid(error.to_string()))?;
        toml::from_str(&text).map_err(|error| invalid(error.to_string()))
    }

    /// Writes a scenario file, for scenarios that a test makes up.
    ///
    /// # Errors
    /// When a number is too large for TOML, or the file cannot be written.
    pub fn save(&self, file: &Path) -> Result<(), InvalidScenario> {
        let invalid = |reason: String| InvalidScenario { file: file.to_owned(), reason };
        let text = toml::to_string(self).map_err(|error| invalid(error.to_string()))?;
        std::fs::write(file, text).map_err(|error| invalid(error.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::Scenario;

    #[test]
    fn every_scenario_of_the_folder_can_be_played() {
        let files = crate::scenarios();
        assert!(files.len() >= 44, "{files:?}");
        for file in files.into_iter().chain(crate::watch_scenarios()) {
            if let Err(error) = Scenario::load(&file) {
                panic!("{error}");
            }
        }
    }

    #[test]
    fn every_scenario_says_what_is_expected() {
        for file in crate::scenarios() {
            let scenario = Scenario::load(&file).unwrap_or_else(|error| panic!("{error}"));
            assert!(scenario.expect.is_some(), "{}: it has no section `expect`", file.display());
        }
    }

    #[test]
    fn a_misspelled_key_is_refused() {
        for text in [
            "[[gpu]]\nnmae = 'x'",
            "[[gpu]]\nfails = { nmae = 'unknown' }",
            "[[gpu]]\nfails = { name = 'x' }",
            "[expect]\nmatch = 'excat'",
        ] {
            assert!(toml::from_str::<Scenario>(text).is_err(), "{text}");
        }
    }
}
