//! Checks of the figures of profiles: ranges, and identities between figures.

use core::fmt;
use std::borrow::Cow;

use super::facts::{Estimate, PLAUSIBLE, SIMILAR};
use super::figures::{Figure, Range};
use super::{Basis, Peak, Profile, is_source};
use crate::Bytes;
use crate::device::{ComputeCapability, EstimatedFigure, ProductLine};

/// A figure of a profile that is out of range or contradicts another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Key of the figure, with dots between tables.
    pub key: Cow<'static, str>,
    /// The value, the allowed values and their origin.
    message: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.key, self.message)
    }
}

/// Tolerance of the checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Profiles of this crate: exact data rates, and peaks within rounding of units x clock.
    Shipped,
    /// Profiles of users, who also describe boards with other clocks and memory.
    User,
}

/// Finds all figures of a profile that are out of range or contradict each other.
pub fn faults(profile: &Profile, strictness: Strictness) -> Vec<Fault> {
    let name = profile.names.first().map(String::as_str);
    let line = ProductLine::new(name, profile.compute_capability);
    let estimate = Estimate::new(profile.compute_capability, line, Bytes::from_mib(profile.memory.nominal_mib));
    let mut faults = Faults { profile, estimate, strictness, found: Vec::new() };
    faults.identity();
    faults.ranges();
    faults.memory();
    faults.units();
    faults.peaks();
    faults.found
}

/// The faults found in a profile so far.
struct Faults<'a> {
    profile: &'a Profile,
    /// Figures of similar GPUs.
    estimate: Estimate,
    strictness: Strictness,
    found: Vec<Fault>,
}

impl Faults<'_> {
    fn add(&mut self, key: impl Into<Cow<'static, str>>, message: impl Into<String>) {
        self.found.push(Fault { key: key.into(), message: message.into() });
    }

    /// Adds a fault if the value is outside of a range. `unit` is that of the range.
    fn check(
        &mut self,
        key: impl Into<Cow<'static, str>>,
        value: f64,
        [low, high]: [f64; 2],
        unit: &str,
        origin: &str,
    ) {
        if !(low..=high).contains(&value) {
            let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
            let (low, high) = (number(low), number(high));
            self.add(key, format!(" = {value} is out of range, expected {low} to {high}{unit} ({origin})"));
        }
    }

    /// Returns a figure without a fault, so that a fault does not cause others.
    fn sound<T>(&self, key: &str, figure: Option<T>) -> Option<T> {
        figure.filter(|_| self.found.iter().all(|fault| fault.key != key))
    }

    /// Origin of ranges around the figures of similar GPUs.
    fn similar(&self, factor: f64) -> String {
        format!("a factor of {factor} around GPUs of compute capability {}", self.profile.compute_capability)
    }
}

/// Origin of ranges that are wide enough for all known GPUs and the next generations.
const KNOWN: &str = "GPUs from a Jetson to a GB300, with a margin";

impl Faults<'_> {
    fn ranges(&mut self) {
        for figure in Figure::all() {
            if let Some(Peak { reached: Some(fraction), .. }) = figure.peak(self.profile) {
                let key = format!("{}.reached", figure.key);
                self.check(key, *fraction, [0.05, 1.5], "", "fractions of peaks in published tests, with a margin");
            }
            let Some(value) = figure.number(self.profile) else { continue };
            match figure.range {
                Range::Any => {}
                Range::Known(range) => self.check(figure.key, value, range, figure.unit, KNOWN),
                Range::Similar(factor, range) => {
                    self.check(figure.key, value, range(&self.estimate), figure.unit, &self.similar(factor));
                }
            }
        }
    }
}

/// Data rates of memory in Gbit/s per pin, by kind: bandwidth is the rate times the width of the bus.
const DATA_RATES: [(&str, &[f64]); 11] = [
    ("GDDR5", &[5.0, 6.0, 7.0, 7.23, 8.0]),
    ("GDDR5X", &[9.02, 10.0, 11.0, 11.42]),
    ("GDDR6", &[10.0, 11.0, 12.0, 12.5, 12.6, 13.0, 14.0, 14.5, 15.0, 15.5, 16.0, 17.0, 18.0, 20.0]),
    ("GDDR6X", &[19.0, 19.5, 21.0, 22.4, 23.0]),
    ("GDDR7", &[18.0, 24.0, 24.95, 28.0, 30.0]),
    ("HBM2", &[1.43, 1.7, 1.76, 1.92, 2.21, 2.43]),
    ("HBM2e", &[3.02, 3.19]),
    ("HBM3", &[5.2, 5.23]),
    ("HBM3e", &[6.25, 8.06, 8.33]),
    ("LPDDR5 unified", &[4.26, 6.4]),
    ("LPDDR5X unified", &[8.53]),
];

