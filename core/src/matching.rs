//! Which profile a GPU is, and how sure that is.

use core::fmt;

use serde::{Deserialize, Serialize};

use crate::Bytes;
use crate::device::{ComputeCapability, GpuReading, PciId, Virtualization};
use crate::profile::{Profile, ProfileTable};

/// What a GPU was recognised as, from sure to unsure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Match {
    /// Name, PCI id, memory and multiprocessors are the profile's, as far as the driver answered.
    Exact {
        /// The profile.
        profile: Box<Profile>,
    },
    /// The name or the PCI id is the profile's, but not everything else.
    Variant {
        /// The nearest profile.
        profile: Box<Profile>,
        /// What differs from it.
        differences: Vec<Difference>,
    },
    /// No profile has this name or PCI id; the compute capability is known.
    Class {
        /// What the GPU can do.
        compute_capability: ComputeCapability,
    },
    /// The driver says nothing that identifies the GPU.
    Unknown,
}

impl Match {
    /// The profile, when there is one.
    pub fn profile(&self) -> Option<&Profile> {
        match self {
            Self::Exact { profile } | Self::Variant { profile, .. } => Some(profile),
            Self::Class { .. } | Self::Unknown => None,
        }
    }
}

/// One way in which a GPU is not what its profile says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Difference {
    /// The driver's name is none of the profile's.
    Name {
        /// The name found.
        found: Option<String>,
    },
    /// The PCI id is none of the profile's.
    PciId {
        /// The id found.
        found: String,
    },
    /// Another amount of memory.
    Memory {
        /// What the profile says.
        expected: Bytes,
        /// What the driver says.
        found: Bytes,
    },
    /// Another number of multiprocessors.
    SmCount {
        /// What the profile says.
        expected: u32,
        /// What the driver says.
        found: u32,
    },
    /// Another compute capability.
    ComputeCapability {
        /// What the profile says.
        expected: ComputeCapability,
        /// What the driver says.
        found: ComputeCapability,
    },
    /// A MIG slice of the GPU.
    MigSlice,
    /// A virtual share of the GPU.
    Vgpu,
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
        }
    }
}

/// How far a total may be from those on record: drivers of different ages reserve up to 2% more or less.
const MEMORY_TOLERANCE: f64 = 0.025;

/// Recognises a GPU by its PCI id and its whole name, never by a part of either, among the profiles of `own` and the
/// shipped ones that it does not replace.
pub fn identify(reading: &GpuReading, own: &ProfileTable) -> Match {
    let own_profiles = own
        .iter()
        .filter(|profile| could_be(reading, profile.names.iter().map(String::as_str), &profile.pci_ids))
        .cloned();
    let shipped = ProfileTable::shipped_where(|id, names, pci_ids| {
        own.get(id).is_none() && could_be(reading, names.iter().copied(), pci_ids)
    });
    let compared = own_profiles.chain(shipped).map(|profile| (differences(&profile, reading), profile));
    // Ordered by id, so that equally near profiles give the same answer every time.
    match compared.min_by(|(a, one), (b, other)| (a.len(), &one.id).cmp(&(b.len(), &other.id))) {
        Some((differences, profile)) if differences.is_empty() => Match::Exact { profile: Box::new(profile) },
        Some((differences, profile)) => Match::Variant { profile: Box::new(profile), differences },
        None => match reading.compute_capability {
            Some(compute_capability) => Match::Class { compute_capability },
            None => Match::Unknown,
        },
    }
}

/// The whole name without what drivers add to or leave off it: the maker in front, the slice behind.
fn bare_name(name: &str) -> &str {
    let name = name.trim();
    let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
    name.split_once(" MIG ").map_or(name, |(whole, _)| whole)
}

fn could_be<'a>(reading: &GpuReading, mut names: impl Iterator<Item = &'a str>, pci_ids: &[PciId]) -> bool {
    let found = reading.name.as_deref().map(bare_name);
    names.any(|name| Some(bare_name(name)) == found) || reading.pci_id.is_some_and(|id| pci_ids.contains(&id))
}

fn names(profile: &Profile, reading: &GpuReading) -> bool {
    let Some(found) = reading.name.as_deref().map(bare_name) else { return false };
    profile.names.iter().any(|name| bare_name(name) == found)
}

fn differences(profile: &Profile, reading: &GpuReading) -> Vec<Difference> {
    let mut found = Vec::new();
    if !names(profile, reading) {
        found.push(Difference::Name { found: reading.name.clone() });
    }
    if let Some(id) = reading.pci_id.filter(|id| !profile.pci_ids.is_empty() && !profile.pci_ids.contains(id)) {
        found.push(Difference::PciId { found: id.to_string() });
    }
    if reading.mig.is_some() {
        found.push(Difference::MigSlice);
    }
    if reading.virtualization == Some(Virtualization::Vgpu) {
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
    let expected = Bytes::from_mib(*memory.nvml_total_mib.first().unwrap_or(&memory.nominal_mib));
    (!on_record.clone().any(near)).then_some(Difference::Memory { expected, found })
}
