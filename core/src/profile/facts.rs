//! Facts about a device from its profile and a reading; estimates where both lack a figure.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Basis, Peak, Profile};
use crate::device::{
    ComputeCapability, DeviceFacts, DeviceKind, EstimatedFigure, GpuReading, MemoryKind, MigSize, PowerLimit,
    ProductLine, Rates,
};
use crate::{Bytes, Provenance};

/// Size of a CUDA context before the first kernel. Measured: 537 MiB on an H200 with 132 SMs, 107 MiB on another GPU
/// with 34.
fn context(sm_count: u32) -> Bytes {
    Bytes::from_mib(150 + 3 * u64::from(sm_count))
}

/// Least part of the memory of its slices that a MIG slice has: 16.0 of 17.6 GiB of an H200, 9.75 of 10 GiB of an H100.
const MIG_SHARE: f64 = 0.9;

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

    /// Facts of a MIG slice of a GPU that was not probed; `None` if the GPU has no slices of this size.
    ///
    /// SMs follow from the equal slices that NVIDIA's MIG guide lists: 14 of an A100, 16 of an H100. Larger slices of an H100 have
    /// up to 18% more.
    pub fn nominal_slice(profile: &Profile, size: MigSize) -> Option<Self> {
        let whole = profile.compute.sm_count?;
        let slices = profile.board.mig_slices?;
        let gib_each = profile.memory.nominal_mib as f64 / 1024.0 / f64::from(slices);
        let memory = (f64::from(size.memory_gb) / gib_each).round() as u32;
        let is_memory = (f64::from(memory) * gib_each - f64::from(size.memory_gb)).abs() <= 1.0;
        let is_compute = matches!((size.compute, slices), (1 | 2 | 4, _) | (3 | 7, 8));
        let has_pair = memory == size.compute.next_power_of_two() || (memory, size.compute) == (2, 1);
        if !is_memory || !is_compute || !has_pair {
            return None;
        }
        // Pairs of SMs, of which a slice has the same number everywhere.
        let sm_each = (f64::from(whole) / f64::from(slices) / 2.0).round() as u32 * 2;
        let kept = profile.memory.usable().0 as f64 * MIG_SHARE * f64::from(memory) / f64::from(slices);
        let reading = GpuReading {
            name: Some(format!("{} MIG {size}", profile.names.first()?)),
            compute_capability: Some(profile.compute_capability),
            memory_total: Some(Bytes(kept as u64)),
            sm_count: Some(sm_each * size.compute),
            ..GpuReading::default()
        };
        let name = format!("{} {size}", profile.id);
        Self::from_reading(&reading, Some(profile), None).map(|facts| Self { name, ..facts })
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

impl Rates {
    /// Rates of a profile, for its fp32 peak in 10^12 operations per second. A peak without a test of its own has the
    /// fraction of the GPU's other tensor formats, else that of GPUs of the same compute capability and product line.
    pub(super) fn from_peaks(profile: &Profile, fp32_tflops: f64, has_f16: bool) -> Self {
        let peaks = &profile.peaks;
        let class = Reached::find(profile.compute_capability, profile.compute.half_rate_fp32_accumulate);
        let own: Vec<f64> =
            [&peaks.tf32, &peaks.fp16, &peaks.bf16].into_iter().flatten().filter_map(|peak| peak.reached).collect();
        let own = (!own.is_empty()).then(|| own.iter().sum::<f64>() / own.len() as f64);
        let tensor = |peak: &Option<Peak>, of_fp16: f64| {
            let published = peak.as_ref().map(|peak| peak.tflops);
            let tflops = published.or_else(|| Some(fp32_tflops * class?.fp16_per_fp32? * of_fp16))?;
            let reached = peak.as_ref().and_then(|peak| peak.reached).or(own).or_else(|| class?.tensor)?;
            Some(tflops * reached)
        };
        let reached = peaks.fp32.as_ref().and_then(|peak| peak.reached).or_else(|| Some(class?.fp32));
        Self {
            fp32: reached.map(|reached| fp32_tflops * reached),
            tf32: tensor(&peaks.tf32, 0.5),
            fp16: tensor(&peaks.fp16, 1.0),
            bf16: tensor(&peaks.bf16, 1.0),
        }
        .available(profile.compute_capability, has_f16)
    }

    /// Rates of a GPU without a profile, by its fp32 peak in 10^12 operations per second.
    pub(super) fn estimate(fp32_tflops: f64, capability: ComputeCapability, is_half_rate: bool, has_f16: bool) -> Self {
        let Some(class) = Reached::find(capability, is_half_rate) else { return Self::default() };
        let fp16 = class.fp16_per_fp32.zip(class.tensor).map(|(ratio, reached)| fp32_tflops * ratio * reached);
        Self { fp32: Some(fp32_tflops * class.fp32), tf32: fp16.map(|rate| rate / 2.0), fp16, bf16: fp16 }
            .available(capability, has_f16)
    }

    /// Replaces the rates of formats that have no tensor cores by the fp32 rate.
    fn available(self, capability: ComputeCapability, has_f16: bool) -> Self {
        let tensor = |is_there: bool, rate: Option<f64>| if is_there { rate } else { self.fp32 };
        Self {
            fp32: self.fp32,
            tf32: tensor(capability.has_tf32(), self.tf32),
            fp16: tensor(has_f16, self.fp16),
            bf16: tensor(capability.has_tensor_bf16(), self.bf16),
        }
    }
}

/// Peak of fp16 over the peak of fp32, for GPUs of this capability and product line; `None` without tensor cores.
pub(super) fn fp16_per_fp32(capability: ComputeCapability, is_half_rate: bool) -> Option<f64> {
    Reached::find(capability, is_half_rate)?.fp16_per_fp32
}

/// Fractions of the peaks that tested GPUs of one compute capability and product line reach.
#[derive(Debug, Deserialize)]
struct Reached {
    compute_capability: ComputeCapability,
    /// The product halves tensor rates with fp32 accumulation.
    half_rate: bool,
    fp32: f64,
    tensor: Option<f64>,
    /// Peak of fp16 over the peak of fp32.
    fp16_per_fp32: Option<f64>,
}

impl Reached {
    fn find(capability: ComputeCapability, is_half_rate: bool) -> Option<&'static Self> {
        static CLASSES: OnceLock<Vec<Reached>> = OnceLock::new();
        let classes = CLASSES.get_or_init(|| classes(include_str!("reached.toml")));
        // An unlisted capability has the fractions of the one before it.
        let is_newer = |class: &Self| class.compute_capability > capability;
        let distance = |class: &Self| class.compute_capability.distance(capability);
        classes.iter().min_by_key(|class| (is_newer(class), distance(class), class.half_rate != is_half_rate))
    }
}

