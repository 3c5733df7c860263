//! Matches a GPU to a profile, with the differences.

use core::fmt;

use serde::{Deserialize, Serialize, Serializer};

use crate::Bytes;
use crate::device::{ComputeCapability, GpuReading, PciId, ProductName};
use crate::profile::{Profile, ProfileId, ProfileTable};

/// Result of matching a GPU, from best to worst.
///
/// Serializes with the profile's id.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "match", rename_all = "snake_case")]
pub enum Match {
    /// Name, PCI id, memory and SM count match the profile, as far as the driver reports them.
    Exact {
        /// The profile.
        #[serde(serialize_with = "serialize_id")]
        profile: Box<Profile>,
    },
    /// The name or the PCI id matches the profile, but something else differs.
    Variant {
        /// The nearest profile.
        #[serde(serialize_with = "serialize_id")]
        profile: Box<Profile>,
        /// The differences from the profile.
        differences: Vec<Difference>,
    },
    /// No profile has this name or PCI id, but the compute capability is available.
    Class {
        /// The GPU's compute capability.
        compute_capability: ComputeCapability,
    },
    /// The driver reports nothing that identifies the GPU.
    Unknown,
}

impl Match {
    /// The matching profile, if any.
    pub fn profile(&self) -> Option<&Profile> {
        match self {
            Self::Exact { profile } | Self::Variant { profile, .. } => Some(profile),
            Self::Class { .. } | Self::Unknown => None,
        }
    }

    /// The profile that all readings match, if any.
    pub fn exact_profile(&self) -> Option<&Profile> {
        if let Self::Exact { profile } = self { Some(profile) } else { None }
    }
}

fn serialize_id<S: Serializer>(profile: &Profile, serializer: S) -> Result<S::Ok, S::Error> {
    profile.id.serialize(serializer)
}

/// One difference between a GPU and its profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Difference {
    /// The profile lists another name.
    Name {
        /// The name found.
        found: Option<String>,
    },
    /// The profile lists other PCI ids.
    PciId {
        /// The id found.
        found: String,
    },
    /// Another amount of memory.
    Memory {
        /// The profile's figure.
        expected: Bytes,
        /// The driver's figure.
        found: Bytes,
    },
    /// Another number of multiprocessors.
    SmCount {
        /// The profile's figure.
        expected: u32,
        /// The driver's figure.
        found: u32,
    },
    /// Another compute capability.
    ComputeCapability {
        /// The profile's figure.
        expected: ComputeCapability,
        /// The driver's figure.
        found: ComputeCapability,
    },
    /// A MIG slice of the GPU.
    MigSlice,
    /// A virtual share of the GPU.
    Vgpu,
    /// The driver's report matches several profiles equally well.
    Ambiguous {
        /// The other profiles.
        with: Vec<ProfileId>,
    },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name { found: Some(found) } => write!(f, "the driver calls it \"{found}\""),
            Self::Name { found: None } => f.write_str("the driver gives it no name"),
            Self::PciId { found } => write!(f, "its PCI id is {found}"),
            Self::Memory { expected, found } => write!(f, "{found} of memory instead of {expected}"),
            Self::SmCount { expected, found } => write!(f, "{found} multiprocessors instead of {expected}"),
            Self::ComputeCapability { expected, found } => {
                write!(f, "compute capability {found} instead of {expected}")
            }
            Self::MigSlice => f.write_str("a MIG slice of it"),
            Self::Vgpu => f.write_str("a virtual share of it"),
            Self::Ambiguous { with } => {
                let others: Vec<_> = with.iter().map(ProfileId::as_str).collect();
                write!(f, "equally close to {}", others.join(" or "))
            }
        }
    }
}

/// Relative tolerance for memory totals: drivers of different ages reserve up to 2% more or less.
const MEMORY_TOLERANCE: f64 = 0.025;

/// Part of a module's unified memory that the host's kernel reports. Firmware, display and kernel keep the rest: 3% to 7% of
/// 8 to 128 GiB. The next smaller module has half of the memory.
const UNIFIED_SHARE: core::ops::RangeInclusive<f64> = 0.75..=1.0;

/// Matches a GPU by its PCI id and its whole name, never by a substring. Candidates are the profiles of `own`, and
/// shipped ones that `own` does not replace.
///
/// No GPU matches two profiles exactly. If the report is ambiguous, the GPU is a variant of the profile with the
/// least memory.
pub fn identify(reading: &GpuReading, own: &ProfileTable) -> Match {
    let name = reading.name.as_deref().map(ProductName::parse);
    let own_profiles = own
        .iter()
        .filter(|profile| could_be(reading, name, profile.names.iter().map(String::as_str), &profile.pci_ids))
        .cloned();
    let shipped = ProfileTable::shipped_where(|id, names, pci_ids| {
        own.get(id).is_none() && could_be(reading, name, names.iter().copied(), pci_ids)
    });
    // Without a total the GPU is the product, not a board that somebody changed.
    let candidates = own_profiles.chain(shipped).filter(|profile| !profile.modified || reading.memory_total.is_some());
    let mut candidates: Vec<_> = candidates.collect();
    keep_nearest_module(&mut candidates, reading);
    let compared = candidates.into_iter().map(|profile| (differences(&profile, name, reading), profile)).collect();
    match nearest(compared) {
        Some((differences, profile)) if differences.is_empty() => Match::Exact { profile: Box::new(profile) },
        Some((differences, profile)) => Match::Variant { profile: Box::new(profile), differences },
        None => match reading.compute_capability {
            Some(compute_capability) => Match::Class { compute_capability },
            None => Match::Unknown,
        },
    }
}

