//! The manifest, the workspace and the `Cargo.lock` of a package, found by cargo's rules.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::{regular_file, suggest_key};
use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use toml::{Table, Value};

use crate::config::ConfigFile;
use crate::file::merge_marker;

/// The file name of a manifest.
pub const MANIFEST: &str = "Cargo.toml";

/// The table `[package.metadata.gpu-tuned]` of a manifest. Build script and commands read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PackageMetadata {
    /// `config-file`: path of the file in place of `gpu-tuned.toml`, from the package's folder.
    pub config_file: Option<PathBuf>,
}

impl PackageMetadata {
    const CONFIG_FILE: &'static str = "config-file";

    /// Parses a manifest's text.
    ///
    /// # Errors
    ///
    /// Unknown keys, and values of another type, each with its place.
    pub fn parse(source: Source<'_>) -> Result<Self, Vec<FileError>> {
        let root = DeTable::parse(source.text).map_err(|error| vec![source.toml_error(&error)])?;
        let mut metadata = Self::default();
        let section = ["package", "metadata", "gpu-tuned"];
        let table = section.iter().try_fold(root.get_ref(), |table, key| match table.get(*key)?.get_ref() {
            DeValue::Table(below) => Some(below),
            _ => None,
        });
        let mut mistakes = Vec::new();
        for (key, value) in table.into_iter().flatten() {
            match (key.get_ref().as_ref(), value.get_ref().as_str()) {
                (Self::CONFIG_FILE, Some(path)) => metadata.config_file = Some(path.into()),
                (Self::CONFIG_FILE, None) => {
                    mistakes.push(source.error(&value.span(), "config-file: expected a path in quotes"));
                }
                (other, _) => {
                    let near = suggest_key(other, &[Self::CONFIG_FILE]);
                    let message = format!("unknown key `{other}`{near}; [{}] takes config-file", section.join("."));
                    mistakes.push(source.error(&key.span(), message));
                }
            }
        }
        if mistakes.is_empty() { Ok(metadata) } else { Err(mistakes) }
    }
}

/// Reads the manifest in a folder. Cargo reports one that cannot be read.
pub fn manifest(folder: &Path) -> Option<Table> {
    regular_file::read_text(&folder.join(MANIFEST), regular_file::LARGEST).ok()?.parse().ok()
}

/// Returns the folder of the workspace; `None` if the package is in no workspace.
pub fn root(package: &Path) -> Option<PathBuf> {
    package.ancestors().find_map(|folder| {
        let manifest = manifest(folder)?;
        match manifest.get("workspace") {
            Some(workspace) => includes(workspace, folder, package).then(|| folder.to_owned()),
            None => manifest.get("package")?.get("workspace")?.as_str().map(|root| folder.join(root)),
        }
    })
}

/// Returns the path of the `Cargo.lock` that cargo uses: the workspace's. Without a workspace, the nearest one in the
/// package's folder or above.
pub fn cargo_lock(package: &Path) -> Option<PathBuf> {
    let exists = |path: &PathBuf| path.is_file();
    match root(package) {
        Some(root) => Some(root.join(CargoLock::NAME)).filter(exists),
        None => package.ancestors().map(|folder| folder.join(CargoLock::NAME)).find(exists),
    }
}

/// Returns the paths of a package's `gpu-tuned.toml`, from its folder: the package's own, then the workspace's. The first that
/// exists is the package's file.
pub fn config_files(package: &Path) -> Vec<PathBuf> {
    let own = PathBuf::from(ConfigFile::NAME);
    if package.join(&own).exists() {
        return vec![own];
    }
    let shared = root(package).filter(|root| root != package).map(|root| {
        let depth = package.strip_prefix(&root).map(|below| below.components().count());
        // A workspace beside the package has the path of the manifest, such as `../workspace`.
        let beside = || root.strip_prefix(package).unwrap_or(&root).to_owned();
        let folder = depth.map_or_else(|_| beside(), |depth| core::iter::repeat_n("..", depth).collect());
        folder.join(ConfigFile::NAME)
    });
    core::iter::once(own).chain(shared).collect()
}