/// Largest ratio of a rate to its estimate, in either direction. Known GPUs are within a factor of 2.5; more or less than this
/// is a placeholder of a driver, or a typing error.
pub(super) const PLAUSIBLE: f64 = 8.0;

/// Ratios of figures of one class of GPUs.
pub(super) const SIMILAR: [f64; 2] = [1.0 / PLAUSIBLE, PLAUSIBLE];

/// Largest ratio of the memory of a GPU to that of its class, in either direction. Boards are modified to two or three times
/// the memory of the product.
pub(super) const PLAUSIBLE_MEMORY: f64 = 4.0;

/// Compute capability of the estimates for a GPU whose driver does not report one: the commonest.
const COMMONEST: ComputeCapability = ComputeCapability::new(8, 6);

/// Figures of a GPU with this compute capability, product line and memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Estimate {
    /// Largest SM count of such GPUs.
    pub sm_count: u32,
    /// Peak fp32 rate, 10^12 operations per second.
    pub fp32_tflops: f64,
    /// Peak memory bandwidth, GB/s.
    pub bandwidth_gb_s: f64,
    /// Boost clock in MHz.
    pub clock_mhz: f64,
    /// Smallest SM count of the product lines; below `sm_count` for an unrecognised one.
    least_sm_count: f64,
    /// Smallest and largest memory of such GPUs, GiB.
    memory_gib: [f64; 2],
    is_integrated: bool,
}

