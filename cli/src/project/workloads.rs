//! The workloads of a package: annotated structs, workloads of `gpu-tuned.toml`, and measured workloads.

use std::collections::BTreeMap;

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::dims::Schema as _;
use gpu_tuned_core::measured::Measured;
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, suggest};
use gpu_tuned_project::lock::{Lock, LockedWorkload};

use super::structs::Struct;
use super::{Project, WorkloadArgs};
use crate::error::Error;

pub(crate) struct Described<'a> {
    pub name: &'a str,
    pub spec: &'a WorkloadSpec,
    /// The goal, without the arguments of the command line.
    pub goal: Goal,
    /// The annotated struct with this workload.
    pub structure: Option<&'a Struct>,
    /// The measurements of this description, of every release of Burn.
    pub locked: Option<&'a LockedWorkload>,
    /// The measurements with the package's release of Burn.
    current: &'a Lock,
    /// The name in the lock.
    recorded_name: Option<&'a str>,
}

impl Described<'_> {
    pub(crate) fn workload(&self) -> Workload {
        self.costs(&[])
    }

    /// Returns the costs of one training step on a device. Of several measurements of the description, those on the device
    /// count, as in a build for the device.
    pub(crate) fn workload_on(&self, device: &DeviceFacts) -> Workload {
        self.costs(core::slice::from_ref(device))
    }

    fn costs(&self, devices: &[DeviceFacts]) -> Workload {
        let found = self.current.measured_for(self.recorded_name, self.spec, devices);
        let measured = found.map(|(_, locked)| locked.measured.clone()).unwrap_or_default();
        self.spec.workload().with_measured(measured)
    }
}

