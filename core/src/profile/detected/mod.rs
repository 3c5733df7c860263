//! Figures of a detected GPU for a profile of its own, each with its origin.

mod memory;

use core::fmt;

use thiserror::Error;

use crate::Bytes;
use crate::device::{ComputeCapability, EstimatedFigure, GpuReading, PciId, ProductLine};
use crate::profile::estimate::{Estimate, plausible};
use crate::profile::facts::has_f16;
use crate::profile::rates::fp16_per_fp32;
use crate::profile::speed::{Speed, is_geforce};
use crate::profile::validate::{BUS_BITS, L2_MIB, TDP_W, bandwidth_range};
use crate::profile::{Basis, Peak, Peaks, Profile, ProfileId};
use memory::nominal_mib;

/// Reasons why a detected GPU gets no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NoDescription {
    /// A MIG slice or a virtual share.
    #[error("a profile describes a whole GPU, and this is a part of one; build for this part with `native`")]
    Part,
    /// Neither name nor PCI id is known.
    #[error("the driver reports neither its name nor its PCI id, by which a profile is found")]
    Identity,
    /// The memory is unknown.
    #[error("the driver does not report its memory")]
    Memory,
    /// The memory is that of no GPU of the product line.
    #[error("the driver reports {reported} of memory, and GPUs of its compute capability have {smallest} to {largest}")]
    ImplausibleMemory {
        /// The driver's figure.
        reported: Bytes,
        /// Smallest memory of such GPUs, with a margin.
        smallest: Bytes,
        /// Largest memory of such GPUs, with a margin.
        largest: Bytes,
    },
    /// The compute capability is unknown.
    #[error("the driver does not report its compute capability")]
    ComputeCapability,
    /// The compute capability contradicts the name.
    #[error(
        "the driver reports compute capability {capability}, that of GPUs that share the host's memory, for a board with its \
         own"
    )]
    SharedMemory {
        /// The driver's figure.
        capability: ComputeCapability,
    },
}

/// A figure with its origin.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure<T> {
    /// The value.
    pub value: T,
    /// Its origin.
    pub origin: Origin,
}

/// Origin of a figure.
#[derive(Clone, Debug, PartialEq)]
pub enum Origin {
    /// Reported by the driver.
    Driver,
    /// Computed from reported figures.
    Computed(&'static str),
    /// The figure of the profile that the GPU matches.
    Profile(ProfileId),
    /// Not reported.
    Estimated(String),
}

impl Origin {
    /// Returns true for an estimate.
    pub const fn is_estimate(&self) -> bool {
        matches!(self, Self::Estimated(_))
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Driver => Ok(()),
            Self::Computed(how) => f.write_str(how),
            Self::Profile(id) => write!(f, "not reported; figure of the profile {id}"),
            Self::Estimated(how) => write!(f, "estimated: {how}"),
        }
    }
}

/// A peak rate in 10^12 operations per second.
pub struct PeakFigure {
    /// Key in the table of peaks.
    pub key: &'static str,
    /// The rate.
    pub tflops: Figure<f64>,
    /// Basis of the rate.
    pub basis: Basis,
    /// Code of the source.
    pub source: String,
}

/// Figures of a whole GPU for a profile of its own.
pub struct DetectedFigures {
    /// The driver's name.
    pub name: Option<String>,
    /// PCI id of NVIDIA.
    pub pci_id: Option<PciId>,
    /// Compute capability.
    pub capability: ComputeCapability,
    /// True for a laptop's GPU.
    pub is_mobile: bool,
    /// Advertised memory, MiB.
    pub nominal_mib: u64,
    /// NVML's total, MiB.
    pub nvml_total_mib: Option<u64>,
    /// CUDA's total, MiB.
    pub cuda_total_mib: Option<u64>,
    /// Width of the memory bus, bits.
    pub bus_bits: Option<u32>,
    /// Memory bandwidth, GB/s.
    pub bandwidth_gb_s: Figure<f64>,
    /// SM count.
    pub sm_count: Figure<u32>,
    /// Boost clock, MHz.
    pub boost_mhz: Figure<f64>,
    /// L2 cache, MiB.
    pub l2_mib: Option<f64>,
    /// True if tensor cores run at half rate with fp32 accumulation.
    pub is_half_rate: bool,
    /// Peak rates.
    pub peaks: Vec<PeakFigure>,
    /// Board power, watts.
    pub tdp_w: Option<f64>,
}

impl DetectedFigures {
    /// Code of the driver in SOURCES.md.
    pub const SOURCE: &str = "driver";