/// Returns the path of the package's `gpu-tuned.toml`, from its folder. Without such a file, the path of its own.
pub fn config_file(package: &Path) -> PathBuf {
    existing(package, &config_files(package)).to_owned()
}

/// Returns the first of these files that exists in the package's folder. Without one, the first.
///
/// # Panics
///
/// Without files.
pub fn existing<'a>(package: &Path, files: &'a [PathBuf]) -> &'a Path {
    files.iter().find(|file| package.join(file).exists()).unwrap_or(&files[0])
}

/// Returns false if the workspace in `folder` excludes the package. Cargo itself checks the list of members.
fn includes(workspace: &Value, folder: &Path, package: &Path) -> bool {
    let lists = |key: &str| {
        let mut paths = workspace.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        paths.any(|path| package.starts_with(folder.join(path)))
    };
    !lists("exclude") || lists("members")
}

/// The content of a `Cargo.lock`.
#[derive(Clone, Debug, Deserialize)]
pub struct CargoLock {
    #[serde(default)]
    package: Vec<Locked>,
}

#[derive(Clone, Debug, Deserialize)]
struct Locked {
    name: String,
    version: String,
    /// Each `NAME`, `NAME VERSION` or `NAME VERSION (SOURCE)`.
    #[serde(default)]
    dependencies: Vec<String>,
}

/// The advice for a file with conflict markers.
const REMEDY_OF_MERGE: &str =
    "keep either side whole (`git checkout --ours` or `--theirs` and the file): cargo adds what it lacks";

impl CargoLock {
    /// The file's name, at the root of a workspace.
    pub const NAME: &'static str = "Cargo.lock";

    /// The advice for a file that cannot be parsed.
    pub const REMEDY: &'static str = "put back the file that was committed, or delete it: cargo writes another";

    /// Parses the file's text; `None` if cargo would refuse it.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(Source { file: Self::NAME, text }).ok()
    }

    /// Parses the file's text.
    ///
    /// # Errors
    ///
    /// When cargo would refuse the file: it has conflict markers, or is no lock of cargo's. The message includes the advice.
    pub fn read(source: Source<'_>) -> Result<Self, FileError> {
        if let Some(mistake) = merge_marker(source, REMEDY_OF_MERGE) {
            return Err(mistake);
        }
        toml::from_str(source.text).map_err(|error| {
            let mut mistake = source.toml_error(&error);
            mistake.message = format!("{}; {}", mistake.message, Self::REMEDY);
            mistake
        })
    }

    /// Returns the releases of the crate `name` among the package's direct and indirect dependencies.
    pub fn releases(&self, package: &str, name: &str) -> BTreeSet<&str> {
        let mut by_name: BTreeMap<&str, Vec<&Locked>> = BTreeMap::new();
        for locked in &self.package {
            by_name.entry(&locked.name).or_default().push(locked);
        }
        let mut open = by_name.get(package).cloned().unwrap_or_default();
        let mut seen: BTreeSet<(&str, &str)> = open.iter().map(|locked| locked.key()).collect();
        while let Some(locked) = open.pop() {
            let needed = locked.dependencies.iter().flat_map(|dependency| {
                let mut words = dependency.split_whitespace();
                let (name, version) = (words.next().unwrap_or_default(), words.next());
                let of_name = by_name.get(name).into_iter().flatten().copied();
                of_name.filter(move |locked| version.is_none_or(|version| locked.version == version))
            });
            open.extend(needed.filter(|locked| seen.insert(locked.key())));
        }
        seen.into_iter().filter(|(seen, _)| *seen == name).map(|(_, version)| version).collect()
    }

    /// Returns the package's releases of `name`, joined by `and`, if `measured` is none of them.
    pub fn other_than(&self, measured: &str, package: &str, name: &str) -> Option<String> {
        let now = self.releases(package, name);
        let is_other = !now.is_empty() && !now.contains(measured);
        is_other.then(|| now.into_iter().collect::<Vec<_>>().join(" and "))
    }
}

impl Locked {
    fn key(&self) -> (&str, &str) {
        (&self.name, &self.version)
    }
}