impl Project {
    /// Returns the workloads by name: all, or those that the arguments choose.
    ///
    /// # Errors
    ///
    /// When there are none, or the chosen one is unknown or cannot be read.
    pub(crate) fn workloads(&self, wanted: &WorkloadArgs) -> Result<Vec<Described<'_>>, Error> {
        let all = self.all_workloads(wanted);
        if let Some(name) = &wanted.structure {
            return self.of_struct(all, name);
        }
        let only = wanted.workload.as_deref();
        let is_undescribed = |name: &&String| !all.iter().any(|described| described.name == name.as_str());
        let mut undescribed = self.lock.workload.keys().filter(is_undescribed);
        let is_meant =
            |name: &&String| only.map_or(all.is_empty() && self.structs.is_empty(), |only| only == name.as_str());
        if let Some(name) = undescribed.find(is_meant) {
            return Err(Error::Undescribed { name: name.clone(), file: self.config_file.clone() });
        }
        if all.is_empty() {
            return Err(self.without_workloads());
        }
        let Some(only) = only else { return Ok(all) };
        let names: Vec<_> = all.iter().map(|described| described.name.to_owned()).collect();
        let chosen: Vec<_> = all.into_iter().filter(|described| described.name == only).collect();
        if chosen.is_empty() {
            let hint = suggest(only, names.iter().map(String::as_str));
            return Err(Error::UnknownWorkload { name: only.to_owned(), hint, names });
        }
        Ok(chosen)
    }

    /// Returns the chosen workload, or the only one.
    pub(crate) fn workload(&self, wanted: &WorkloadArgs) -> Result<Described<'_>, Error> {
        let all = self.workloads(wanted)?;
        let names = all.iter().map(|workload| workload.name.to_owned()).collect();
        let mut all = all.into_iter();
        match (all.next(), all.next()) {
            (Some(workload), None) => Ok(workload),
            _ => Err(Error::SeveralWorkloads { names }),
        }
    }

    /// Returns a model that the command line describes.
    pub(crate) fn model<'a>(&'a self, (name, spec): &'a (&str, WorkloadSpec)) -> Described<'a> {
        self.described(name, spec, self.file.goal.clone(), None)
    }

    /// Returns the package's measurements of this description, preferably on these devices.
    pub(crate) fn measured_for(&self, spec: &WorkloadSpec, devices: &[DeviceFacts]) -> Option<(&str, &Measured)> {
        self.current.measured_for(None, spec, devices).map(|(name, locked)| (name, &locked.measured))
    }

    /// Returns true if the package's file or a struct describes a workload of this name.
    pub(crate) fn describes(&self, name: &str) -> bool {
        self.file.workloads.contains_key(name) || self.struct_names.iter().any(|known| known == name)
    }

    fn all_workloads(&self, wanted: &WorkloadArgs) -> Vec<Described<'_>> {
        // Structs of tests only count for themselves where the program has some.
        let has_program = self.structs.read.iter().any(|it| !it.is_test);
        let is_meant = |it: &Struct| wanted.structure.is_some() || !it.is_test || !has_program;
        let structs = self.structs.read.iter().zip(&self.struct_names).filter(|(it, _)| is_meant(it));
        let mut all: Vec<_> =
            structs.map(|(it, name)| self.described(name, &it.spec, it.goal.clone(), Some(it))).collect();
        let measured = self.lock.workload.iter().filter_map(|(name, locked)| Some((name, locked.described.as_ref()?)));
        // The file's description replaces the measured one of the same name.
        let of_files: BTreeMap<_, _> = measured.chain(&self.file.workloads).collect();
        for (name, spec) in of_files {
            if !self.is_of_struct(name, spec, &all) {
                all.push(self.described(name, spec, self.goal_of_file(name), None));
            }
        }
        all.sort_by(|a, b| a.name.cmp(b.name));
        all
    }

    /// Returns true for a workload of the files that a struct describes: the workload that the struct names, and
    /// measurements of the struct as it is or was.
    fn is_of_struct(&self, name: &str, spec: &WorkloadSpec, structs: &[Described<'_>]) -> bool {
        let is_in_file = self.file.workloads.contains_key(name);
        structs.iter().filter_map(|described| Some((described, described.structure?))).any(|(described, it)| {
            it.workload.as_deref() == Some(name) || !is_in_file && (described.spec == spec || described.name == name)
        })
    }

    fn goal_of_file(&self, name: &str) -> Goal {
        let of_program = self.lock.workload.get(name).and_then(|locked| locked.goal.as_ref());
        of_program.map_or_else(|| self.file.goal.clone(), |of_program| laid_over(&self.file.goal, of_program))
    }

    fn described<'a>(
        &'a self,
        name: &'a str,
        spec: &'a WorkloadSpec,
        goal: Goal,
        structure: Option<&'a Struct>,
    ) -> Described<'a> {
        // A build looks measurements up by the name in the attribute.
        let recorded_name = structure.map_or(Some(name), |it| it.workload.as_deref());
        let locked = self.lock.measured_for(recorded_name, spec, &[]).map(|(_, locked)| locked);
        Described { name, spec, goal, structure, locked, current: &self.current, recorded_name }
    }

    fn of_struct<'a>(&self, all: Vec<Described<'a>>, name: &str) -> Result<Vec<Described<'a>>, Error> {
        let is_meant = |described: &Described<'_>| described.structure.is_some_and(|it| it.is_named(name));
        let chosen: Vec<_> = all.into_iter().filter(is_meant).collect();
        let paths = || self.structs.read.iter().map(|it| it.path.clone());
        if chosen.len() > 1 {
            return Err(Error::SeveralStructs { names: paths().filter(|path| path.ends_with(name)).collect() });
        }
        if let Some(broken) = self.structs.broken.iter().find(|it| chosen.is_empty() && it.is_named(name)) {
            return Err(Error::Files { mistakes: broken.mistakes.clone() });
        }
        if chosen.is_empty() {
            let hint = suggest(name, self.structs.read.iter().map(|it| it.name.as_str()));
            return Err(Error::UnknownStruct { name: name.to_owned(), hint, names: paths().collect() });
        }
        Ok(chosen)
    }

    /// Returns the reason why the package has no workload.
    fn without_workloads(&self) -> Error {
        if let Some(broken) = self.structs.broken.first() {
            return Error::Files { mistakes: broken.mistakes.clone() };
        }
        let no_workload = || Error::NoWorkload { package: self.name().to_owned(), file: self.config_file.clone() };
        match self.structs.unread.first() {
            Some(unread) => Error::UnreadableStruct { why: unread.clone(), file: self.config_file.clone() },
            None => self.lock.older_warning().map_or_else(no_workload, |warning| Error::OlderLock { warning }),
        }
    }
}

/// Overrides the file's goal by the values of the program's goal.
fn laid_over(file: &Goal, program: &Goal) -> Goal {
    let mut values = file.values();
    let own = program.values();
    // Samples and tokens both give the size of a step.
    if own.contains_key("global_batch") || own.contains_key("global_tokens") {
        values.retain(|name, _| !["global_batch", "global_tokens", "mean_tokens"].contains(name));
    }
    values.extend(own);
    Goal::from_values(&values)
}
