//! Profiles of detected GPUs: each figure from the driver, a profile, or an estimate.

use core::fmt;
use std::collections::BTreeMap;

use thiserror::Error;

use super::facts::{Estimate, Speed, fp16_per_fp32, has_f16, is_geforce, plausible};
use super::figures::{BUS_BITS, L2_MIB, TDP_W};
use super::validate::{WIDEST_WITHOUT_HBM, bandwidth_range};
use super::{Basis, Board, Compute, Memory, Peak, Peaks, Profile, ProfileId};
use crate::Bytes;
use crate::device::{ComputeCapability, EstimatedFigure, GpuReading, ProductLine};

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
struct Figure {
    value: f64,
    origin: Origin,
}

/// Origin of a figure.
enum Origin {
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
    const fn is_estimate(&self) -> bool {
        matches!(self, Self::Estimated(_))
    }
}

/// A remark beside the figure; empty for a reported one.
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

/// A whole GPU as a profile of its own.
pub struct DetectedProfile {
    /// The figures. Without an exactly matching profile, the name is a placeholder.
    pub profile: Profile,
    /// Remarks on figures by key, with dots between tables: origins of figures that the driver does not report.
    pub notes: BTreeMap<&'static str, String>,
}

/// Code of the driver in SOURCES.md.
const SOURCE: &str = "driver";

/// Properties that neither NVML nor CUDA reports.
const UNREPORTED: [&str; 5] = ["chip", "kind of memory", "ECC as shipped", "PCI Express", "NVLink"];

impl DetectedProfile {
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
        let name = reading.name.as_deref().filter(|name| !name.trim().is_empty());
        let pci_id = reading.pci_id.filter(|id| id.is_nvidia());
        let line = ProductLine::new(name, capability);
        let memory = memory(reading, exact, total, is_unified);
        let sold = Bytes::from_mib(memory.nominal_mib);
        let estimate = Estimate::new(capability, line, sold);
        let [smallest, largest] = estimate.memory_mib().map(|mib| Bytes::from_mib(mib as u64));
        if exact.is_none() && ![total, sold].iter().all(|size| (smallest..=largest).contains(size)) {
            return Err(NoDescription::ImplausibleMemory { reported: total, smallest, largest });
        }
        if name.is_none() && pci_id.is_none() {
            return Err(NoDescription::Identity);
        }

        let mut notes = BTreeMap::new();
        notes.insert("memory.nominal_mib", "the driver's total, rounded up to a size that is sold".to_owned());
        let boost = boost(reading, exact, estimate.clock_mhz);
        let [sm_count, bandwidth, fp32] = speed(reading, exact, capability, sold, is_unified, &boost);
        let bus_bits = within(reading.memory_bus_bits.map(f64::from), BUS_BITS).map(|bits| bits as u32);
        let has_such_bus = |bits: &u32| {
            let [low, high] = bandwidth_range(None, *bits);
            bandwidth.origin.is_estimate() || (low..=high).contains(&bandwidth.value)
        };
        let has_tensor_cores = has_f16(capability, name, exact);
        let half_rate_fp32_accumulate = exact
            .map_or_else(|| has_tensor_cores && is_geforce(name), |profile| profile.compute.half_rate_fp32_accumulate);
        if half_rate_fp32_accumulate {
            let note = "GeForce: tensor cores run at half rate with fp32 accumulation";
            notes.insert("compute.half_rate_fp32_accumulate", note.to_owned());
        }
        let architecture = capability.architecture();
        if architecture.is_none() {
            notes.insert("architecture", "not listed for this compute capability".to_owned());
        }
        let rates = [(EstimatedFigure::SmCount, &sm_count), (EstimatedFigure::Bandwidth, &bandwidth)];
        let estimated = rates.into_iter().filter(|(_, figure)| figure.origin.is_estimate()).map(|(figure, _)| figure);
        let estimated: Vec<_> = estimated.collect();
        if !estimated.is_empty() {
            notes.insert("estimated", "delete a figure's name after its correction".to_owned());
        }
        let count = sm_count.value as u32;
        let is_known = !sm_count.origin.is_estimate() && architecture.is_some();
        let l2_mib = within(reading.l2_cache.map(Bytes::mib), L2_MIB);
        let tdp_w = within(reading.default_power_limit_mw.map(|limit| f64::from(limit) / 1e3), TDP_W);
        let unreported = [("L2 cache", l2_mib.is_none()), ("board power", tdp_w.is_none())];
        let unreported =
            unreported.into_iter().filter(|(_, is_unreported)| *is_unreported).map(|(property, _)| property);
        let origins = [
            ("memory.bandwidth_gb_s", &bandwidth.origin),
            ("compute.sm_count", &sm_count.origin),
            ("compute.boost_mhz", &boost.origin),
        ];
        notes.extend(origins.into_iter().map(|(key, origin)| (key, origin.to_string())));
        let exact_peaks = exact.filter(|profile| has_count(profile, reading.sm_count)).map(|it| (&it.id, &it.peaks));
        let peaks = peaks(fp32, capability, half_rate_fp32_accumulate, has_tensor_cores, exact_peaks, &mut notes);
        let profile = Profile {
            id: exact.map_or_else(ProfileId::placeholder, |profile| profile.id.clone()),
            names: name.map(str::to_owned).into_iter().collect(),
            names_source: name.map(|_| SOURCE.to_owned()),
            pci_ids: pci_id.into_iter().collect(),
            pci_ids_source: pci_id.map(|_| SOURCE.to_owned()),
            pci_ids_shared_with: Vec::new(),
            architecture: architecture.unwrap_or("unknown").to_owned(),
            chip: None,
            compute_capability: capability,
            mobile: line == Some(ProductLine::Laptop),
            modified: false,
            sources: vec![SOURCE.to_owned()],
            unknown: UNREPORTED.into_iter().chain(unreported).map(str::to_owned).collect(),
            estimated,
            notes: None,
            memory: Memory {
                bus_bits: bus_bits.filter(has_such_bus),
                bandwidth_gb_s: Some(rounded(bandwidth.value)),
                ..memory
            },
            compute: Compute {
                sm_count: Some(count),
                cuda_cores: capability.cores_per_sm().filter(|_| is_known).and_then(|lanes| lanes.checked_mul(count)),
                boost_mhz: Some(rounded(boost.value)),
                l2_mib: l2_mib.map(rounded),
                l2_source: l2_mib.map(|_| SOURCE.to_owned()),
                half_rate_fp32_accumulate,
                ..Compute::default()
            },
            peaks,
            board: Board { tdp_w: tdp_w.map(rounded), ..Board::default() },
        };
        Ok(Self { profile, notes })
    }
}

