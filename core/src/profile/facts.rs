//! Facts about a device, from its profile and a reading.

use super::{Peak, Profile};
use crate::device::{ComputeCapability, DeviceFacts, DeviceKind, GpuReading, Rates};
use crate::{Bytes, Provenance};

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
}

/// Returns true for fp16 tensor cores. Compute capability 7.5 also covers GPUs without tensor cores, such as the GTX 16
/// series: there a profile with a tensor peak decides.
fn has_f16(capability: ComputeCapability, profile: Option<&Profile>) -> bool {
    let has_peak = profile.is_some_and(|profile| profile.peaks.fp16.is_some());
    capability.has_tensor_f16() && (has_peak || capability != ComputeCapability::new(7, 5))
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