    /// Collects the figures of a GPU. Figures that the driver does not report come from `exact`, the profile that the GPU
    /// matches exactly; without one, they are left out or estimated.
    ///
    /// # Errors
    ///
    /// [`NoDescription`] for a part of a GPU, or if a figure that every profile needs is unknown.
    pub fn new(reading: &GpuReading, exact: Option<&Profile>) -> Result<Self, NoDescription> {
        if reading.is_mig_slice() || reading.is_vgpu() {
            return Err(NoDescription::Part);
        }
        let reported = reading.compute_capability.filter(|capability| capability.is_plausible());
        let capability = reported.or(exact.map(|profile| profile.compute_capability));
        let capability = capability.ok_or(NoDescription::ComputeCapability)?;
        let is_unified = reading.shares_memory(exact);
        if capability.is_integrated() && !is_unified {
            return Err(NoDescription::SharedMemory { capability });
        }
        let total = reading.memory_total.or(exact.map(|profile| profile.memory.usable()));
        let total = total.filter(|total| *total >= Bytes::from_mib(64)).ok_or(NoDescription::Memory)?;
        let total_mib = total.0 >> 20;
        let by_total = || nominal_mib(total_mib, reading.memory_bus_bits, is_unified);
        let nominal_mib = exact.map_or_else(by_total, |profile| profile.memory.nominal_mib);
        let nvml_total_mib = reading.memory_total.filter(|_| !is_unified).map(|total| total.0 >> 20);
        let is_plausible = |mib: &u64| (nominal_mib * 7 / 8..=nominal_mib).contains(mib);
        let cuda_total = reading.cuda_memory_total.or(reading.memory_total.filter(|_| is_unified));

        let name = reading.name.as_deref().filter(|name| !name.trim().is_empty());
        let pci_id = reading.pci_id.filter(|id| id.is_nvidia());
        let line = ProductLine::new(name, capability);
        let estimate = Estimate::new(capability, line, total);
        let [smallest, largest] = estimate.memory_mib();
        if exact.is_none() && !(smallest..=largest).contains(&total.mib()) {
            let [smallest, largest] = [smallest, largest].map(|mib| Bytes::from_mib(mib as u64));
            return Err(NoDescription::ImplausibleMemory { reported: total, smallest, largest });
        }
        if name.is_none() && pci_id.is_none() {
            return Err(NoDescription::Identity);
        }
        let boost_mhz = boost(reading, exact, estimate.clock_mhz);
        let mut reported = reading.clone();
        reported.max_sm_clock_mhz = Some(boost_mhz.value as u32);
        if is_unified {
            // CUDA reports the clock of the multiprocessors as that of unified memory.
            reported.max_memory_clock_mhz = None;
        }
        let speed = Speed::from_reading(&reported, capability, total);
        let estimated = |figure| speed.estimated.contains(&figure);
        let known = |figure: Option<f64>| figure.zip(exact.map(|profile| profile.id.clone()));
        let by_class =
            || Origin::Estimated(format!("as other GPUs of compute capability {capability} with its memory"));
        let choose =
            |value: f64, is_estimate: bool, exact: Option<f64>, origin: Origin| match (is_estimate, known(exact)) {
                (false, _) => Figure { value, origin },
                (true, Some((value, id))) => Figure { value, origin: Origin::Profile(id) },
                (true, None) => Figure { value, origin: by_class() },
            };
        let count = exact.and_then(|profile| profile.compute.sm_count).map(f64::from);
        let sm_count = choose(f64::from(speed.sm_count), estimated(EstimatedFigure::SmCount), count, Origin::Driver);
        let bandwidth_gb_s = choose(
            speed.bandwidth_gb_s,
            estimated(EstimatedFigure::Bandwidth),
            exact.and_then(|profile| profile.memory.bandwidth_gb_s),
            Origin::Computed("2 x memory clock x bus width / 8"),
        );
        let by_units = if boost_mhz.origin.is_estimate() {
            Origin::Estimated("SMs x lanes x 2 x boost_mhz".to_owned())
        } else {
            Origin::Computed("SMs x lanes x 2 x boost_mhz")
        };
        let has_such_bus = |bits: &u32| {
            let [low, high] = bandwidth_range(None, *bits);
            bandwidth_gb_s.origin.is_estimate() || (low..=high).contains(&bandwidth_gb_s.value)
        };
        let bus_bits = within(reading.memory_bus_bits.map(f64::from), BUS_BITS).map(|bits| bits as u32);
        let fp32 = choose(speed.fp32_tflops, estimated(EstimatedFigure::Fp32), None, by_units);
        let has_tensor_cores = has_f16(capability, name, exact);
        let is_half_rate = exact
            .map_or_else(|| has_tensor_cores && is_geforce(name), |profile| profile.compute.half_rate_fp32_accumulate);
        Ok(Self {
            peaks: peaks(fp32, capability, is_half_rate, has_tensor_cores, exact),
            name: name.map(str::to_owned),
            pci_id,
            capability,
            is_mobile: line == Some(ProductLine::Laptop),
            nominal_mib,
            nvml_total_mib,
            cuda_total_mib: cuda_total.map(|total| total.0 >> 20).filter(is_plausible),
            bus_bits: bus_bits.filter(has_such_bus),
            bandwidth_gb_s,
            sm_count: Figure { value: sm_count.value as u32, origin: sm_count.origin },
            boost_mhz,
            l2_mib: within(reading.l2_cache.map(Bytes::mib), L2_MIB),
            is_half_rate,
            tdp_w: within(reading.default_power_limit_mw.map(|limit| f64::from(limit) / 1e3), TDP_W),
        })
    }
}