impl Estimate {
    /// The estimate for a product line, or the middle of the lines of the compute capability.
    pub(super) fn new(capability: ComputeCapability, line: Option<ProductLine>, memory: Bytes) -> Self {
        let classes = Class::find(capability, line);
        let gib = memory.0 as f64 / f64::from(1 << 30);
        let middle = |figure: fn(&Class, f64) -> f64| {
            let sum: f64 = classes.iter().map(|class| figure(class, gib).ln()).sum();
            (sum / classes.len() as f64).exp()
        };
        let sm_counts = || classes.iter().map(|class| class.at(class.sm_count, gib));
        let largest = sm_counts().fold(0.0, f64::max);
        // A new generation may have any memory.
        let is_listed = classes.iter().any(|class| class.compute_capability.major == capability.major);
        let memories = || classes.iter().copied().chain(all_classes().iter().filter(|_| !is_listed));
        Self {
            sm_count: largest.ceil() as u32,
            fp32_tflops: middle(|class, gib| class.at(class.fp32_tflops, gib)),
            bandwidth_gb_s: middle(|class, gib| class.at(class.bandwidth_gb_s, gib)),
            clock_mhz: middle(|class, _| class.clock_mhz),
            is_integrated: line == Some(ProductLine::Integrated),
            least_sm_count: sm_counts().fold(largest, f64::min),
            memory_gib: [
                memories().map(|class| class.memory_gib[0]).fold(f64::INFINITY, f64::min),
                memories().map(|class| class.memory_gib[1]).fold(0.0, f64::max),
            ],
        }
    }

    /// Smallest and largest plausible SM count.
    pub(super) fn sm_counts(&self) -> [f64; 2] {
        [self.least_sm_count / PLAUSIBLE, f64::from(self.sm_count) * PLAUSIBLE]
    }

    /// Smallest and largest plausible memory in MiB. A GPU that shares the host's memory may have that of a virtual machine.
    pub(super) fn memory_mib(&self) -> [f64; 2] {
        const SMALLEST_SHARED_MIB: f64 = 512.0;
        let [smallest, largest] = self.memory_gib;
        let smallest = if self.is_integrated { SMALLEST_SHARED_MIB } else { smallest * 1024.0 / PLAUSIBLE_MEMORY };
        [smallest, largest * 1024.0 * PLAUSIBLE_MEMORY]
    }
}

/// Returns a reported figure, unless it is too far from its estimate to be one of a GPU.
pub(super) fn plausible(reported: Option<f64>, estimate: f64) -> Option<f64> {
    reported.filter(|reported| (1.0 / PLAUSIBLE..=PLAUSIBLE).contains(&(reported / estimate)))
}

/// Figures of GPUs of one compute capability and product line, each at the smallest and the largest memory.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Class {
    compute_capability: ComputeCapability,
    line: ProductLine,
    memory_gib: [f64; 2],
    sm_count: [f64; 2],
    fp32_tflops: [f64; 2],
    bandwidth_gb_s: [f64; 2],
    clock_mhz: f64,
}

impl Class {
    /// The class of the capability and the line; all classes of the capability without a line or for an unlisted one. An
    /// unlisted capability has the classes of the one before it.
    fn find(capability: ComputeCapability, line: Option<ProductLine>) -> Vec<&'static Self> {
        let capability = if capability.major == 0 { COMMONEST } else { capability };
        // Of integrated GPUs the line decides first: their memory is the host's.
        let is_integrated = |line| line == Some(ProductLine::Integrated);
        let is_kind = |class: &&Self| is_integrated(Some(class.line)) == is_integrated(line);
        let distance = |class: &Self| {
            let is_newer = class.compute_capability > capability;
            (is_newer, class.compute_capability.distance(capability))
        };
        let least = all_classes().iter().filter(is_kind).map(distance).min();
        let near: Vec<_> =
            all_classes().iter().filter(is_kind).filter(|class| Some(distance(class)) == least).collect();
        match near.iter().find(|class| Some(class.line) == line) {
            Some(class) => vec![class],
            None => near,
        }
    }

    /// Figure at this memory: a power of it through the two known points. Where both points are one, it is constant.
    fn at(&self, [low, high]: [f64; 2], gib: f64) -> f64 {
        let [smallest, largest] = self.memory_gib;
        if smallest >= largest {
            return low;
        }
        // Half the smallest memory and twice the largest are as far as a class is extended.
        let gib = gib.clamp(smallest / 2.0, largest * 2.0);
        let exponent = (high / low).ln() / (largest / smallest).ln();
        low * (gib / smallest).powf(exponent)
    }
}

fn all_classes() -> &'static [Class] {
    static CLASSES: OnceLock<Vec<Class>> = OnceLock::new();
    CLASSES.get_or_init(|| classes(include_str!("estimates.toml")))
}

/// Reads the rows `[[class]]` of a shipped file.
fn classes<T: DeserializeOwned>(text: &str) -> Vec<T> {
    let mut file: BTreeMap<String, Vec<T>> = toml::from_str(text).expect("BUG: a shipped file is damaged");
    file.remove("class").unwrap_or_default()
}

#[cfg(test)]
mod tests;
