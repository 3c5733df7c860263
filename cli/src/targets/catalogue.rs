//! Profiles with their relation to the package and the machine.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use gpu_tuned_core::device::{ComputeCapability, DeviceFacts};
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::plan::largest_piece;
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileNames, ProfileTable, describe_source};
use gpu_tuned_core::{Bytes, Goal, Provenance};
use gpu_tuned_nvml::detect;
use serde::Serialize;

use super::CUDA;
use crate::args::Common;
use crate::error::Error;
use crate::project::Project;
use crate::target::Here;

/// Shipped profiles, the package's own, and the GPUs of this machine.
pub(super) struct Catalogue {
    pub project: Option<Project>,
    pub table: ProfileTable,
    pub here: Here,
    /// Matches of the machine's GPUs, in CUDA's order.
    pub recognised: Vec<Match>,
}

/// A profile with its relation to the package and the machine.
#[derive(Serialize)]
pub(super) struct Entry<'a> {
    pub target: &'a str,
    /// True for a profile of the package's `gpu-tuned.toml`.
    pub own: bool,
    /// True if a feature of the package names the profile.
    pub declared: bool,
    /// True if the package has the usual feature for training on GPUs.
    #[serde(skip)]
    pub trains: bool,
    /// Nearness of a GPU of this machine.
    pub here: Option<Nearness>,
    pub profile: &'a Profile,
    pub limits: Limits,
    /// Titles of sources by their codes.
    pub sources: BTreeMap<&'a str, &'static str>,
}

/// Nearness of a GPU of this machine to a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Nearness {
    Exact,
    Variant,
}

impl Catalogue {
    /// Reads the package, which may be missing unless it is `needed`, and detects the machine; with notes.
    pub(super) fn read(common: &Common, needed: bool) -> Result<(Self, Vec<String>), Error> {
        let is_named = needed || common.package.is_some();
        let (project, notes) = match Project::read_without_releases(common) {
            Ok(project) => (Some(project), Vec::new()),
            Err(Error::NoManifest) if !is_named => (None, Vec::new()),
            Err(Error::SeveralPackages { .. }) if !is_named => (None, left_out(&Project::with_profiles(common)?)),
            Err(error) => return Err(error),
        };
        let table = project.as_ref().map_or_else(|| ProfileTable::builtin().clone(), Project::profiles);
        let machine = detect();
        let recognised = machine.gpus.iter().map(|reading| identify(reading, &table)).collect();
        let here = Here::new(machine, table.clone(), project.as_ref().map(Project::declared).unwrap_or_default());
        Ok((Self { project, table, here, recognised }, notes))
    }

    /// Profiles by architecture, newest first, then by memory and bandwidth, largest first; `generic` last.
    pub(super) fn entries(&self) -> Vec<Entry<'_>> {
        let mut ages = BTreeMap::<&str, ComputeCapability>::new();
        for profile in self.table.iter() {
            let newest = ages.entry(&profile.architecture).or_default();
            *newest = profile.compute_capability.max(*newest);
        }
        let age = |profile: &Profile| ages.get(profile.architecture.as_str()).copied();
        let bandwidth = |profile: &Profile| profile.memory.bandwidth_gb_s.unwrap_or_default() as u64;
        let mut entries: Vec<_> = self.table.iter().map(|profile| self.entry(profile)).collect();
        entries.sort_by_cached_key(|Entry { profile, .. }| {
            let size = (Reverse(profile.memory.nominal_mib), Reverse(bandwidth(profile)));
            (is_generic(profile), Reverse(age(profile)), profile.architecture.clone(), size, profile.id.clone())
        });
        entries
    }

    fn entry<'a>(&self, profile: &'a Profile) -> Entry<'a> {
        Entry {
            target: profile.id.as_str(),
            own: self.project.as_ref().is_some_and(|project| project.is_own(&profile.id)),
            declared: self.declares(profile.id.as_str()),
            trains: self.declares(CUDA),
            here: self.recognised.iter().filter_map(|found| nearness(found, &profile.id)).min(),
            profile,
            limits: Limits::of(&DeviceFacts::nominal(profile)),
            sources: codes(profile).filter_map(|code| Some((code, describe_source(code)?))).collect(),
        }
    }

    /// Returns true if the package has this feature.
    pub(super) fn declares(&self, feature: &str) -> bool {
        self.project.as_ref().is_some_and(|project| project.package().features.contains_key(feature))
    }

    /// Names of profiles that a feature can have.
    pub(super) fn known(&self) -> ProfileNames {
        self.project.as_ref().map_or_else(|| ProfileNames::new(&[]), Project::known)
    }
}

impl Entry<'_> {
    /// Returns true for the conservative profile without a GPU's name.
    pub(super) fn is_generic(&self) -> bool {
        is_generic(self.profile)
    }
}

fn is_generic(profile: &Profile) -> bool {
    profile.id.as_str() == ProfileId::GENERIC
}

fn nearness(found: &Match, id: &ProfileId) -> Option<Nearness> {
    match found {
        Match::Exact { profile } if profile.id == *id => Some(Nearness::Exact),
        Match::Variant { profile, .. } if profile.id == *id => Some(Nearness::Variant),
        _ => None,
    }
}

fn codes(profile: &Profile) -> impl Iterator<Item = &str> {
    let Profile { names_source, pci_ids_source, sources, compute, peaks, board, .. } = profile;
    let fields = [names_source, pci_ids_source, &compute.l2_source, &board.nvlink_source];
    let peaks = [&peaks.fp32, &peaks.tf32, &peaks.bf16, &peaks.fp16, &peaks.fp16_native, &peaks.fp8];
    let of_peaks = peaks.into_iter().flatten().flat_map(|peak| [Some(&peak.source), peak.reached_source.as_ref()]);
    let sources = fields.into_iter().flatten().chain(sources).chain(of_peaks.flatten());
    sources.flat_map(|codes| codes.split(' '))
}

/// A note on packages with profiles of their own, if there are any.
fn left_out(packages: &[String]) -> Vec<String> {
    let note =
        || format!("profiles of the workspace's packages are left out; name one with -p: {}", packages.join(", "));
    if packages.is_empty() { Vec::new() } else { vec![note()] }
}

#[derive(Serialize)]
pub(super) struct Limits {
    /// Memory available to a new process.
    pub available: Bytes,
    pub provenance: Provenance,
    /// Default memory headroom, as a fraction.
    pub headroom_share: f64,
    pub headroom: Bytes,
    pub context: Bytes,
    pub training: Bytes,
    /// Largest tensor that can be allocated.
    pub largest_allocation: Option<Bytes>,
}

impl Limits {
    /// The planner's limits. A detected GPU has a smaller headroom.
    pub(super) fn of(facts: &DeviceFacts) -> Self {
        let kept = if facts.memory_provenance == Provenance::Measured { Goal::HEADROOM_KEPT } else { 1.0 };
        let headroom_share = facts.headroom_share(Goal::default().memory_headroom * kept);
        let available = facts.memory_available;
        let headroom = available.scaled(headroom_share);
        let training = available - headroom - facts.context;
        Self {
            available,
            provenance: facts.memory_provenance,
            headroom_share,
            headroom,
            context: facts.context,
            training,
            largest_allocation: largest_piece(facts).map(|piece| piece.min(training)),
        }
    }
}
