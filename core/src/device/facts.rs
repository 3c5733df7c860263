use serde::{Deserialize, Serialize};

use super::{ComputeCapability, GpuReading, Rates};
use crate::profile::{Peak, Profile};
use crate::{Bytes, Precision, Provenance};

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
    /// All memory of the device.
    pub memory_total: Bytes,
    /// Memory available to a new process.
    pub memory_available: Bytes,
    /// Source of the memory figures: the device or a profile.
    pub memory_provenance: Provenance,
    /// Memory allocated by opening the device, before the first tensor.
    pub context: Bytes,
    /// Streaming multiprocessors. 0 for a CPU; for an unknown GPU the largest count among shipped profiles.
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
    /// Host cores available to prepare batches; `None` at compile time.
    pub host_cores: Option<u64>,
}

/// The kind of device that trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A CUDA GPU.
    Gpu,
    /// The host's processor.
    Cpu,
}

/// SM count assumed for an unknown GPU: the largest of the shipped profiles (an RTX PRO 6000 Blackwell).
const WIDEST: u32 = 188;

/// Size of a CUDA context before the first kernel. Measured: 537 MiB on an H200 with 132 SMs, 107 MiB on another GPU
/// with 34.
fn context(sm_count: u32) -> Bytes {
    Bytes::from_mib(150 + 3 * u64::from(sm_count))
}

impl DeviceFacts {
    /// Facts from a profile alone, for a machine that was not probed.
    pub fn nominal(profile: &Profile) -> Self {
        let usable = profile.memory.usable();
        let sm_count = profile.compute.sm_count.unwrap_or(WIDEST);
        Self {
            name: profile.id.to_string(),
            profile: Some(profile.id.to_string()),
            kind: DeviceKind::Gpu,
            memory_total: usable,
            memory_available: usable,
            memory_provenance: Provenance::Derived,
            context: context(sm_count),
            sm_count,
            has_tf32: profile.compute_capability.has_tf32(),
            has_bf16: profile.compute_capability.has_tensor_bf16(),
            has_f16: has_f16(profile.compute_capability, Some(profile)),
            fp32_tflops: profile.peaks.fp32.as_ref().map(|peak: &Peak| peak.tflops),
            bandwidth_gb_s: profile.memory.bandwidth_gb_s,
            rates: Rates::from_profile(profile),
            host_cores: None,
        }
    }

    /// Facts of a probed GPU, completed from a matching profile. Memory and SM count come from the reading, because a
    /// slice or a modified board differs from its profile.
    ///
    /// `None` if neither the driver nor a profile gives the GPU's memory. A profile gives no memory for a slice or a
    /// virtual share.
    pub fn from_reading(reading: &GpuReading, profile: Option<&Profile>, host_cores: Option<u64>) -> Option<Self> {
        let nominal = profile.map(Self::nominal);
        let whole = nominal.as_ref().filter(|_| !reading.is_mig_slice() && !reading.is_vgpu());
        let total = reading.memory_total.or(whole.map(|facts| facts.memory_total))?;
        let capability =
            reading.compute_capability.or(profile.map(|profile| profile.compute_capability)).unwrap_or_default();
        let share = share_of_profile(reading, profile);
        let usable = total - reading.memory_reserved.unwrap_or_default();
        let sm_count = nonzero(reading.sm_count).or(nominal.as_ref().map(|facts| facts.sm_count)).unwrap_or(WIDEST);
        let by_units = fp32_from_units(reading, capability);
        Some(Self {
            name: reading.name.clone().unwrap_or_else(|| format!("GPU {}", reading.index)),
            profile: profile.map(|profile| profile.id.to_string()),
            kind: DeviceKind::Gpu,
            memory_total: total,
            memory_available: reading.memory_free.unwrap_or(usable).min(usable),
            memory_provenance: if reading.memory_free.is_some() { Provenance::Measured } else { Provenance::Derived },
            context: context(sm_count),
            sm_count,
            has_tf32: capability.has_tf32(),
            has_bf16: capability.has_tensor_bf16(),
            has_f16: has_f16(capability, profile),
            fp32_tflops: nominal.as_ref().and_then(|facts| Some(facts.fp32_tflops? * share)).or(by_units),
            rates: match &nominal {
                Some(facts) => facts.rates.scaled(share),
                None => Rates::estimate(by_units, capability, is_geforce(reading)),
            },
            bandwidth_gb_s: nominal
                .and_then(|facts| Some(facts.bandwidth_gb_s? * share))
                .or_else(|| bandwidth_from_bus(reading)),
            host_cores,
        })
    }

    /// Facts of a host without a GPU: `memory_available` bytes and `cores` for training.
    pub fn cpu(memory_total: Bytes, memory_available: Bytes, cores: u64) -> Self {
        Self {
            name: format!("CPU ({cores} cores)"),
            profile: None,
            kind: DeviceKind::Cpu,
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
            host_cores: Some(cores),
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
            host_cores: least(a.host_cores, b.host_cores),
        })
    }
}

/// Returns true for fp16 tensor cores. Compute capability 7.5 also covers GPUs without tensor cores, such as the GTX 16
/// series: there a profile with a tensor peak decides.
fn has_f16(capability: ComputeCapability, profile: Option<&Profile>) -> bool {
    let has_peak = profile.is_some_and(|profile| profile.peaks.fp16.is_some());
    capability.has_tensor_f16() && (has_peak || capability != ComputeCapability::new(7, 5))
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

fn least<T: PartialOrd>(a: Option<T>, b: Option<T>) -> Option<T> {
    let (a, b) = (a?, b?);
    Some(if b < a { b } else { a })
}

/// The slice's share of the whole GPU's SMs; 1 if either count is unavailable.
fn share_of_profile(reading: &GpuReading, profile: Option<&Profile>) -> f64 {
    let whole = profile.and_then(|profile| profile.compute.sm_count);
    match (nonzero(reading.sm_count), whole) {
        (Some(slice), Some(whole)) if whole > 0 => (f64::from(slice) / f64::from(whole)).min(1.0),
        _ => 1.0,
    }
}

/// Returns true for a GeForce, whose tensor cores run at half rate with fp32 accumulation.
fn is_geforce(reading: &GpuReading) -> bool {
    reading.name.as_deref().is_some_and(|name| name.contains("GeForce"))
}

/// SMs x lanes x 2 operations x clock, as data sheets count.
fn fp32_from_units(reading: &GpuReading, capability: ComputeCapability) -> Option<f64> {
    let lanes = f64::from(nonzero(reading.sm_count)?) * f64::from(capability.cores_per_sm()?);
    Some(lanes * 2.0 * f64::from(nonzero(reading.max_sm_clock_mhz)?) / 1e6)
}

/// Two transfers a clock over the width of the bus (NVML reports half of the effective memory clock).
fn bandwidth_from_bus(reading: &GpuReading) -> Option<f64> {
    let (clock_mhz, bus_bits) = (nonzero(reading.max_memory_clock_mhz)?, nonzero(reading.memory_bus_bits)?);
    Some(2.0 * f64::from(clock_mhz) * f64::from(bus_bits) / 8.0 / 1e3)
}

/// Drops zeros, which drivers report for unavailable figures.
fn nonzero(figure: Option<u32>) -> Option<u32> {
    figure.filter(|figure| *figure != 0)
}
