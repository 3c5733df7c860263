//! Devices: facts for the planner ([`DeviceFacts`]), made from readings ([`GpuReading`]) and profiles.

mod identity;
mod reading;

use core::fmt;

use serde::{Deserialize, Serialize};

pub use crate::measured::DeviceKind;
use crate::{Bytes, Precision, Provenance};
pub use identity::{ComputeCapability, MigSize, PciAddress, PciId, ProductName, begins_like, unbranded};
pub(crate) use identity::{ProductLine, refusal_of_name};
pub use reading::{CudaDevice, GpuIdentity, GpuReading, MigSlice, Virtualization};

/// Facts about a device that the planner uses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DeviceFacts {
    /// Name of the device in reports.
    pub name: String,
    /// The matching profile, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// GPU or CPU.
    pub kind: DeviceKind,
    /// Memory of its own, or the host's.
    #[serde(default)]
    pub memory_kind: MemoryKind,
    /// The reason why Burn cannot train on this GPU; `None` if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// All memory of the device.
    pub memory_total: Bytes,
    /// Memory available to a new process.
    pub memory_available: Bytes,
    /// Source of the memory figures: the device or a profile.
    pub memory_provenance: Provenance,
    /// Memory allocated by opening the device, before the first tensor.
    pub context: Bytes,
    /// Streaming multiprocessors. 0 for a CPU; an estimate is the largest count of such GPUs.
    pub sm_count: u32,
    /// True if fp32 products may run on TF32 tensor cores.
    pub has_tf32: bool,
    /// True if there are bf16 tensor cores.
    pub has_bf16: bool,
    /// True if there are fp16 tensor cores.
    #[serde(default)]
    pub has_f16: bool,
    /// Peak fp32 rate of the ordinary units, 10^12 operations per second.
    pub fp32_tflops: Option<f64>,
    /// Peak memory bandwidth, 10^9 bytes per second.
    pub bandwidth_gb_s: Option<f64>,
    /// Rates that large matrix products reach. Unavailable for a CPU.
    #[serde(default)]
    pub rates: Rates,
    /// Power limit; `None` if neither the driver nor a profile has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerLimit>,
    /// Figures that are estimates, because neither the driver nor a profile reports them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub estimated: Vec<EstimatedFigure>,
    /// Host cores available to prepare batches; `None` at compile time.
    pub host_cores: Option<u64>,
}

/// Where a device's memory is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryKind {
    /// Memory of its own.
    #[default]
    Dedicated,
    /// The host's memory, shared by CPU and GPU (Jetson, GB10).
    Unified,
}

/// A figure of a GPU that may be an estimate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EstimatedFigure {
    /// SM count.
    SmCount,
    /// Peak fp32 rate, and the rates of matrix products that follow from it.
    Fp32,
    /// Memory bandwidth.
    Bandwidth,
    /// Peaks of the tensor cores in a profile.
    Tensor,
}

impl fmt::Display for EstimatedFigure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::SmCount => "SM count",
            Self::Fp32 => "fp32 peak",
            Self::Bandwidth => "bandwidth",
            Self::Tensor => "tensor peaks",
        })
    }
}

/// Smallest headroom of unified memory, as a fraction of what is available. Loader workers, the page cache and other
/// programs of the host allocate from the same memory while training runs.
const UNIFIED_HEADROOM: f64 = 0.2;

impl DeviceFacts {
    /// Facts of a host without a GPU: `memory_available` bytes and `cores` for training.
    pub fn cpu(memory_total: Bytes, memory_available: Bytes, cores: u64) -> Self {
        Self {
            name: format!("CPU ({cores} cores)"),
            profile: None,
            kind: DeviceKind::Cpu,
            memory_kind: MemoryKind::Dedicated,
            refusal: None,
            memory_total,
            memory_available,
            memory_provenance: Provenance::Measured,
            context: Bytes::from_mib(64),
            sm_count: 0,
            has_tf32: false,
            has_bf16: false,
            has_f16: false,
            // An AVX2 core: 8 lanes, 2 operations, 2 units at 3 GHz.
            fp32_tflops: Some(cores as f64 * 0.096),
            bandwidth_gb_s: Some(20.0),
            rates: Rates::default(),
            power: None,
            estimated: Vec::new(),
            host_cores: Some(cores),
        }
    }

    /// Memory headroom as a fraction of the available memory, 0 to 1, for a requested one. Unified memory has a minimum of
    /// its own.
    pub const fn headroom_share(&self, requested: f64) -> f64 {
        match self.memory_kind {
            MemoryKind::Dedicated => requested,
            MemoryKind::Unified => requested.max(UNIFIED_HEADROOM),
        }
    }

    /// Properties of the device that a report of a plan must mention, one sentence each.
    pub fn remarks(&self) -> Vec<String> {
        let unified = (self.memory_kind == MemoryKind::Unified).then(|| {
            let percent = UNIFIED_HEADROOM * 100.0;
            format!("unified memory: the GPU allocates from the host's, of which at least {percent:.0}% stays free")
        });
        let figures: Vec<String> = self.estimated.iter().map(EstimatedFigure::to_string).collect();
        let estimated = (!figures.is_empty()).then(|| {
            let figures = figures.join(", ");
            format!("estimates by compute capability and memory, as neither driver nor profile has them: {figures}")
        });
        unified.into_iter().chain(estimated).collect()
    }

