//! The profiles there are, and what this package and this machine have to do with them.

use core::cmp::Reverse;
use std::collections::BTreeMap;

use gpu_tuned::{Machine, detect};
use gpu_tuned_core::device::{ComputeCapability, DeviceFacts};
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileNames, ProfileTable, describe_source};
use serde::Serialize;

use super::details::CUDA;
use super::limits::Limits;
use crate::args::Common;
use crate::error::Error;
use crate::project::Project;

/// The shipped profiles, those of the package, and the GPUs of this machine.
pub(super) struct Catalogue {
    pub project: Option<Project>,
    pub table: ProfileTable,
    pub machine: Machine,
    /// What each of the machine's GPUs was recognised as.
    pub recognised: Vec<Match>,
}

/// A profile, and what this package and this machine have to do with it.
#[derive(Serialize)]
pub(super) struct Entry<'a> {
    pub target: &'a str,
    /// Whether it is one of the package's `gpu-tuned.toml`.
    pub own: bool,
    /// Whether a feature of the package names it.
    pub declared: bool,
    /// Whether the package has a feature that trains on GPUs, by its usual name.
    #[serde(skip)]
    pub trains: bool,
    /// How near a GPU of this machine is to it.
    pub here: Option<Nearness>,
    pub profile: &'a Profile,
    /// What a plan for it has to keep to.
    pub limits: Limits,
    /// What the codes of its sources stand for.
    pub sources: BTreeMap<&'a str, &'static str>,
}

/// How near a GPU of this machine is to a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Nearness {
    Exact,
    Variant,
}

impl Catalogue {
    /// Looks at the package, where there is one and it is not `needed` to be there, and at the machine; with what is to be
    /// said of it.
    pub(super) fn read(common: &Common, needed: bool) -> Result<(Self, Vec<String>), Error> {
        let is_named = needed || common.package.is_some();
        let (project, notes) = match Project::read_without_releases(common) {
            Ok(project) => (Some(project), Vec::new()),
            Err(Error::NoManifest) if !is_named => (None, Vec::new()),
            Err(Error::SeveralPackages { names }) if !is_named => (None, vec![left_out(&names)]),
            Err(error) => return Err(error),
        };
        let table = project.as_ref().map_or_else(|| ProfileTable::builtin().clone(), Project::profiles);
        let machine = detect();
        let recognised = machine.gpus.iter().map(|reading| identify(reading, &table)).collect();
        Ok((Self { project, table, machine, recognised }, notes))
    }

    /// Every profile: newest architecture first, and of one the largest and fastest first. Last the one that stands in
    /// where no GPU is named.
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

    /// Whether the package has this feature.
    pub(super) fn declares(&self, feature: &str) -> bool {
        self.project.as_ref().is_some_and(|project| project.package().features.contains_key(feature))
    }

    /// The names that a feature can have.
    pub(super) fn known(&self) -> ProfileNames {
        self.project.as_ref().map_or_else(|| ProfileNames::new(&[]), Project::known)
    }
}

impl Entry<'_> {
    /// Whether it stands in where no GPU is named.
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

/// The codes of all sources that a profile names.
fn codes(profile: &Profile) -> impl Iterator<Item = &str> {
    let Profile { names_source, pci_ids_source, sources, compute, peaks, board, .. } = profile;
    let fields = [names_source, pci_ids_source, &compute.l2_source, &board.nvlink_source];
    let peaks = [&peaks.fp32, &peaks.tf32, &peaks.bf16, &peaks.fp16, &peaks.fp16_native, &peaks.fp8];
    let said = fields.into_iter().flatten().chain(sources);
    said.chain(peaks.into_iter().flatten().map(|peak| &peak.source)).flat_map(|codes| codes.split(' '))
}

fn left_out(packages: &[String]) -> String {
    format!(
        "the workspace has several packages: their own profiles are left out; name one with -p: {}",
        packages.join(", ")
    )
}