/// Widest bus of memory other than HBM, bits.
pub(super) const WIDEST_WITHOUT_HBM: u32 = 512;

/// Tolerance of data rates: bandwidths are rounded to three or four digits.
const RATE_TOLERANCE: f64 = 0.006;

/// Margin of a user's data rate beyond those of its kind: other clocks, and the next generation.
const RATE_MARGIN: f64 = 1.5;

impl Faults<'_> {
    fn memory(&mut self) {
        let memory = &self.profile.memory;
        // Drivers keep up to an eighth for themselves (ECC, firmware); nobody reports over 3% more than was sold.
        let nominal_mib = memory.nominal_mib as f64;
        let range = [nominal_mib * 7.0 / 8.0, nominal_mib * 1.03];
        let totals =
            [("memory.nvml_total_mib", &memory.nvml_total_mib), ("memory.cuda_total_mib", &memory.cuda_total_mib)];
        for (key, totals) in totals {
            for total in totals {
                self.check(
                    key,
                    *total as f64,
                    range,
                    "MiB",
                    "memory.nominal_mib, of which drivers keep up to an eighth",
                );
            }
        }
        let is_estimate = self.profile.estimated.contains(&EstimatedFigure::Bandwidth);
        let Some(gb_s) = memory.bandwidth_gb_s else { return };
        let Some(bits) = memory.bus_bits.filter(|bits| *bits > 0 && !is_estimate) else {
            let [low, high] = SIMILAR.map(|ratio| ratio * self.estimate.bandwidth_gb_s);
            self.check("memory.bandwidth_gb_s", gb_s, [low, high], "GB/s", &self.similar(PLAUSIBLE));
            return;
        };
        let kind = memory.kind.as_deref();
        if self.strictness == Strictness::User {
            let origin = format!("{bits} bits x the data rates of such memory, with a margin");
            self.check("memory.bandwidth_gb_s", gb_s, bandwidth_range(kind, bits), "GB/s", &origin);
            return;
        }
        let (rate, rates) = (gb_s * 8.0 / f64::from(bits), data_rates(kind, bits));
        if !rates.iter().any(|listed| (rate / listed - 1.0).abs() <= RATE_TOLERANCE) {
            let message = format!(" = {gb_s} over {bits} bits is {rate:.2} Gbit/s per pin, expected one of {rates:?}");
            self.add("memory.bandwidth_gb_s", message);
        }
    }
}

/// Plausible bandwidths of a bus, in GB/s: its width x the data rates of the memory.
pub(super) fn bandwidth_range(kind: Option<&str>, bits: u32) -> [f64; 2] {
    let rates = data_rates(kind, bits);
    let [lowest, highest] =
        [rates.iter().copied().fold(f64::INFINITY, f64::min), rates.iter().copied().fold(0.0, f64::max)];
    [lowest / RATE_MARGIN, highest * RATE_MARGIN].map(|rate| rate * f64::from(bits) / 8.0)
}

