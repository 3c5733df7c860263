//! Facts about a device, from its profile and a reading.

use super::Profile;
use super::estimate::{Estimate, PLAUSIBLE_MEMORY};
use super::speed::Speed;
use crate::device::{ComputeCapability, DeviceFacts, DeviceKind, GpuReading, MemoryKind, PowerLimit, ProductLine};
use crate::{Bytes, Provenance};

/// Size of a CUDA context before the first kernel. Measured: 537 MiB on an H200 with 132 SMs, 107 MiB on another GPU
/// with 34.
fn context(sm_count: u32) -> Bytes {
    Bytes::from_mib(150 + 3 * u64::from(sm_count))
}

impl DeviceFacts {
    /// Facts from a profile alone, for a machine that was not probed.
    pub fn nominal(profile: &Profile) -> Self {
        let usable = profile.memory.usable();
        let capability = profile.compute_capability;
        let speed = Speed::from_profile(profile);
        Self {
            name: profile.id.to_string(),
            profile: Some(profile.id.to_string()),
            kind: DeviceKind::Gpu,
            memory_kind: if capability.is_integrated() { MemoryKind::Unified } else { MemoryKind::Dedicated },
            refusal: profile.compute_capability.refusal(),
            memory_total: usable,
            memory_available: usable,
            memory_provenance: Provenance::Derived,
            context: context(speed.sm_count),
            sm_count: speed.sm_count,
            has_tf32: capability.has_tf32(),
            has_bf16: capability.has_tensor_bf16(),
            has_f16: has_f16(capability, profile.names.first().map(String::as_str), Some(profile)),
            fp32_tflops: Some(speed.fp32_tflops),
            bandwidth_gb_s: Some(speed.bandwidth_gb_s),
            rates: speed.rates,
            power: profile.board.tdp_w.map(|board_w| PowerLimit { board_w, share: 1.0 }),
            estimated: speed.estimated,
            host_cores: None,
        }
    }

    /// Facts of a probed GPU, completed from a matching profile. Memory and SM count come from the reading, because a
    /// slice or a modified board differs from its profile. Figures that neither has are estimates.
    ///
    /// `None` if neither the driver nor a profile gives the GPU's memory. A profile gives no memory for a slice, a
    /// virtual share, or a GPU that shares the host's memory.
    pub fn from_reading(reading: &GpuReading, profile: Option<&Profile>, host_cores: Option<u64>) -> Option<Self> {
        let is_unified = reading.shares_memory(profile);
        let is_whole = !reading.is_mig_slice() && !reading.is_vgpu();
        let usable = profile.map(|profile| profile.memory.usable());
        let of_profile = profile.map(|profile| profile.compute_capability);
        let capability = of_profile.or(reading.known_capability()).unwrap_or_default();
        let own = usable.filter(|_| !is_unified);
        let total = plausible_total(reading, own, capability).or(own.filter(|_| is_whole))?;
        let speed = match profile {
            Some(profile) => Speed::from_profile(profile).of_share(reading, profile, total),
            None => Speed::from_reading(reading, capability, total),
        };
        let speed = speed.limited_to(reading.compute_percent.unwrap_or(100));
        let published_w = profile.and_then(|profile| profile.board.tdp_w);
        let usable = total - reading.memory_reserved.filter(|reserved| *reserved < total).unwrap_or_default();
        let bounds = [reading.memory_free, reading.memory_limit];
        Some(Self {
            name: reading.name.clone().unwrap_or_else(|| format!("GPU {}", reading.index)),
            profile: profile.map(|profile| profile.id.to_string()),
            kind: DeviceKind::Gpu,
            memory_kind: if is_unified { MemoryKind::Unified } else { MemoryKind::Dedicated },
            refusal: capability.refusal(),
            memory_total: total,
            memory_available: bounds.into_iter().flatten().fold(usable, Bytes::min),
            memory_provenance: if reading.memory_free.is_some() { Provenance::Measured } else { Provenance::Derived },
            context: context(speed.sm_count),
            sm_count: speed.sm_count,
            has_tf32: capability.has_tf32(),
            has_bf16: capability.has_tensor_bf16(),
            has_f16: has_f16(capability, reading.name.as_deref(), profile),
            fp32_tflops: Some(speed.fp32_tflops),
            rates: speed.rates,
            power: speed.part.and_then(|part| PowerLimit::from_reading(reading, part, published_w)),
            bandwidth_gb_s: Some(speed.bandwidth_gb_s),
            estimated: speed.estimated,
            host_cores,
        })
    }
}

impl GpuReading {
    /// Returns true if the GPU shares the host's memory, by the driver's report or by the compute capability of its profile.
    pub fn shares_memory(&self, profile: Option<&Profile>) -> bool {
        let by_profile = profile.map(|profile| profile.compute_capability.is_integrated());
        by_profile.map_or_else(|| self.has_unified_memory(), |is_integrated| is_integrated || self.unified_memory)
    }
}

/// Returns the reported memory, unless it is zero or many times the memory of the profile or of similar GPUs.
fn plausible_total(reading: &GpuReading, profile: Option<Bytes>, capability: ComputeCapability) -> Option<Bytes> {
    let total = reading.memory_total.filter(|total| *total > Bytes::ZERO)?;
    let largest_mib = profile.map_or_else(
        || {
            let line = ProductLine::new(reading.name.as_deref(), capability);
            Estimate::new(capability, line, total).memory_mib()[1]
        },
        |usable| usable.mib() * PLAUSIBLE_MEMORY,
    );
    (total.mib() <= largest_mib).then_some(total)
}

/// Returns true for fp16 tensor cores. Compute capability 7.5 also covers GPUs without tensor cores, such as the GTX 16
/// series: there a profile with a tensor peak decides, or RTX or T4 in the name.
pub(super) fn has_f16(capability: ComputeCapability, name: Option<&str>, profile: Option<&Profile>) -> bool {
    let is_rtx = name
        .is_some_and(|name| name.contains("RTX") || name.split([' ', '-']).any(|word| matches!(word, "T4" | "T4G")));
    let has_peak = profile.is_some_and(|profile| profile.peaks.fp16.is_some());
    capability.has_tensor_f16() && (is_rtx || has_peak || capability != ComputeCapability::new(7, 5))
}
