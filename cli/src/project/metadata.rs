//! The package's metadata of cargo.

use std::path::{Path, PathBuf};

use cargo_metadata::{Dependency, DependencyKind, Metadata, MetadataCommand, Package};
use gpu_tuned_core::suggest;
use gpu_tuned_project::config::ConfigFile;
use gpu_tuned_project::lock::Lock;

use crate::args::{Common, ProgramArgs};
use crate::error::Error;
use crate::output::detail;

/// Finds the package of a command, and the folder of its workspace, without building or downloading.
pub(super) fn package(common: &Common) -> Result<(Package, PathBuf), Error> {
    let manifest = manifest(common)?;
    let metadata = ask(MetadataCommand::new().manifest_path(&manifest).no_deps())?;
    let workspace = metadata.workspace_root.into_std_path_buf();
    choose(common, metadata.packages, manifest).map(|package| (package, workspace))
}

fn choose(common: &Common, members: Vec<Package>, manifest: PathBuf) -> Result<Package, Error> {
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
    let has = |name: &str| folder(package).join(name).is_file();
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
        return Ok(path.clone());
    }
    let here = std::env::current_dir().map_err(|source| Error::Read { path: ".".into(), source })?;
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
            cargo_metadata::Error::Io(source) => return Error::Start { program: "cargo".to_owned(), source },
            other => format!("`cargo metadata` failed: {other}"),
        };
        Error::Metadata { message }
    })
}

/// Returns the package's name for the runtime, if the runtime has the feature.
///
/// Cargo may download dependencies, which the following build needs too.
pub(super) fn runtime_with_feature(
    package: &Package,
    feature: &str,
    args: &ProgramArgs,
) -> Result<Option<String>, Error> {
    let is_runtime = |dependency: &&Dependency| dependency.name == RUNTIME && dependency.kind == DependencyKind::Normal;
    let Some(dependency) = package.dependencies.iter().find(is_runtime) else { return Ok(None) };
    let metadata = ask(MetadataCommand::new().manifest_path(&package.manifest_path).other_options(args.of_cargo()))?;
    let has_it = |package: &Package| package.name.as_str() == RUNTIME && package.features.contains_key(feature);
    let name = dependency.rename.as_ref().unwrap_or(&dependency.name);
    Ok(metadata.packages.iter().any(has_it).then(|| name.clone()))
}

pub(super) fn folder(package: &Package) -> PathBuf {
    package.manifest_path.as_std_path().parent().unwrap_or(Path::new(".")).to_owned()
}