/// Memory totals.
fn memory(reading: &GpuReading, exact: Option<&Profile>, total: Bytes, is_unified: bool) -> Memory {
    let by_total = || nominal_mib(total.0 >> 20, reading.memory_bus_bits, is_unified);
    let nominal_mib = exact.map_or_else(by_total, |profile| profile.memory.nominal_mib);
    let is_plausible = |mib: &u64| (nominal_mib * 7 / 8..=nominal_mib).contains(mib);
    let by_cuda = reading.cuda_memory_total.or(reading.memory_total.filter(|_| is_unified));
    let mib = |total: Option<Bytes>| total.map(|total| total.0 >> 20);
    Memory {
        nominal_mib,
        kind: None,
        nvml_total_mib: mib(reading.memory_total.filter(|_| !is_unified)).into_iter().collect(),
        cuda_total_mib: mib(by_cuda).filter(is_plausible).into_iter().collect(),
        ecc_default_on: None,
        bandwidth_gb_s: None,
        bandwidth_source: None,
        bus_bits: None,
    }
}

/// SM count, bandwidth and fp32 peak.
fn speed(
    reading: &GpuReading,
    exact: Option<&Profile>,
    capability: ComputeCapability,
    total: Bytes,
    is_unified: bool,
    boost: &Figure,
) -> [Figure; 3] {
    let mut reported = reading.clone();
    reported.max_sm_clock_mhz = Some(boost.value as u32);
    if is_unified {
        // CUDA reports the clock of the multiprocessors as that of unified memory.
        reported.max_memory_clock_mhz = None;
    }
    let speed = Speed::from_reading(&reported, capability, total);
    let known = |figure: Option<f64>| figure.zip(exact.map(|profile| profile.id.clone()));
    let by_class = || Origin::Estimated(format!("as other GPUs of compute capability {capability} with its memory"));
    let choose = |value, figure, exact, origin| match (speed.estimated.contains(&figure), known(exact)) {
        (false, _) => Figure { value, origin },
        (true, Some((value, id))) => Figure { value, origin: Origin::Profile(id) },
        (true, None) => Figure { value, origin: by_class() },
    };
    let units = "SMs x lanes x 2 x boost_mhz";
    let by_units =
        if boost.origin.is_estimate() { Origin::Estimated(units.to_owned()) } else { Origin::Computed(units) };
    let count = exact.and_then(|profile| profile.compute.sm_count).map(f64::from);
    let bandwidth = exact.and_then(|profile| profile.memory.bandwidth_gb_s);
    let by_bus = Origin::Computed("2 x memory clock x bus width / 8");
    [
        choose(f64::from(speed.sm_count), EstimatedFigure::SmCount, count, Origin::Driver),
        choose(speed.bandwidth_gb_s, EstimatedFigure::Bandwidth, bandwidth, by_bus),
        choose(speed.fp32_tflops, EstimatedFigure::Fp32, None, by_units),
    ]
}

/// A number with one digit behind the point, and three digits at least.
fn rounded(value: f64) -> f64 {
    let digits = if value < 10.0 { 100.0 } else { 10.0 };
    (value * digits).round() / digits
}

/// Returns a reported figure that is in the range of all GPUs.
fn within(figure: Option<f64>, [low, high]: [f64; 2]) -> Option<f64> {
    figure.filter(|figure| (low..=high).contains(figure))
}