    /// Returns true if steps in this precision are no slower than in fp32. Without tensor cores a GPU computes 16-bit
    /// products slower, at 1/64 of the fp32 rate on compute capability 6.1. A CPU computes fp16 in fp32.
    pub const fn has_units_for(&self, precision: Precision) -> bool {
        match precision {
            Precision::F32 => true,
            Precision::MixedF16 => self.has_f16 || matches!(self.kind, DeviceKind::Cpu),
            Precision::MixedBf16 | Precision::Bf16Params => self.has_bf16,
        }
    }

    /// Mixed precision of the tensor cores: bf16, else fp16; `None` without 16-bit tensor cores.
    pub const fn mixed_precision(&self) -> Option<Precision> {
        match (self.has_bf16, self.has_f16) {
            (true, _) => Some(Precision::MixedBf16),
            (false, true) => Some(Precision::MixedF16),
            (false, false) => None,
        }
    }

    /// Facts that all of these devices satisfy: the lowest memory and rates, the common capabilities.
    pub fn common<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<Self> {
        let all: Vec<&Self> = all.into_iter().collect();
        let name = names(&all);
        all.into_iter().cloned().reduce(|a, b| Self {
            name: name.clone(),
            profile: if a.profile == b.profile { a.profile } else { None },
            kind: if a.kind == b.kind { a.kind } else { DeviceKind::Cpu },
            memory_kind: if a.memory_kind == b.memory_kind { a.memory_kind } else { MemoryKind::Unified },
            refusal: a.refusal.or(b.refusal),
            memory_total: a.memory_total.min(b.memory_total),
            memory_available: a.memory_available.min(b.memory_available),
            memory_provenance: a.memory_provenance.max(b.memory_provenance),
            context: a.context.max(b.context),
            sm_count: a.sm_count.max(b.sm_count),
            has_tf32: a.has_tf32 && b.has_tf32,
            has_bf16: a.has_bf16 && b.has_bf16,
            has_f16: a.has_f16 && b.has_f16,
            fp32_tflops: least(a.fp32_tflops, b.fp32_tflops),
            bandwidth_gb_s: least(a.bandwidth_gb_s, b.bandwidth_gb_s),
            rates: a.rates.lowest(b.rates),
            power: a.power.filter(|power| b.power == Some(*power)),
            estimated: union(a.estimated, &b.estimated),
            host_cores: least(a.host_cores, b.host_cores),
        })
    }
}

/// Lists each name once, in order of first appearance, with its count: `2 x NVIDIA L4 + NVIDIA T4`.
fn names(all: &[&DeviceFacts]) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for facts in all {
        match counted.iter_mut().find(|(name, _)| *name == facts.name) {
            Some((_, count)) => *count += 1,
            None => counted.push((&facts.name, 1)),
        }
    }
    let named = |(name, count): (&str, usize)| if count == 1 { name.to_owned() } else { format!("{count} x {name}") };
    counted.into_iter().map(named).collect::<Vec<_>>().join(" + ")
}

fn union(mut figures: Vec<EstimatedFigure>, others: &[EstimatedFigure]) -> Vec<EstimatedFigure> {
    figures.extend(others);
    figures.sort_unstable();
    figures.dedup();
    figures
}

fn least<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
    let (a, b) = (a?, b?);
    Some(if b < a { b } else { a })
}

/// Rates that large matrix products reach, in 10^12 operations per second: a peak times the fraction of it that published
/// tests reach.
///
/// A format without tensor cores has the fp32 rate. `None` is an unavailable figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// fp32 on the ordinary units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp32: Option<f64>,
    /// fp32 where TF32 is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tf32: Option<f64>,
    /// fp16, accumulated in fp32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp16: Option<f64>,
    /// bf16, accumulated in fp32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bf16: Option<f64>,
}

impl Rates {
    /// Rates of a share of the GPU, 0 to 1.
    pub(crate) fn scaled(self, share: f64) -> Self {
        let scaled = |rate: Option<f64>| rate.map(|rate| rate * share);
        Self { fp32: scaled(self.fp32), tf32: scaled(self.tf32), fp16: scaled(self.fp16), bf16: scaled(self.bf16) }
    }

    /// The lower rate in each format; `None` where either is unavailable.
    fn lowest(self, other: Self) -> Self {
        Self {
            fp32: least(self.fp32, other.fp32),
            tf32: least(self.tf32, other.tf32),
            fp16: least(self.fp16, other.fp16),
            bf16: least(self.bf16, other.bf16),
        }
    }
}

/// Power limit of a board, and the part of the board that a process can use.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerLimit {
    /// Limit of the whole board in watts: the enforced one, else that of the data sheet.
    pub board_w: f64,
    /// Part of the board, as a fraction of its SMs: of a MIG slice, and of a client of the Multi-Process Service (MPS).
    pub share: f64,
}

impl PowerLimit {
    /// Limit of the part in watts.
    pub fn watts(self) -> f64 {
        self.board_w * self.share
    }

    /// The limit in force of a GPU, `part` of which the reading describes, else the limit `published` in watts.
    pub(crate) fn from_reading(reading: &GpuReading, part: f64, published: Option<f64>) -> Option<Self> {
        let limit = reading.power_limit_mw.or(reading.default_power_limit_mw);
        let board_w = limit.map(|milliwatts| f64::from(milliwatts) / 1e3).or(published)?;
        let allowed = f64::from(reading.compute_percent.unwrap_or(100).min(100)) / 100.0;
        Some(Self { board_w, share: part * allowed })
    }
}

impl fmt::Display for PowerLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { board_w, share } = self;
        if *share < 1.0 {
            write!(f, "{:.0} W, {:.0}% of the board's {board_w:.0} W", self.watts(), share * 100.0)
        } else {
            write!(f, "{board_w:.0} W")
        }
    }
}
