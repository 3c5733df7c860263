//! The package of a command: files, workloads, and declared GPUs.

mod structs;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand, Package, TargetKind};
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::dims::Schema as _;
use gpu_tuned_core::measured::Measured;
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileNames, ProfileTable};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, suggest};
use gpu_tuned_optimize::{Model, ModelRequest};
use gpu_tuned_project::config::{ConfigFile, PairsError, workload_from_words};
use gpu_tuned_project::file::{self, ReadError};
use gpu_tuned_project::gpu_names::profiles;
use gpu_tuned_project::lock::{Lock, LockedWorkload, Outdated};
use gpu_tuned_project::resolved::{Resolved, Selected};
use gpu_tuned_project::workspace::{self, CargoLock, MANIFEST, PackageMetadata};
use gpu_tuned_propose::diff::display_name;

use crate::args::{Common, GpuNames, ProgramArgs, pair};
use crate::error::Error;
use crate::output::detail;
pub(crate) use structs::build_script;
use structs::{Struct, Structs, is_named};

#[derive(Default)]
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

/// A package with programs that depends on the package.
pub(crate) struct Dependent {
    pub package: Package,
    /// Its name for the package.
    name: String,
    /// Its manifest, from the workspace on.
    manifest: String,
}

impl Dependent {
    /// Returns the lines of its manifest that forward features to the package; `None` if all are there.
    pub(crate) fn forward(&self, features: &[&str]) -> Option<String> {
        let Self { package, name, manifest } = self;
        let is_there = |feature: &&str| {
            let enables = package.features.get(*feature);
            enables.is_some_and(|enables| enables.contains(&format!("{name}/{feature}")))
        };
        let lines = features.iter().filter(|feature| !is_there(feature));
        let lines: Vec<_> = lines.map(|feature| format!("`{feature} = [\"{name}/{feature}\"]`")).collect();
        let whose = &package.name;
        (!lines.is_empty()).then(|| {
            format!("forward the features from `{whose}`: under [features] of {manifest}, {}", lines.join(", "))
        })
    }
}

/// Mistakes in files, each with the text of its file.
type Mistakes = Vec<(FileError, Arc<str>)>;