/// Boost clock. NVML reports the highest clock, which is up to a third above it.
fn boost(reading: &GpuReading, exact: Option<&Profile>, class_mhz: f64) -> Figure {
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

/// Returns true unless the profile may be of another number of SMs: published peaks are those of a number.
fn has_count(profile: &Profile, reported: Option<u32>) -> bool {
    reported.is_none() || profile.compute.sm_count == reported
}

/// The fp32 peak, and those of the tensor cores by their ratio to it.
fn peaks(
    fp32: Figure,
    capability: ComputeCapability,
    is_half_rate: bool,
    has_tensor_cores: bool,
    exact: Option<(&ProfileId, &Peaks)>,
    notes: &mut BTreeMap<&'static str, String>,
) -> Peaks {
    let ratio = fp16_per_fp32(capability, is_half_rate).filter(|_| has_tensor_cores);
    let by_ratio = |share: f64| {
        let how = format!("{} x fp32, as other GPUs of compute capability {capability}", ratio? * share);
        Some(Figure { value: ratio? * fp32.value * share, origin: Origin::Estimated(how) })
    };
    let tf32 = by_ratio(0.5).filter(|_| capability.has_tf32());
    let [bf16, fp16] = [by_ratio(1.0).filter(|_| capability.has_tensor_bf16()), by_ratio(1.0)];
    let mut peak = |key, of: fn(&Peaks) -> &Option<Peak>, is_there: bool, otherwise: Option<Figure>| {
        let known = exact.and_then(|(id, peaks)| Some((id, of(peaks).as_ref()?)));
        let (tflops, basis, source, note) = match (known, otherwise) {
            (Some((id, Peak { tflops, basis, source, .. })), _) if is_there => {
                (*tflops, *basis, source.clone(), Origin::Profile(id.clone()))
            }
            (_, Some(Figure { value, origin })) => {
                let basis = if origin.is_estimate() { Basis::Estimated } else { Basis::Derived };
                (value, basis, SOURCE.to_owned(), origin)
            }
            _ => return None,
        };
        notes.insert(key, note.to_string());
        Some(Peak { tflops: rounded(tflops), basis, source, reached: None, reached_source: None })
    };
    Peaks {
        tf32: peak("peaks.tf32", |peaks| &peaks.tf32, capability.has_tf32(), tf32),
        bf16: peak("peaks.bf16", |peaks| &peaks.bf16, capability.has_tensor_bf16(), bf16),
        fp16: peak("peaks.fp16", |peaks| &peaks.fp16, true, fp16),
        fp32: peak("peaks.fp32", |peaks| &peaks.fp32, true, Some(fp32)),
        fp16_native: None,
        fp8: None,
    }
}

/// The advertised size in MiB of a GPU with this total. Drivers keep up to an eighth of it (ECC, firmware).
///
/// Memory chips have 32 bits of the bus and multiples of 512 MiB. HBM has a wider bus and sizes in GiB. A GPU that shares
/// the host's memory has a power of two.
fn nominal_mib(total_mib: u64, bus_bits: Option<u32>, is_unified: bool) -> u64 {
    let chips = bus_bits.filter(|bits| *bits <= WIDEST_WITHOUT_HBM).map_or(0, |bits| u64::from(bits) / 32);
    let is_near = |nominal: &u64| total_mib * 8 >= nominal * 7;
    let by_chips = (chips > 0).then(|| total_mib.next_multiple_of(chips * 512)).filter(is_near);
    let by_gib = || Some(total_mib.next_multiple_of(1024)).filter(is_near);
    if is_unified {
        return total_mib.checked_next_power_of_two().filter(is_near).or_else(by_gib).unwrap_or(total_mib);
    }
    by_chips.or_else(by_gib).unwrap_or(total_mib)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::ProfileTable;

    #[test]
    fn every_total_of_a_profile_gives_the_advertised_memory() {
        for profile in ProfileTable::builtin().iter() {
            let memory = &profile.memory;
            let is_unified = profile.compute_capability.is_integrated();
            for total in &memory.nvml_total_mib {
                let found = nominal_mib(*total, memory.bus_bits, is_unified);
                let ratio = found as f64 / memory.nominal_mib as f64;
                assert!((0.95..=1.05).contains(&ratio), "{}: {total} MiB gives {found}", profile.id);
            }
        }
    }

    #[test]
    fn an_odd_total_is_never_far_below_the_advertised_memory() {
        for (total, bus, is_unified, nominal) in [
            (8193, Some(256), false, 9216),
            (15360, Some(256), false, 16384),
            (143_771, Some(6144), false, 144_384),
            (122_572, None, true, 131_072),
            (3500, None, false, 3500),
            (100, Some(0), false, 100),
        ] {
            let found = nominal_mib(total, bus, is_unified);
            assert_eq!(found, nominal, "{total} {bus:?}");
        }
    }

    #[test]
    fn figures_have_three_digits_at_least() {
        let rounded = [9.996, 10.04, 82.58, 1.234, 0.5].map(rounded);
        assert_eq!(rounded.map(|value| value.to_string()), ["10", "10", "82.6", "1.23", "0.5"]);
    }
}