/// Data rates of a kind of memory; for an unlisted kind, those of all memory with such a bus.
fn data_rates(kind: Option<&str>, bits: u32) -> Vec<f64> {
    let has_hbm = bits > WIDEST_WITHOUT_HBM;
    let is_kind = |(name, _): &&(&str, &[f64])| Some(*name) == kind;
    let with_bus = |(name, _): &&(&str, &[f64])| name.starts_with("HBM") == has_hbm;
    match DATA_RATES.iter().find(is_kind) {
        Some((_, rates)) => rates.to_vec(),
        None => DATA_RATES.iter().filter(with_bus).flat_map(|(_, rates)| *rates).copied().collect(),
    }
}

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
    fn units(&mut self) {
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

    fn peaks(&mut self) {
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

impl Faults<'_> {
    fn identity(&mut self) {
        let Profile { names, pci_ids, .. } = self.profile;
        if names.iter().any(|name| name.trim().is_empty()) {
            self.add("names", ": a name is empty; expected whole product names that nvidia-smi prints");
        }
        for id in pci_ids.iter().filter(|id| !id.is_nvidia()) {
            self.add("pci_ids", format!(": {id} is not NVIDIA's, expected ids that begin with 10de"));
        }
        self.capability();
        self.sources();
    }

    fn capability(&mut self) {
        let Profile { compute_capability: capability, architecture, names, peaks, .. } = self.profile;
        if !capability.is_plausible() {
            let [oldest, newest] = ComputeCapability::PLAUSIBLE;
            let listed = "NVIDIA's list of CUDA GPUs, and later ones";
            let message = format!(" = {capability} is out of range, expected {oldest} to {newest} ({listed})");
            self.add("compute_capability", message);
            return;
        }
        let is_shared = capability.is_integrated();
        let is_board = |name: &String| ProductLine::new(Some(name), *capability) != Some(ProductLine::Integrated);
        if let Some(name) = names.iter().find(|name| is_shared && is_board(name)) {
            let message =
                format!(" = {capability} is that of GPUs that share the host's memory; \"{name}\" has its own");
            self.add("compute_capability", message);
        }
        let known = capability.architecture();
        let is_other = match self.strictness {
            Strictness::Shipped => known != Some(architecture.as_str()),
            Strictness::User => known.is_some() && ComputeCapability::is_architecture(architecture),
        };
        if is_other && known != Some(architecture.as_str()) {
            let expected = known.unwrap_or("that of a listed capability");
            self.add(
                "architecture",
                format!(" = \"{architecture}\", expected {expected} (compute capability {capability})"),
            );
        }
        if peaks.tf32.is_some() && !capability.has_tf32() {
            self.add("peaks.tf32", format!(": compute capability {capability} has no TF32, expected 8.0 or later"));
        }
        if peaks.bf16.is_some() && !capability.has_tensor_bf16() {
            let message = format!(": compute capability {capability} has no bf16 tensor cores, expected 8.0 or later");
            self.add("peaks.bf16", message);
        }
    }

    fn sources(&mut self) {
        let profile = self.profile;
        let of_figures =
            Figure::all().filter_map(|figure| figure.source(profile)).map(|(key, codes)| (key.into(), codes));
        let of_peaks = Figure::all().filter_map(|figure| Some((figure.key, figure.peak(profile)?)));
        let of_peaks = of_peaks.flat_map(|(key, Peak { source, reached_source, .. })| {
            let tests = reached_source.iter().map(move |tests| (format!("{key}.reached_source").into(), tests));
            core::iter::once((format!("{key}.source").into(), source)).chain(tests)
        });
        let of_profile = profile.sources.iter().map(|source| (Cow::Borrowed("sources"), source));
        for (key, codes) in of_figures.chain(of_peaks).chain(of_profile) {
            if !codes.split(' ').all(is_source) {
                let expected =
                    "the address of a page, `data-sheet`, `measured` or another code of core/profiles/SOURCES.md";
                self.add(key, format!(" = \"{codes}\" is no source, expected {expected}"));
            }
        }
    }
}

/// Half of the last printed digit of a figure.
const ROUNDING: f64 = 0.06;

/// A figure that follows from others.
#[derive(Clone, Debug)]
struct Expected {
    value: f64,
    /// Smallest and largest allowed ratio to the value.
    ratios: [f64; 2],
    origin: String,
}

impl Expected {
    /// The allowed range.
    fn range(&self) -> [f64; 2] {
        let [low, high] = self.ratios.map(|ratio| ratio * self.value);
        [low.min(self.value - ROUNDING).max(f64::MIN_POSITIVE), high.max(self.value + ROUNDING)]
    }
}

/// Ratios within a relative tolerance.
const fn within(tolerance: f64) -> [f64; 2] {
    [1.0 - tolerance, 1.0 + tolerance]
}

/// Formats a bound with three significant digits.
fn number(bound: f64) -> String {
    let digits = (2.0 - bound.abs().max(1e-9).log10().floor()).clamp(0.0, 6.0);
    let text = format!("{bound:.*}", digits as usize);
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

#[cfg(test)]
mod tests;
