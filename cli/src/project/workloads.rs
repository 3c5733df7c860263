//! The workloads of a package: those that its `gpu-tuned.toml` names, and those that were measured.

use std::collections::BTreeMap;

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::dims::Schema as _;
use gpu_tuned_core::measured::Measured;
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, suggest};
use gpu_tuned_project::lock::{Lock, LockedWorkload};

use super::Project;
use crate::error::Error;

/// A workload as the files describe it.
pub(crate) struct Described<'a> {
    pub name: &'a str,
    pub spec: &'a WorkloadSpec,
    /// What the files ask of its plan.
    pub goal: Goal,
    /// What `gpu-tuned.lock` has on record of this description.
    pub locked: Option<&'a LockedWorkload>,
    /// What of that is of the Burn that the package is built with.
    current: Option<&'a LockedWorkload>,
}

impl Described<'_> {
    /// What one training step costs.
    pub(crate) fn workload(&self) -> Workload {
        let measured = self.current.map(|locked| locked.measured.clone()).unwrap_or_default();
        self.spec.workload().with_measured(measured)
    }
}

impl Project {
    /// The workloads that the files describe, by name: all, or the one that was asked for.
    pub(crate) fn workloads(&self, only: Option<&str>) -> Result<Vec<Described<'_>>, Error> {
        let measured = self.lock.workload.iter().filter_map(|(name, locked)| Some((name, locked.described.as_ref()?)));
        // What the file says goes before what was measured under the same name.
        let specs: BTreeMap<&str, &WorkloadSpec> =
            measured.chain(&self.file.workloads).map(|(name, spec)| (name.as_str(), spec)).collect();
        let mut undescribed = self.lock.workload.keys().filter(|name| !specs.contains_key(name.as_str()));
        let is_meant = |name: &&String| only.map_or(specs.is_empty(), |only| only == *name);
        if let Some(name) = undescribed.find(is_meant) {
            return Err(Error::Undescribed { name: name.clone() });
        }
        if specs.is_empty() {
            return Err(Error::NoWorkload { package: self.name().to_owned() });
        }
        let all = specs.iter().map(|(name, spec)| self.described(name, spec));
        let Some(only) = only else { return Ok(all.collect()) };
        match specs.get_key_value(only) {
            Some((name, spec)) => Ok(vec![self.described(name, spec)]),
            None => Err(Error::UnknownWorkload {
                name: only.to_owned(),
                hint: suggest(only, specs.keys().copied()),
                names: specs.into_keys().map(str::to_owned).collect(),
            }),
        }
    }

    /// The workload that was asked for, or the only one.
    pub(crate) fn workload(&self, only: Option<&str>) -> Result<Described<'_>, Error> {
        let all = self.workloads(only)?;
        let names = all.iter().map(|workload| workload.name.to_owned()).collect();
        let mut all = all.into_iter();
        match (all.next(), all.next()) {
            (Some(workload), None) => Ok(workload),
            _ => Err(Error::SeveralWorkloads { names }),
        }
    }

    /// What was measured of a model that is described like this, with the Burn that the package is built with, rather on these
    /// devices.
    pub(crate) fn measured_for(&self, spec: &WorkloadSpec, devices: &[DeviceFacts]) -> Option<(&str, &Measured)> {
        self.current.measured_for(None, spec, devices).map(|(name, locked)| (name, &locked.measured))
    }

    /// Whether the package's file describes a workload of this name.
    pub(crate) fn describes(&self, name: &str) -> bool {
        self.file.workloads.contains_key(name)
    }

    fn described<'a>(&'a self, name: &'a str, spec: &'a WorkloadSpec) -> Described<'a> {
        let of_program = self.lock.workload.get(name).and_then(|locked| locked.goal.as_ref());
        let goal =
            of_program.map_or_else(|| self.file.goal.clone(), |of_program| laid_over(&self.file.goal, of_program));
        let (locked, current) = (recorded(&self.lock, name, spec), recorded(&self.current, name, spec));
        Described { name, spec, goal, locked, current }
    }
}

/// What was measured of this description: under its own name, else under another.
fn recorded<'a>(lock: &'a Lock, name: &str, spec: &WorkloadSpec) -> Option<&'a LockedWorkload> {
    lock.measured_for(Some(name), spec, &[]).map(|(_, locked)| locked)
}

/// The goal of the file, with what differs from the defaults in that of the program in its place.
fn laid_over(file: &Goal, program: &Goal) -> Goal {
    let mut values = file.values();
    let said = program.values();
    // There are two ways to say how large a step is.
    if said.contains_key("global_batch") || said.contains_key("global_tokens") {
        values.retain(|name, _| !["global_batch", "global_tokens", "mean_tokens"].contains(name));
    }
    values.extend(said);
    Goal::from_values(&values)
}
