//! SM count, peaks and rates of a GPU: from its profile, from the driver, or estimated.

use super::estimate::{Estimate, plausible};
use super::facts::has_f16;
use super::{Basis, Peak, Profile};
use crate::Bytes;
use crate::device::{ComputeCapability, EstimatedFigure, GpuReading, ProductLine, Rates};

/// Figures that decide the speed of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Speed {
    pub sm_count: u32,
    pub fp32_tflops: f64,
    pub bandwidth_gb_s: f64,
    pub rates: Rates,
    /// Fraction of the board's SMs that are in a slice or a virtual share; `None` if unknown.
    pub part: Option<f64>,
    /// Figures that are estimates.
    pub estimated: Vec<EstimatedFigure>,
}

impl Rates {
    /// Rates of a profile.
    pub fn from_profile(profile: &Profile) -> Self {
        Speed::from_profile(profile).rates
    }
}

impl Speed {
    /// Figures of a profile. Its missing ones are computed from others, or else estimated.
    pub(super) fn from_profile(profile: &Profile) -> Self {
        let Profile { compute, memory, peaks, compute_capability: capability, .. } = profile;
        let name = profile.names.first().map(String::as_str);
        // Most profiles need no estimate, and a macro takes milliseconds to read the table of estimates.
        let estimate = || Estimate::new(*capability, ProductLine::new(name, *capability), memory.usable());
        let from_cores = || Some(compute.cuda_cores? / capability.cores_per_sm()?).filter(|count| *count > 0);
        let sm_count = compute.sm_count.or_else(from_cores);
        let fp32 = peaks.fp32.as_ref().map(|peak| peak.tflops);
        let fp32 = fp32.or_else(|| Some(fp32_from_units(sm_count?, *capability, compute.boost_mhz?)));
        let mut speed = Self::with_estimates(estimate, sm_count, fp32, memory.bandwidth_gb_s);
        speed.rates = Rates::from_peaks(profile, speed.fp32_tflops, has_f16(*capability, name, Some(profile)));
        let is_estimate = |peak: &Option<Peak>| peak.as_ref().is_some_and(|peak| peak.basis == Basis::Estimated);
        if is_estimate(&peaks.fp32) {
            speed.estimated.push(EstimatedFigure::Fp32);
        }
        if [&peaks.tf32, &peaks.bf16, &peaks.fp16].into_iter().any(is_estimate) {
            speed.estimated.push(EstimatedFigure::Tensor);
        }
        speed.estimated.extend(&profile.estimated);
        speed.estimated.sort_unstable();
        speed.estimated.dedup();
        speed
    }

    /// Figures of a GPU without a profile. Implausible ones are replaced by estimates.
    pub(super) fn from_reading(reading: &GpuReading, capability: ComputeCapability, memory: Bytes) -> Self {
        let name = reading.name.as_deref();
        let estimate = Estimate::new(capability, ProductLine::new(name, capability), memory);
        let [fewest, most] = estimate.sm_counts();
        let is_plausible = |count: &u32| (fewest..=most).contains(&f64::from(*count));
        // A slice may have any number.
        let is_slice_of = |count: &u32| reading.is_mig_slice() && (1..estimate.sm_count).contains(count);
        let sm_count = reading.sm_count.filter(|count| is_plausible(count) || is_slice_of(count));
        let of_units = |clock_mhz: f64| sm_count.map(|count| fp32_from_units(count, capability, clock_mhz));
        let clock = plausible(reading.max_sm_clock_mhz.map(f64::from), estimate.clock_mhz);
        let bandwidth = plausible(bandwidth_from_bus(reading), estimate.bandwidth_gb_s);
        let mut speed = Self::with_estimates(|| estimate, sm_count, clock.and_then(of_units), bandwidth);
        if clock.is_none() {
            // The number of units decides more than the clock.
            speed.fp32_tflops = of_units(estimate.clock_mhz).unwrap_or(speed.fp32_tflops);
        }
        let has_f16 = has_f16(capability, name, None);
        speed.part = (!reading.is_mig_slice()).then_some(1.0);
        speed.rates = Rates::estimate(speed.fp32_tflops, capability, is_geforce(name), has_f16);
        speed
    }