/// Returns a reported figure that is in the range of all GPUs.
fn within(figure: Option<f64>, [low, high]: [f64; 2]) -> Option<f64> {
    figure.filter(|figure| (low..=high).contains(figure))
}

/// Boost clock. NVML reports the highest clock, which is up to a third above it.
fn boost(reading: &GpuReading, exact: Option<&Profile>, class_mhz: f64) -> Figure<f64> {
    if let Some(value) = plausible(reading.boost_clock_mhz.map(f64::from), class_mhz) {
        return Figure { value, origin: Origin::Driver };
    }
    if let Some((profile, value)) = exact.and_then(|profile| Some((profile, profile.compute.boost_mhz?))) {
        return Figure { value, origin: Origin::Profile(profile.id.clone()) };
    }
    let highest = plausible(reading.max_sm_clock_mhz.map(f64::from), class_mhz);
    let (value, how) = match highest {
        Some(highest) if highest <= class_mhz => (highest, "the highest clock of the driver"),
        _ => (class_mhz, "as other GPUs of its compute capability"),
    };
    Figure { value, origin: Origin::Estimated(how.to_owned()) }
}

/// The fp32 peak, and those of the tensor cores by their ratio to it.
fn peaks(
    fp32: Figure<f64>,
    capability: ComputeCapability,
    is_half_rate: bool,
    has_tensor_cores: bool,
    exact: Option<&Profile>,
) -> Vec<PeakFigure> {
    let ratio = fp16_per_fp32(capability, is_half_rate).filter(|_| has_tensor_cores);
    let fp16 = ratio.map(|ratio| ratio * fp32.value);
    let estimate = |key, share: f64| {
        let value = fp16? * share;
        let how = format!("{} x fp32, as other GPUs of compute capability {capability}", ratio? * share);
        let tflops = Figure { value, origin: Origin::Estimated(how) };
        Some(PeakFigure { key, tflops, basis: Basis::Estimated, source: DetectedFigures::SOURCE.to_owned() })
    };
    let known = |key, peak: fn(&Peaks) -> &Option<Peak>| {
        let profile = exact?;
        let Peak { tflops, basis, source, .. } = peak(&profile.peaks).as_ref()?;
        let tflops = Figure { value: *tflops, origin: Origin::Profile(profile.id.clone()) };
        Some(PeakFigure { key, tflops, basis: *basis, source: source.clone() })
    };
    let basis = if fp32.origin.is_estimate() { Basis::Estimated } else { Basis::Derived };
    let by_units = PeakFigure { key: "fp32", tflops: fp32, basis, source: DetectedFigures::SOURCE.to_owned() };
    let fp32 = known("fp32", |peaks| &peaks.fp32).unwrap_or(by_units);
    let tf32 = known("tf32", |peaks| &peaks.tf32).or_else(|| estimate("tf32", 0.5));
    let bf16 = known("bf16", |peaks| &peaks.bf16).or_else(|| estimate("bf16", 1.0));
    let fp16 = known("fp16", |peaks| &peaks.fp16).or_else(|| estimate("fp16", 1.0));
    let (tf32, bf16) = (tf32.filter(|_| capability.has_tf32()), bf16.filter(|_| capability.has_tensor_bf16()));
    [Some(fp32), tf32, bf16, fp16].into_iter().flatten().collect()
}