impl Project {
    /// Finds the package and reads its files and annotated structs. Measurements with other releases than those of
    /// `Cargo.lock` are left out.
    pub(crate) fn read(common: &Common) -> Result<Self, Error> {
        let (package, workspace) = find_package(common)?;
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
        let (package, workspace) = find_package(common)?;
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

    /// Names of the workspace's packages with profiles of their own. A file with mistakes may have some.
    pub(crate) fn with_profiles(common: &Common) -> Result<Vec<String>, Error> {
        let metadata = ask(MetadataCommand::new().manifest_path(manifest(common)?).no_deps())?;
        let workspace = metadata.workspace_root.into_std_path_buf();
        let has_some = |package: &Package| {
            let mut mistakes = Mistakes::new();
            let read = Self::read_files(package, workspace.clone(), &mut mistakes);
            !mistakes.is_empty() || read.is_ok_and(|project| !project.file.profiles.is_empty())
        };
        let packages = metadata.packages.iter().filter(|package| has_some(package));
        Ok(packages.map(|package| package.name.to_string()).collect())
    }

    fn without_package() -> Self {
        Self { config_file: ConfigFile::NAME.to_owned(), ..Self::default() }
    }

    fn read_files(package: &Package, workspace: PathBuf, mistakes: &mut Mistakes) -> Result<Self, Error> {
        let root = package_folder(package);
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
        Ok(Self { root, workspace, config_file, file, lock, current, ..Self::default() })
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

    /// Returns one sentence for each source that is not read.
    pub(crate) fn unread(&self) -> impl Iterator<Item = &str> {
        self.structs.unread()
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
    ///
    /// Cargo may download dependencies, which the following build needs too.
    pub(crate) fn runtime_with_feature(&self, feature: &str, args: &ProgramArgs) -> Result<Option<String>, Error> {
        self.refuse_broken_structs()?;
        let is_runtime =
            |dependency: &&Dependency| dependency.name == RUNTIME && dependency.kind == DependencyKind::Normal;
        let package = self.package();
        let Some(dependency) = package.dependencies.iter().find(is_runtime) else { return Ok(None) };
        let metadata =
            ask(MetadataCommand::new().manifest_path(&package.manifest_path).other_options(args.of_cargo()))?;
        let has_it = |package: &Package| package.name.as_str() == RUNTIME && package.features.contains_key(feature);
        let name = dependency.rename.as_ref().unwrap_or(&dependency.name);
        Ok(metadata.packages.iter().any(has_it).then(|| name.clone()))
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

    /// Returns the other packages of the workspace that depend on this one and have programs.
    pub(crate) fn dependents(&self) -> Result<Vec<Dependent>, Error> {
        let metadata = ask(MetadataCommand::new().manifest_path(self.manifest()).no_deps())?;
        let own = self.package();
        let is_own = |it: &&Dependency| it.name == *own.name && it.kind != DependencyKind::Build && it.path.is_some();
        let has_program = |package: &Package| {
            let is_program = |kind: &TargetKind| matches!(kind, TargetKind::Bin | TargetKind::Example);
            package.targets.iter().flat_map(|target| &target.kind).any(is_program)
        };
        let dependent = |package: Package| {
            let dependency = package.dependencies.iter().find(is_own)?;
            let name = dependency.rename.clone().unwrap_or_else(|| dependency.name.clone());
            let manifest = display_name(package.manifest_path.as_std_path(), &self.workspace);
            has_program(&package).then_some(Dependent { package, name, manifest })
        };
        Ok(metadata.packages.into_iter().filter_map(dependent).collect())
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

/// Proposes a name for a struct.
type Choice<'a> = &'a dyn Fn(&Struct) -> Option<String>;

/// Returns a name for each struct: of its workload in the file, of its measurements, of its measurements before a change,
/// or its own. No two names are equal.
fn struct_names(structs: &[Struct], file: &ConfigFile, lock: &Lock) -> Vec<String> {
    let mut names: Vec<Option<String>> = vec![None; structs.len()];
    let of_file = |it: &Struct| it.workload.clone();
    let free = |name: &str| (!file.workloads.contains_key(name)).then(|| name.to_owned());
    let measured = |it: &Struct| free(lock.measured_for(None, &it.spec, &[])?.0);
    let before = |it: &Struct| free(lock.measured_before(None, &it.spec)?.name);
    let path = |it: &Struct| Some(it.path.clone());
    let is_shared = |name: &str| structs.iter().filter(|it| it.name == name).count() > 1;
    let unique = |it: &Struct| free(&it.name).filter(|name| !is_shared(name));
    let choices: [Choice<'_>; 5] = [&of_file, &measured, &before, &unique, &path];
    for choice in choices {
        for (index, it) in structs.iter().enumerate() {
            let name = choice(it).filter(|name| !names.iter().flatten().any(|taken| taken == name));
            if names[index].is_none() {
                names[index] = name;
            }
        }
    }
    names.into_iter().zip(structs).map(|(name, it)| name.unwrap_or_else(|| it.path.clone())).collect()
}

/// The workload or the struct of a package.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct WorkloadArgs {
    /// Use this workload only
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    /// Use this annotated struct only
    #[arg(id = "struct", long = "struct", value_name = "NAME", conflicts_with = "workload")]
    pub structure: Option<String>,
}

impl WorkloadArgs {
    /// Returns true if a workload or a struct is chosen.
    pub(crate) const fn is_given(&self) -> bool {
        self.workload.is_some() || self.structure.is_some()
    }
}

/// The workload of a package, or a model without a package.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct ModelOrWorkloadArgs {
    #[command(flatten)]
    pub of_package: WorkloadArgs,
    /// Describe the model here, without a package: in the words of the attribute, such as `mlp(widths = [784, 10])`; by its
    /// kind with --dim for each dimension: transformer, encoder_decoder, vit, convnet, unet, mlp, recurrent, lstm, gru, or
    /// declared (costs); or by the name of a well-known model, such as `gpt2`, `llama-2-7b` or `resnet18`
    #[arg(long, value_name = "MODEL", conflicts_with_all = ["workload", "struct"])]
    pub model: Option<String>,
    /// Dimension of --model, or key of its training, such as `seq=512` or `lora_rank=8`; repeatable
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = pair, requires = "model")]
    pub dims: Vec<(String, String)>,
    /// Optimizer of --model: sgd, momentum, adam, adamw (the default), adafactor or muon
    #[arg(long, value_name = "NAME", requires = "model")]
    pub optimizer: Option<String>,
}

impl ModelOrWorkloadArgs {
    /// Returns the model's name and description; `None` without `--model`.
    ///
    /// # Errors
    ///
    /// When the model or a dimension is unknown, missing or out of range.
    pub(crate) fn model(&self) -> Result<Option<(&str, WorkloadSpec)>, Error> {
        let Some(model) = &self.model else { return Ok(None) };
        let optimizer = self.optimizer.iter().map(|name| ("optimizer".to_owned(), name.clone()));
        let pairs: Vec<_> = self.dims.iter().cloned().chain(optimizer).collect();
        let described = workload_from_words(model, &pairs);
        if let Err(PairsError::UnknownModel { .. }) = described {
            let request = ModelRequest { dims: &pairs, ..ModelRequest::default() };
            if let Some(known) = Model::known(model, &request) {
                return Ok(Some((model, known?.spec)));
            }
        }
        described.map(Some).map_err(|source| Error::Model { source })
    }
}

/// Finds the package of a command, and the folder of its workspace, without building or downloading.
fn find_package(common: &Common) -> Result<(Package, PathBuf), Error> {
    let manifest = manifest(common)?;
    let metadata = ask(MetadataCommand::new().manifest_path(&manifest).no_deps())?;
    let workspace = metadata.workspace_root.into_std_path_buf();
    choose(common, metadata.packages, manifest).map(|package| (package, workspace))
}

fn choose(common: &Common, members: Vec<Package>, manifest: PathBuf) -> Result<Package, Error> {
    if members.is_empty() {
        return Err(Error::NoPackages);
    }
    let names = || members.iter().map(|package| package.name.as_str());
    if let Some(name) = &common.package {
        let hint = suggest(name, names());
        let names = names().map(str::to_owned).collect();
        let found = members.into_iter().find(|package| package.name.as_str() == name);
        return found.ok_or_else(|| Error::NoPackage { name: name.clone(), hint, names });
    }
    let manifest = manifest.canonicalize().unwrap_or(manifest);
    let is_of_manifest = |package: &&Package| package.manifest_path.as_std_path() == manifest;
    if let Some(package) = members.iter().find(is_of_manifest) {
        return Ok(package.clone());
    }
    // A workspace without a package of its own: the members with workloads.
    let tuned: Vec<_> = members.iter().filter(|package| is_tuned(package)).collect();
    match (tuned.as_slice(), members.as_slice()) {
        ([package], _) => Ok((*package).clone()),
        ([], [package]) => Ok(package.clone()),
        ([], _) => Err(Error::SeveralPackages { names: names().map(str::to_owned).collect() }),
        (several, _) => Err(Error::SeveralPackages { names: several.iter().map(|it| it.name.to_string()).collect() }),
    }
}

/// Returns true for a package with workloads or a dependency on the runtime.
fn is_tuned(package: &Package) -> bool {
    let has = |name: &str| package_folder(package).join(name).is_file();
    let depends = package
        .dependencies
        .iter()
        .any(|dependency| dependency.name == RUNTIME && dependency.kind == DependencyKind::Normal);
    has(ConfigFile::NAME) || has(Lock::NAME) || depends
}

/// The crate that programs depend on.
pub(crate) const RUNTIME: &str = "gpu-tuned";

fn manifest(common: &Common) -> Result<PathBuf, Error> {
    if let Some(path) = &common.manifest_path {
        // Cargo takes `-name` for an option.
        let is_option = path.as_os_str().as_encoded_bytes().starts_with(b"-");
        return Ok(if is_option { Path::new(".").join(path) } else { path.clone() });
    }
    // The folder may have been removed.
    let Ok(here) = std::env::current_dir() else { return Err(Error::NoManifest) };
    let found = here.ancestors().map(|folder| folder.join("Cargo.toml")).find(|manifest| manifest.is_file());
    found.ok_or(Error::NoManifest)
}

fn ask(command: &MetadataCommand) -> Result<Metadata, Error> {
    detail(|| format!("runs {:?}", command.cargo_command()));
    command.exec().map_err(|error| {
        let message = match error {
            cargo_metadata::Error::CargoMetadata { stderr } if !stderr.trim().is_empty() => {
                stderr.trim().trim_start_matches("error: ").to_owned()
            }
            cargo_metadata::Error::Io(source) => {
                let program = command.cargo_command().get_program().display().to_string();
                return Error::Start { program, source };
            }
            cargo_metadata::Error::CargoMetadata { .. } => "`cargo metadata` failed without a message".to_owned(),
            other => format!("`cargo metadata` failed: {other}"),
        };
        Error::Metadata { message }
    })
}

fn package_folder(package: &Package) -> PathBuf {
    package.manifest_path.as_std_path().parent().unwrap_or(Path::new(".")).to_owned()
}

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
        let is_meant = |described: &Described<'_>| described.structure.is_some_and(|it| is_named(&it.path, name));
        let chosen: Vec<_> = all.into_iter().filter(is_meant).collect();
        let paths = || self.structs.read.iter().map(|it| it.path.clone());
        if chosen.len() > 1 {
            return Err(Error::SeveralStructs { names: paths().filter(|path| path.ends_with(name)).collect() });
        }
        if let Some(broken) = self.structs.broken.iter().find(|it| chosen.is_empty() && is_named(&it.path, name)) {
            return Err(Error::Files { mistakes: broken.mistakes.clone() });
        }
        if chosen.is_empty() {
            let hint = suggest(name, self.structs.read.iter().map(|it| it.name.as_str()));
            return Err(Error::UnknownStruct { name: name.to_owned(), hint, names: paths().collect() });
        }
        Ok(chosen)
    }

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

#[cfg(test)]
mod tests {
    use gpu_tuned_core::workload::ModelKind;

    #[test]
    fn every_help_about_models_lists_every_kind() {
        let command = crate::command();
        let mut lists = 0;
        for command in command.get_subcommands() {
            let help = command.get_arguments().find(|argument| argument.get_id() == "model").map(clap::Arg::get_help);
            let Some(help) = help.flatten().map(ToString::to_string) else { continue };
            let words: Vec<_> = help.split([' ', ',']).collect();
            for kind in ModelKind::requestable() {
                assert!(words.contains(&kind), "{}: {kind} in {help}", command.get_name());
            }
            lists += 1;
        }
        assert_eq!(lists, 3);
    }
}