    fn with_estimates(
        estimate: impl Fn() -> Estimate,
        sm_count: Option<u32>,
        fp32_tflops: Option<f64>,
        bandwidth_gb_s: Option<f64>,
    ) -> Self {
        let known = [
            (EstimatedFigure::SmCount, sm_count.is_some()),
            (EstimatedFigure::Fp32, fp32_tflops.is_some()),
            (EstimatedFigure::Bandwidth, bandwidth_gb_s.is_some()),
        ];
        Self {
            sm_count: sm_count.unwrap_or_else(|| estimate().sm_count),
            fp32_tflops: fp32_tflops.unwrap_or_else(|| estimate().fp32_tflops),
            bandwidth_gb_s: bandwidth_gb_s.unwrap_or_else(|| estimate().bandwidth_gb_s),
            rates: Rates::default(),
            part: Some(1.0),
            estimated: known.into_iter().filter(|(_, is_known)| !is_known).map(|(figure, _)| figure).collect(),
        }
    }

    /// Figures of a process that may use a share of the SMs, in percent. The memory is as fast as for all of them.
    pub(super) fn limited_to(mut self, percent: u32) -> Self {
        let share = f64::from(percent.clamp(1, 100)) / 100.0;
        self.fp32_tflops *= share;
        self.rates = self.rates.scaled(share);
        self
    }

    /// Figures of the part of the GPU that the driver reports: a slice or a cut-down chip has fewer SMs.
    pub(super) fn of_share(mut self, reading: &GpuReading, profile: &Profile, memory: Bytes) -> Self {
        let is_part = reading.is_mig_slice() || reading.is_vgpu();
        let ratio = |count: u32| f64::from(count) / f64::from(self.sm_count.max(1));
        let is_estimate = self.estimated.contains(&EstimatedFigure::SmCount);
        // A count of 1 is a placeholder.
        let is_near =
            |count: &u32| *count > 1 && plausible(Some(f64::from(*count)), f64::from(self.sm_count)).is_some();
        let sm_count = reading.sm_count.filter(|count| *count > 0 && (is_part || is_near(count)));
        let share = match sm_count {
            // The profile's peaks are those of the whole GPU, and an estimated count is the largest of such GPUs.
            _ if is_estimate && !is_part => 1.0,
            Some(count) => ratio(count).min(1.0),
            // Memory and SMs of a GPU are cut into nearly the same shares.
            None if reading.is_mig_slice() => (memory.0 as f64 / profile.memory.usable().0.max(1) as f64).min(1.0),
            None => 1.0,
        };
        if let Some(count) = sm_count {
            self.estimated.retain(|figure| *figure != EstimatedFigure::SmCount);
            self.sm_count = count;
        }
        self.part = is_part.then_some(share).or(self.part);
        self.fp32_tflops *= share;
        self.bandwidth_gb_s *= share;
        self.rates = self.rates.scaled(share);
        self
    }
}

/// Returns true for a GeForce, whose tensor cores run at half rate with fp32 accumulation.
pub(super) fn is_geforce(name: Option<&str>) -> bool {
    name.is_some_and(|name| name.contains("GeForce"))
}

/// SMs x lanes x 2 operations x clock, as data sheets count.
fn fp32_from_units(sm_count: u32, capability: ComputeCapability, clock_mhz: f64) -> f64 {
    let lanes = capability.cores_per_sm().unwrap_or(ComputeCapability::USUAL_CORES_PER_SM);
    f64::from(sm_count) * f64::from(lanes) * 2.0 * clock_mhz / 1e6
}

/// Two transfers a clock over the width of the bus (NVML reports half of the effective memory clock).
fn bandwidth_from_bus(reading: &GpuReading) -> Option<f64> {
    let (clock_mhz, bus_bits) = (reading.max_memory_clock_mhz?, reading.memory_bus_bits?);
    Some(2.0 * f64::from(clock_mhz) * f64::from(bus_bits) / 8.0 / 1e3)
}
