//! What cargo says of the package.

use std::collections::{BTreeSet, VecDeque};
use std::path::{Path, PathBuf};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};
use gpu_tuned_core::suggest;

use crate::args::Common;
use crate::error::Error;

/// The package that a command is for. Nothing is built or downloaded for it.
pub(super) fn package(common: &Common) -> Result<Package, Error> {
    let manifest = manifest(common)?;
    let metadata = ask(MetadataCommand::new().manifest_path(&manifest).no_deps())?;
    let members: Vec<Package> = metadata.packages;
    let names = || members.iter().map(|package| package.name.as_str());
    if let Some(name) = &common.package {
        let hint = suggest(name, names());
        let named = members.into_iter().find(|package| package.name.as_str() == name);
        return named.ok_or_else(|| Error::NoPackage { name: name.clone(), hint });
    }
    let manifest = manifest.canonicalize().unwrap_or(manifest);
    let is_of_manifest = |package: &Package| package.manifest_path.as_std_path() == manifest;
    let several = Error::SeveralPackages { names: names().map(str::to_owned).collect() };
    let alone = members.len() == 1;
    members.into_iter().find(|package| alone || is_of_manifest(package)).ok_or(several)
}

fn manifest(common: &Common) -> Result<PathBuf, Error> {
    if let Some(path) = &common.manifest_path {
        return Ok(path.clone());
    }
    let here = std::env::current_dir().map_err(|source| Error::Read { path: ".".into(), source })?;
    let found = here.ancestors().map(|folder| folder.join("Cargo.toml")).find(|manifest| manifest.is_file());
    found.ok_or(Error::NoManifest)
}

fn ask(command: &MetadataCommand) -> Result<Metadata, Error> {
    command.exec().map_err(|error| {
        let message = match error {
            cargo_metadata::Error::CargoMetadata { stderr } => stderr.trim().trim_start_matches("error: ").to_owned(),
            other => format!("`cargo metadata` failed: {other}"),
        };
        Error::Metadata { message }
    })
}

/// A package's dependencies as `Cargo.lock` resolves them.
pub(crate) struct Dependencies {
    metadata: Metadata,
    package: PackageId,
}

impl Dependencies {
    /// Asks cargo, which may have to download what it has not seen yet.
    pub(super) fn of(package: &Package) -> Result<Self, Error> {
        let metadata = ask(MetadataCommand::new().manifest_path(&package.manifest_path))?;
        Ok(Self { metadata, package: package.id.clone() })
    }

    /// The releases of a crate that the package is built with: one, or none.
    pub(crate) fn versions(&self, name: &str) -> Vec<String> {
        let Some(resolve) = &self.metadata.resolve else { return Vec::new() };
        let mut seen = BTreeSet::from([&self.package]);
        let mut open = VecDeque::from([&self.package]);
        while let Some(id) = open.pop_front() {
            let node = resolve.nodes.iter().find(|node| node.id == *id);
            open.extend(node.into_iter().flat_map(|node| &node.dependencies).filter(|next| seen.insert(next)));
        }
        let of_name = self.metadata.packages.iter().filter(|package| package.name.as_str() == name);
        let mut versions: Vec<_> =
            of_name.filter(|package| seen.contains(&package.id)).map(|package| package.version.to_string()).collect();
        versions.sort();
        versions
    }

    /// The name under which the package depends on `name` itself, when that has the feature.
    pub(crate) fn direct_with_feature(&self, name: &str, feature: &str) -> Option<String> {
        let package = self.metadata.packages.iter().find(|package| package.id == self.package)?;
        let is_meant = |dependency: &&cargo_metadata::Dependency| {
            dependency.name == name && dependency.kind == DependencyKind::Normal
        };
        let dependency = package.dependencies.iter().find(is_meant)?;
        let has_feature = |package: &&Package| package.name.as_str() == name && package.features.contains_key(feature);
        self.metadata.packages.iter().find(has_feature)?;
        Some(dependency.rename.clone().unwrap_or_else(|| dependency.name.clone()))
    }
}

/// The folder of a manifest.
pub(super) fn folder(package: &Package) -> PathBuf {
    package.manifest_path.as_std_path().parent().unwrap_or(Path::new(".")).to_owned()
}