/// Keeps one size of module with unified memory if the total, such as that of a container, is the size of none: the smallest
/// one that has so much memory, else the largest one.
fn keep_nearest_module(candidates: &mut Vec<Profile>, reading: &GpuReading) {
    let Some(total) = reading.memory_total else { return };
    let is_module = |profile: &Profile| profile.compute_capability.is_integrated();
    if !candidates.iter().all(|profile| is_module(profile) && memory_difference(profile, reading).is_some()) {
        return;
    }
    let sizes = || candidates.iter().map(|profile| profile.memory.nominal_mib);
    let enough = sizes().filter(|mib| Bytes::from_mib(*mib) >= total).min();
    if let Some(size) = enough.or_else(|| sizes().max()) {
        candidates.retain(|profile| profile.memory.nominal_mib == size);
    }
}

/// The profile with the fewest differences, preferably with this name; equally near profiles are added as one more
/// difference. A board's subsystem can give a PCI id another name.
fn nearest(mut compared: Vec<(Vec<Difference>, Profile)>) -> Option<(Vec<Difference>, Profile)> {
    let is_other_name = |difference: &Difference| matches!(difference, Difference::Name { .. });
    let distance = |differences: &[Difference]| (differences.len(), differences.iter().any(is_other_name));
    let least = compared.iter().map(|(differences, _)| distance(differences)).min()?;
    compared.retain(|(differences, _)| distance(differences) == least);
    let (shipped, mut compared): (Vec<_>, Vec<_>) = compared.into_iter().partition(|(_, profile)| is_shipped(profile));
    let is_replaced = |shipped: &Profile| compared.iter().any(|(_, own)| looks_like(own, shipped));
    let kept: Vec<_> = shipped.into_iter().filter(|(_, profile)| !is_replaced(profile)).collect();
    compared.extend(kept);
    // For equally near profiles, a plan for the least memory fits all of them. Sorting by id makes the result
    // deterministic.
    compared.sort_by(|(_, a), (_, b)| (a.memory.usable(), &a.id).cmp(&(b.memory.usable(), &b.id)));
    let mut compared = compared.into_iter();
    let (mut differences, profile) = compared.next()?;
    let with: Vec<_> = compared.map(|(_, other)| other.id).collect();
    if !with.is_empty() {
        differences.push(Difference::Ambiguous { with });
    }
    Some((differences, profile))
}

fn is_shipped(profile: &Profile) -> bool {
    ProfileTable::builtin_ids().any(|id| id == profile.id.as_str())
}

/// Returns true if no driver can distinguish the two. Then a user's profile that changes other figures replaces its
/// base.
fn looks_like(own: &Profile, shipped: &Profile) -> bool {
    let seen = |profile: &Profile| {
        let memory = &profile.memory;
        (memory.nominal_mib, memory.nvml_total_mib.clone(), memory.cuda_total_mib.clone(), profile.compute.sm_count)
    };
    own.pci_ids == shipped.pci_ids && own.compute_capability == shipped.compute_capability && seen(own) == seen(shipped)
}

fn could_be<'a>(
    reading: &GpuReading,
    name: Option<ProductName<'_>>,
    mut names: impl Iterator<Item = &'a str>,
    pci_ids: &[PciId],
) -> bool {
    names.any(|product| name.is_some_and(|name| name.is_of(product)))
        || reading.pci_id.is_some_and(|id| pci_ids.contains(&id))
}

fn differences(profile: &Profile, name: Option<ProductName<'_>>, reading: &GpuReading) -> Vec<Difference> {
    let mut found = Vec::new();
    if !profile.names.iter().any(|product| name.is_some_and(|name| name.is_of(product))) {
        found.push(Difference::Name { found: reading.name.clone() });
    }
    if let Some(id) = reading.pci_id.filter(|id| !profile.pci_ids.is_empty() && !profile.pci_ids.contains(id)) {
        found.push(Difference::PciId { found: id.to_string() });
    }
    if reading.is_mig_slice() {
        found.push(Difference::MigSlice);
    }
    if reading.is_vgpu() {
        found.push(Difference::Vgpu);
    }
    found.extend(memory_difference(profile, reading));
    let expected = profile.compute_capability;
    if let Some(other) = reading.compute_capability.filter(|other| *other != expected) {
        found.push(Difference::ComputeCapability { expected, found: other });
    }
    if let (Some(expected), Some(other)) = (profile.compute.sm_count, reading.sm_count)
        && expected != other
    {
        found.push(Difference::SmCount { expected, found: other });
    }
    found
}

fn memory_difference(profile: &Profile, reading: &GpuReading) -> Option<Difference> {
    let found = reading.memory_total?;
    let memory = &profile.memory;
    let on_record = memory.nvml_total_mib.iter().chain(&memory.cuda_total_mib).chain([&memory.nominal_mib]);
    let near = |mib: &u64| (found.mib() / *mib as f64 - 1.0).abs() <= MEMORY_TOLERANCE;
    let share = found.mib() / memory.nominal_mib as f64;
    let is_hosts = profile.compute_capability.is_integrated() && UNIFIED_SHARE.contains(&share);
    let expected = Bytes::from_mib(*memory.nvml_total_mib.first().unwrap_or(&memory.nominal_mib));
    (!is_hosts && !on_record.clone().any(near)).then_some(Difference::Memory { expected, found })
}
