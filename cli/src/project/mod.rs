//! The package of a command: files, workloads, and declared GPUs.

mod metadata;
mod names;
mod structs;
mod wanted;
mod workloads;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use cargo_metadata::{Package, TargetKind};
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileNames, ProfileTable};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::file::{self, ReadError};
use gpu_tuned_project::gpu_names::profiles;
use gpu_tuned_project::lock::{Lock, Outdated};
use gpu_tuned_project::resolved::{Resolved, Selected};
use gpu_tuned_project::workspace::{self, CargoLock, MANIFEST, PackageMetadata};

pub(crate) use metadata::RUNTIME;
use names::struct_names;
use structs::Structs;
pub(crate) use wanted::{ModelOrWorkloadArgs, WorkloadArgs};
pub(crate) use workloads::Described;

use crate::args::{Common, GpuNames, ProgramArgs};
use crate::error::Error;
use crate::output::detail;

pub(crate) struct Project {
    /// `None` in a folder without a package.
    package: Option<Package>,
    /// The folder of the package's `Cargo.toml`.
    pub root: PathBuf,
    /// The folder of the workspace's `Cargo.toml`; the package's own folder without a workspace.
    pub workspace: PathBuf,
    /// The name of `gpu-tuned.toml`, as the build script has it.
    pub config_file: String,
    file: ConfigFile,
    pub lock: Lock,
    /// The measurements with the package's release of Burn, as the build script selects them.
    current: Lock,
    outdated: Vec<Outdated>,
    /// The releases of `Cargo.lock`; `None` without the file, or if the command needs no releases.
    pub cargo_lock: Option<CargoLock>,
    structs: Structs,
    /// The workload's name of each struct.
    struct_names: Vec<String>,
}

/// Mistakes in files, each with the text of its file.
type Mistakes = Vec<(FileError, Arc<str>)>;

impl Project {
    /// Finds the package and reads its files and annotated structs. Measurements with other releases than those of
    /// `Cargo.lock` are left out.
    pub(crate) fn read(common: &Common) -> Result<Self, Error> {
        let (package, workspace) = metadata::package(common)?;
        let mut mistakes = Mistakes::new();
        let mut project = Self::read_files(&package, workspace, &mut mistakes)?;
        let parse = |source: Source<'_>| CargoLock::read(source).map_err(|mistake| vec![mistake]);
        let path = workspace::cargo_lock(&project.root);
        let folder = path.as_deref().and_then(Path::parent).unwrap_or(&project.workspace);
        let name = Path::new(CargoLock::NAME);
        project.cargo_lock = parsed(folder, (name, CargoLock::REMEDY), parse, &mut mistakes)?;
        refuse(mistakes)?;
        if let Some(cargo_lock) = &project.cargo_lock {
            project.outdated = project.current.take_outdated(cargo_lock, &package.name);
        }
        Ok(project.with_structs(package))
    }

    /// Finds the package and reads its files and annotated structs, without `Cargo.lock`: for commands that use no
    /// measurements.
    pub(crate) fn read_without_releases(common: &Common) -> Result<Self, Error> {
        let (package, workspace) = metadata::package(common)?;
        let mut mistakes = Mistakes::new();
        let project = Self::read_files(&package, workspace, &mut mistakes)?;
        refuse(mistakes).map(|()| project.with_structs(package))
    }

    /// Reads the package if there is one. A model of the command line needs none.
    pub(crate) fn read_if_any(common: &Common) -> Result<Self, Error> {
        match Self::read(common) {
            Err(error) if error.leaves_plans_open() && !common.names_a_package() => Ok(Self::without_package()),
            other => other,
        }
    }

    fn without_package() -> Self {
        Self {
            package: None,
            root: PathBuf::new(),
            workspace: PathBuf::new(),
            config_file: ConfigFile::NAME.to_owned(),
            file: ConfigFile::default(),
            lock: Lock::default(),
            current: Lock::default(),
            outdated: Vec::new(),
            cargo_lock: None,
            structs: Structs::default(),
            struct_names: Vec::new(),
        }
    }

