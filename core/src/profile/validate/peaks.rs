//! Cores and peaks: SMs x operations x clock, and the ratios between formats.

use super::expected::{Expected, SIMILAR, number, within};
use super::{Faults, Strictness};
use crate::device::ComputeCapability;
use crate::profile::estimate::{Estimate, PLAUSIBLE};
use crate::profile::{Basis, Peak, Profile};

/// Tolerance of derived peaks, and of peaks in one format to another.
const DERIVED_TOLERANCE: f64 = 0.02;
/// Tolerance of published peaks: makers count with other clocks than the boost clock.
const PUBLISHED_TOLERANCE: f64 = 0.1;
/// Ratios of a user's peaks to units x clock: boards for export have an eighth of their chip's tensor rate, and sparse figures
/// are twice the dense ones.
const USER_PEAKS: [f64; 2] = [1.0 / 8.0, 1.6];
/// Ratios of a user's peaks in one format to those in another.
const USER_FORMATS: [f64; 2] = [0.5, 1.6];

/// Tolerance of the fp16 peak without tensor cores.
const NATIVE_TOLERANCE: f64 = 0.03;

impl Faults<'_> {
    /// fp32 lanes = SMs x lanes of the compute capability.
    pub(super) fn units(&mut self) {
        let Profile { compute, compute_capability: capability, .. } = self.profile;
        let lanes = capability.cores_per_sm().filter(|_| capability.architecture().is_some());
        if let (Some(count), Some(cores), Some(lanes)) = (compute.sm_count, compute.cuda_cores, lanes)
            && count.checked_mul(lanes) != Some(cores)
        {
            let expected = u64::from(count) * u64::from(lanes);
            let origin = format!("{count} SMs x {lanes} lanes of compute capability {capability}");
            self.add("compute.cuda_cores", format!(" = {cores}, expected {expected} ({origin})"));
        } else if let (None, Some(cores), Some(lanes)) = (compute.sm_count, compute.cuda_cores, lanes) {
            let range = self.estimate.sm_counts().map(|count| count * f64::from(lanes));
            self.check("compute.cuda_cores", f64::from(cores), range, "lanes", &self.similar(PLAUSIBLE));
        }
    }

    pub(super) fn peaks(&mut self) {
        let Profile { compute, peaks, .. } = self.profile;
        let lanes = self.profile.compute_capability.cores_per_sm().unwrap_or(ComputeCapability::USUAL_CORES_PER_SM);
        let clock = self.sound("compute.boost_mhz", compute.boost_mhz);
        if let Some(peak) = &peaks.fp32 {
            let expected = self.by_units(peak, clock, lanes * 2, 1.0).or_else(|| self.by_class(lanes * 2, 1.0));
            self.peak("peaks.fp32.tflops", peak, expected);
        }
        self.tensor(lanes * 2);
        // Without tensor cores fp16 runs at twice the rate of fp32, or at 1/64.
        let native = peaks.fp16_native.as_ref().zip(peaks.fp32.as_ref());
        if let Some((tflops, ratio)) = native.map(|(fp16, fp32)| (fp16.tflops, fp16.tflops / fp32.tflops))
            && (ratio / 2.0 - 1.0).abs() > NATIVE_TOLERANCE
            && (ratio * 64.0 - 1.0).abs() > NATIVE_TOLERANCE
        {
            self.add("peaks.fp16_native.tflops", format!(" = {tflops}, expected 2 or 1/64 of the fp32 peak"));
        }
    }

    /// Peaks of the tensor cores. Those of other formats are a multiple of the one in fp16.
    fn tensor(&mut self, fp32_operations: u32) {
        let Profile { compute, peaks, compute_capability: capability, .. } = self.profile;
        let share = if compute.half_rate_fp32_accumulate { 0.5 } else { 1.0 };
        let clock = self.sound("compute.tensor_clock_mhz", compute.tensor_clock_mhz);
        let clock = clock.or(self.sound("compute.boost_mhz", compute.boost_mhz));
        let fp32 = self.sound("peaks.fp32.tflops", peaks.fp32.as_ref()).map(|peak| peak.tflops);
        for (key, peak, factor) in [
            ("peaks.fp16.tflops", &peaks.fp16, 1.0),
            ("peaks.bf16.tflops", &peaks.bf16, 1.0),
            ("peaks.tf32.tflops", &peaks.tf32, 0.5),
            ("peaks.fp8.tflops", &peaks.fp8, 2.0),
        ] {
            let Some(peak) = peak else { continue };
            let fp16 = self.sound("peaks.fp16.tflops", peaks.fp16.as_ref()).filter(|fp16| *fp16 != peak);
            let expected = if let Some(fp16) = fp16 {
                let ratios = if self.strictness == Strictness::User { USER_FORMATS } else { within(DERIVED_TOLERANCE) };
                let origin = format!("{factor} x the fp16 peak, with a margin");
                Some(Expected { value: fp16.tflops * factor, ratios, origin })
            } else if let Some(operations) = capability.tensor_f16_per_sm() {
                let ratio = f64::from(operations) / f64::from(fp32_operations) * share * factor;
                let by_units = self.by_units(peak, clock, operations, share * factor);
                by_units
                    .or_else(|| self.by_fp32(peak, fp32?, ratio))
                    .or_else(|| self.by_class(operations, share * factor))
            } else {
                None
            };
            self.peak(key, peak, expected);
        }
    }

    /// SMs x operations x clock in TFLOP/s.
    fn by_units(&self, peak: &Peak, clock_mhz: Option<f64>, operations: u32, share: f64) -> Option<Expected> {
        let count = self.sound("compute.sm_count", self.profile.compute.sm_count)?;
        let clock = clock_mhz?;
        let value = f64::from(count) * f64::from(operations) * share * clock / 1e6;
        let origin = format!("{count} SMs x {operations} operations x {clock:.0} MHz, with a margin");
        Some(Expected { value, ratios: self.ratios(peak), origin })
    }

    /// A multiple of the fp32 peak, by the operations of the units. Published peaks may have another clock.
    fn by_fp32(&self, peak: &Peak, fp32: f64, ratio: f64) -> Option<Expected> {
        let is_comparable = self.strictness == Strictness::User || peak.basis == Basis::Derived;
        let origin = format!("{} x the fp32 peak, with a margin", number(ratio));
        is_comparable.then(|| Expected { value: fp32 * ratio, ratios: self.ratios(peak), origin })
    }

    /// The peak of similar GPUs, for a profile of a user.
    fn by_class(&self, operations: u32, share: f64) -> Option<Expected> {
        let Estimate { sm_count, clock_mhz, .. } = self.estimate;
        let value = f64::from(sm_count) * f64::from(operations) * share * clock_mhz / 1e6;
        let is_user = self.strictness == Strictness::User;
        is_user.then(|| Expected { value, ratios: SIMILAR, origin: self.similar(PLAUSIBLE) })
    }

    fn ratios(&self, peak: &Peak) -> [f64; 2] {
        match (self.strictness, peak.basis) {
            (Strictness::User, Basis::Estimated) => SIMILAR,
            (Strictness::User, _) | (Strictness::Shipped, Basis::Estimated) => USER_PEAKS,
            (Strictness::Shipped, Basis::Derived) => within(DERIVED_TOLERANCE),
            (Strictness::Shipped, _) => within(PUBLISHED_TOLERANCE),
        }
    }

    fn peak(&mut self, key: &'static str, peak: &Peak, expected: Option<Expected>) {
        match expected {
            Some(expected) => self.check(key, peak.tflops, expected.range(), "TFLOP/s", &expected.origin),
            // Every GPU is within this range.
            None => self.check(key, peak.tflops, [0.01, 1e5], "TFLOP/s", "peaks of all GPUs, with a margin"),
        }
    }
}
