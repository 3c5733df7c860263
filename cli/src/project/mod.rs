//! The package that a command is for: its files, its workloads, and the GPUs it declares.

mod metadata;

use std::io;
use std::path::{Path, PathBuf};

use cargo_metadata::Package;
use gpu_tuned_core::config::ConfigFile;
use gpu_tuned_core::profile::{Known, ProfileId, ProfileTable};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, suggest};

pub(crate) use metadata::Dependencies;

use crate::args::Common;
use crate::error::Error;

/// The package that a command is for.
pub(crate) struct Project {
    package: Package,
    root: PathBuf,
    file: ConfigFile,
}

/// A workload as the files describe it.
pub(crate) struct Described<'a> {
    pub name: &'a str,
    pub spec: &'a WorkloadSpec,
    /// What the files ask of its plan.
    pub goal: Goal,
}

impl Project {
    /// Finds the package and reads its files.
    pub(crate) fn read(common: &Common) -> Result<Self, Error> {
        let package = metadata::package(common)?;
        let root = metadata::folder(&package);
        let mut mistakes = Vec::new();
        let file = parsed(&root, ConfigFile::NAME, ConfigFile::parse, &mut mistakes)?;
        if mistakes.is_empty() { Ok(Self { package, root, file }) } else { Err(Error::Files { mistakes }) }
    }

    /// The package's name.
    pub(crate) fn name(&self) -> &str {
        &self.package.name
    }

    /// What cargo makes of the package's dependencies.
    pub(crate) fn dependencies(&self) -> Result<Dependencies, Error> {
        Dependencies::of(&self.package)
    }

    /// The profiles that the package offers as features, sorted.
    pub(crate) fn declared(&self) -> Vec<ProfileId> {
        self.known().among(self.package.features.keys())
    }

    /// The names that profiles have.
    pub(crate) fn known(&self) -> Known {
        Known::new(&self.file)
    }

    /// The shipped profiles, and the package's own in place of those they are named like.
    pub(crate) fn profiles(&self) -> ProfileTable {
        let mut table = ProfileTable::builtin().clone();
        self.file.profiles.iter().cloned().for_each(|profile| table.insert(profile));
        table
    }

    /// Whether a profile is one of the package's own.
    pub(crate) fn is_own(&self, id: &ProfileId) -> bool {
        self.file.profiles.iter().any(|profile| profile.id == *id)
    }

    /// The workloads that the files describe: all, or the one that was asked for.
    pub(crate) fn workloads(&self, only: Option<&str>) -> Result<Vec<Described<'_>>, Error> {
        let described = |(name, spec)| Described { name, spec, goal: self.file.goal.clone() };
        let all: Vec<_> = self.file.workloads.iter().map(|(name, spec)| described((name.as_str(), spec))).collect();
        if all.is_empty() {
            return Err(Error::NoWorkload { package: self.name().to_owned() });
        }
        let Some(only) = only else { return Ok(all) };
        let names: Vec<_> = all.iter().map(|workload| workload.name.to_owned()).collect();
        match all.into_iter().find(|workload| workload.name == only) {
            Some(workload) => Ok(vec![workload]),
            None => {
                let hint = suggest(only, names.iter().map(String::as_str));
                Err(Error::UnknownWorkload { name: only.to_owned(), hint, names })
            }
        }
    }

    /// The workload that was asked for, or the only one.
    pub(crate) fn workload(&self, only: Option<&str>) -> Result<Described<'_>, Error> {
        let mut all = self.workloads(only)?;
        match (all.pop(), all.is_empty()) {
            (Some(workload), true) => Ok(workload),
            (last, _) => {
                let names = all.iter().chain(&last).map(|workload| workload.name.to_owned()).collect();
                Err(Error::SeveralWorkloads { names })
            }
        }
    }
}

impl Described<'_> {
    /// What one training step costs.
    pub(crate) fn workload(&self) -> Workload {
        self.spec.workload()
    }
}

/// The file below `root`, or its default when there is none. Mistakes are collected, so that those of all files are told.
fn parsed<T: Default>(
    root: &Path,
    name: &str,
    parse: impl FnOnce(Source<'_>) -> Result<T, Vec<FileError>>,
    mistakes: &mut Vec<(FileError, String)>,
) -> Result<T, Error> {
    let path = root.join(name);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(T::default()),
        Err(source) => return Err(Error::Read { path, source }),
    };
    Ok(parse(Source { file: name, text: &text }).unwrap_or_else(|found| {
        mistakes.extend(found.into_iter().map(|mistake| (mistake, text.clone())));
        T::default()
    }))
}