    fn read_files(package: &Package, workspace: PathBuf, mistakes: &mut Mistakes) -> Result<Self, Error> {
        let root = metadata::folder(package);
        let metadata = parsed(&root, (Path::new(MANIFEST), ConfigFile::REMEDY), PackageMetadata::parse, mistakes)?;
        let named = metadata.and_then(|metadata| metadata.config_file);
        let name = &named.clone().unwrap_or_else(|| workspace::config_file(&root));
        let read = parsed(&root, (name, ConfigFile::REMEDY), ConfigFile::parse, mistakes)?;
        if read.is_none() && named.is_some() && mistakes.is_empty() {
            let source = std::io::ErrorKind::NotFound.into();
            return Err(Error::Read { path: root.join(name), source });
        }
        let lock = parsed(&root, (Path::new(Lock::NAME), Lock::REMEDY), Lock::parse, mistakes)?.unwrap_or_default();
        let (config_file, current) = (name.display().to_string(), lock.clone());
        let file = read.unwrap_or_default();
        Ok(Self { root, workspace, config_file, file, lock, current, ..Self::without_package() })
    }

    fn with_structs(mut self, package: Package) -> Self {
        self.package = Some(package);
        let resolved = Resolved::new(Selected::Generic, self.declared(), &self.file, &self.profiles());
        let resolved = resolved.with_measured(self.current.clone()).with_file(Path::new(&self.config_file));
        self.structs = Structs::read(self.package(), &self.workspace, &resolved);
        self.struct_names = struct_names(&self.structs.read, &self.file, &self.lock);
        self
    }

    pub(crate) fn name(&self) -> &str {
        self.package.as_ref().map_or("this folder", |package| package.name.as_str())
    }

    /// Returns the error of a package without GPUs, or of a model without a package and without a named GPU.
    pub(crate) fn without_targets(&self) -> Error {
        let package = self.package.as_ref().map(|package| package.name.to_string());
        package.map_or(Error::NoneNamed, |package| Error::NoTargets { package })
    }

    pub(crate) fn manifest(&self) -> &Path {
        self.package().manifest_path.as_std_path()
    }

    pub(crate) fn package(&self) -> &Package {
        self.package.as_ref().expect("BUG: only a plan of --model has no package, and it asks for none")
    }

    pub(crate) fn has_structs(&self) -> bool {
        !self.structs.is_empty()
    }

    /// Returns the mistakes in annotated structs of the program, each with the text of its file.
    pub(crate) fn struct_mistakes(&self) -> impl Iterator<Item = &(FileError, Arc<str>)> {
        self.structs.broken.iter().filter(|it| !it.is_test).flat_map(|it| &it.mistakes)
    }

    /// Returns one sentence for each annotated struct of the program with a mistake.
    pub(crate) fn broken_structs(&self) -> impl Iterator<Item = String> {
        self.structs.first_mistakes().map(|(name, mistake)| format!("`{name}`: {mistake}"))
    }

    /// Refuses a program with mistakes in an annotated struct, which would not compile.
    pub(crate) fn refuse_broken_structs(&self) -> Result<(), Error> {
        refuse(self.struct_mistakes().cloned().collect())
    }

