//! The package that a command is for: its files, its workloads, and the GPUs it declares.

mod metadata;
mod programs;
mod workloads;

use std::path::{Path, PathBuf};

use cargo_metadata::Package;
use gpu_tuned_core::profile::{ProfileId, ProfileNames, ProfileTable};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_project::cargo_lock::CargoLock;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::file::{self, ReadError};
use gpu_tuned_project::lock::{Lock, Outdated};

pub(crate) use metadata::RUNTIME;
pub(crate) use workloads::Described;

use crate::args::Common;
use crate::error::Error;

/// The package that a command is for.
pub(crate) struct Project {
    package: Package,
    root: PathBuf,
    workspace: PathBuf,
    file: ConfigFile,
    lock: Lock,
    /// What of the lock is of the Burn that the package is built with, as its build script takes it.
    current: Lock,
    outdated: Vec<Outdated>,
    /// The releases that it is built with, where they were asked for and there is a `Cargo.lock`.
    cargo_lock: Option<CargoLock>,
}

/// Mistakes in files, each with the text of its file.
type Mistakes = Vec<(FileError, String)>;

impl Project {
    /// Finds the package and reads its files, `Cargo.lock` among them: what was measured with other releases is left out.
    pub(crate) fn read(common: &Common) -> Result<Self, Error> {
        let mut mistakes = Mistakes::new();
        let mut project = Self::of_files(common, &mut mistakes)?;
        let parse = |source: Source<'_>| CargoLock::read(source).map_err(|mistake| vec![mistake]);
        project.cargo_lock = parsed(&project.workspace, (CargoLock::NAME, CargoLock::REMEDY), parse, &mut mistakes)?;
        without(mistakes)?;
        if let Some(cargo_lock) = &project.cargo_lock {
            project.outdated = project.current.take_outdated(cargo_lock, &project.package.name);
        }
        Ok(project)
    }

    /// The same for commands that take no figures from it: whatever is the matter with `Cargo.lock`.
    pub(crate) fn read_without_releases(common: &Common) -> Result<Self, Error> {
        let mut mistakes = Mistakes::new();
        let project = Self::of_files(common, &mut mistakes)?;
        without(mistakes).map(|()| project)
    }

    /// The package with its own files.
    fn of_files(common: &Common, mistakes: &mut Mistakes) -> Result<Self, Error> {
        let (package, workspace) = metadata::package(common)?;
        let root = metadata::folder(&package);
        let file =
            parsed(&root, (ConfigFile::NAME, ConfigFile::REMEDY), ConfigFile::parse, mistakes)?.unwrap_or_default();
        let lock = parsed(&root, (Lock::NAME, Lock::REMEDY), Lock::parse, mistakes)?.unwrap_or_default();
        let current = lock.clone();
        Ok(Self { package, root, workspace, file, lock, current, outdated: Vec::new(), cargo_lock: None })
    }

    /// The package's name.
    pub(crate) fn name(&self) -> &str {
        &self.package.name
    }

    /// The folder of the package's `Cargo.toml`.
    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    /// Its `Cargo.toml`.
    pub(crate) fn manifest(&self) -> &Path {
        self.package.manifest_path.as_std_path()
    }

    /// The folder of its workspace's `Cargo.toml`, which is its own where it has no workspace.
    pub(crate) fn workspace(&self) -> &Path {
        &self.workspace
    }

    /// What cargo says of it.
    pub(crate) fn package(&self) -> &Package {
        &self.package
    }

    /// What its `gpu-tuned.lock` says.
    pub(crate) fn lock(&self) -> &Lock {
        &self.lock
    }

    /// What is left out of plans for these workloads, as their build does: one sentence each.
    pub(crate) fn left_out(&self, workloads: &[Described<'_>]) -> impl Iterator<Item = String> {
        let is_meant = |outdated: &&Outdated| workloads.iter().any(|workload| workload.name == outdated.workload);
        self.outdated.iter().filter(is_meant).map(ToString::to_string)
    }

    /// What its `gpu-tuned.lock` says by now.
    pub(crate) fn read_lock(&self) -> Result<Lock, Error> {
        let mut mistakes = Mistakes::new();
        let lock = parsed(&self.root, (Lock::NAME, Lock::REMEDY), Lock::parse, &mut mistakes)?;
        without(mistakes).map(|()| lock.unwrap_or_default())
    }

    /// The releases that it is built with, where there is a `Cargo.lock`.
    pub(crate) const fn cargo_lock(&self) -> Option<&CargoLock> {
        self.cargo_lock.as_ref()
    }

    /// The name under which the package depends on the runtime, when that has the feature.
    pub(crate) fn runtime_with_feature(&self, feature: &str) -> Result<Option<String>, Error> {
        metadata::runtime_with_feature(&self.package, feature)
    }

    /// The profiles that the package offers as features, sorted.
    pub(crate) fn declared(&self) -> Vec<ProfileId> {
        self.known().among(self.package.features.keys())
    }

    /// The names that profiles have.
    pub(crate) fn known(&self) -> ProfileNames {
        ProfileNames::new(&self.file.profiles)
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
}

/// The file below `root`, where there is one; the remedy is for one that is no text. Mistakes are collected, so that those of all files are told.
fn parsed<T>(
    root: &Path,
    (name, remedy): (&str, &str),
    parse: impl FnOnce(Source<'_>) -> Result<T, Vec<FileError>>,
    mistakes: &mut Mistakes,
) -> Result<Option<T>, Error> {
    match file::read(root, Path::new(name), remedy, parse) {
        Ok(parsed) => Ok(parsed),
        Err(ReadError::Io { path, cause }) => Err(Error::Read { path, source: cause }),
        Err(ReadError::Mistakes { text, mistakes: found }) => {
            mistakes.extend(found.into_iter().map(|mistake| (mistake, text.clone())));
            Ok(None)
        }
    }
}

/// Refuses what has mistakes.
fn without(mistakes: Mistakes) -> Result<(), Error> {
    if mistakes.is_empty() { Ok(()) } else { Err(Error::Files { mistakes }) }
}