    /// Returns one sentence for each part of the package that plans of these workloads leave out: measurements of an
    /// older format or of another release of Burn, and structs that cannot be read.
    pub(crate) fn left_out(&self, workloads: &[Described<'_>]) -> impl Iterator<Item = String> {
        let is_meant = |outdated: &&Outdated| workloads.iter().any(|workload| workload.name == outdated.workload);
        let outdated = self.outdated.iter().filter(is_meant).map(ToString::to_string);
        self.lock.older_warning().into_iter().chain(outdated).chain(self.structs.notes())
    }

    pub(crate) fn read_lock(&self) -> Result<Lock, Error> {
        let mut mistakes = Mistakes::new();
        let lock = parsed(&self.root, (Path::new(Lock::NAME), Lock::REMEDY), Lock::parse, &mut mistakes)?;
        refuse(mistakes).map(|()| lock.unwrap_or_default())
    }

    /// Returns the package's name for the runtime, if the runtime has the feature.
    pub(crate) fn runtime_with_feature(&self, feature: &str, args: &ProgramArgs) -> Result<Option<String>, Error> {
        metadata::runtime_with_feature(self.package(), feature, args)
    }

    /// Returns the features of named GPUs.
    ///
    /// # Errors
    ///
    /// A name without a profile, or without a feature in the package.
    pub(crate) fn features_of(&self, names: &GpuNames) -> Result<Vec<String>, Error> {
        let table = self.profiles();
        let feature = |profile: &Profile| {
            let gpu = profile.id.to_string();
            let undeclared = |gpu| Error::Undeclared { package: self.name().to_owned(), gpu };
            if self.package().features.contains_key(&gpu) { Ok(gpu) } else { Err(undeclared(gpu)) }
        };
        profiles(&table, &names.items())?.into_iter().map(feature).collect()
    }

    /// The profiles that the package declares as features, sorted; without features, the targets of its attributes.
    pub(crate) fn declared(&self) -> Vec<ProfileId> {
        let features = self.package.as_ref().map(|package| self.known().among(package.features.keys()));
        let declared = features.unwrap_or_default();
        if declared.is_empty() { self.structs.targets() } else { declared }
    }

    pub(crate) fn known(&self) -> ProfileNames {
        ProfileNames::new(&self.file.profiles)
    }

    /// The shipped profiles and the package's own. An own profile replaces a shipped one of the same name.
    pub(crate) fn profiles(&self) -> ProfileTable {
        let mut table = ProfileTable::builtin().clone();
        self.file.profiles.iter().cloned().for_each(|profile| table.insert(profile));
        table
    }

    pub(crate) fn is_own(&self, id: &ProfileId) -> bool {
        self.file.profiles.iter().any(|profile| profile.id == *id)
    }

    /// Refuses a package without a default program: cargo runs the only binary, or `default-run`.
    pub(crate) fn has_one_program(&self) -> Result<(), Error> {
        let (binaries, examples) = (self.names_of(&TargetKind::Bin), self.names_of(&TargetKind::Example));
        let package = || self.package().name.to_string();
        match binaries.as_slice() {
            [_] => Ok(()),
            _ if self.package().default_run.is_some() => Ok(()),
            [] if examples.is_empty() => Err(Error::NoProgram { package: package() }),
            [] => Err(Error::ExamplesOnly { package: package(), names: examples }),
            _ => Err(Error::SeveralPrograms { package: package(), names: binaries }),
        }
    }

    fn names_of(&self, kind: &TargetKind) -> Vec<String> {
        let targets = self.package().targets.iter().filter(|target| target.kind.contains(kind));
        targets.map(|target| target.name.clone()).collect()
    }
}

/// Reads and parses the file below `root`; `None` without the file. Mistakes are collected, so that those of all files are
/// reported.
fn parsed<T>(
    root: &Path,
    (name, remedy): (&Path, &str),
    parse: impl FnOnce(Source<'_>) -> Result<T, Vec<FileError>>,
    mistakes: &mut Mistakes,
) -> Result<Option<T>, Error> {
    match file::read(root, name, remedy, parse) {
        Ok(parsed) => {
            let outcome = if parsed.is_some() { "reads" } else { "does not find" };
            detail(|| format!("{outcome} {}", root.join(name).display()));
            Ok(parsed)
        }
        Err(ReadError::Io { path, cause }) => Err(Error::Read { path, source: cause }),
        Err(ReadError::Mistakes { text, mistakes: found }) => {
            let text: Arc<str> = text.into();
            mistakes.extend(found.into_iter().map(|mistake| (mistake, Arc::clone(&text))));
            Ok(None)
        }
    }
}

/// Returns the mistakes as an error, if there are any.
fn refuse(mistakes: Mistakes) -> Result<(), Error> {
    if mistakes.is_empty() { Ok(()) } else { Err(Error::Files { mistakes }) }
}
