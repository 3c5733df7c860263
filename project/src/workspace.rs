//! The manifest, the workspace and the `Cargo.lock` of a package, found by cargo's rules.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use glob::{Pattern, glob};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::{regular_file, suggest_key};
use serde::Deserialize;
use toml::de::{DeTable, DeValue};
use toml::{Spanned, Table, Value};

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
        let mut mistakes = Vec::new();
        let of_tools = ["package", "metadata"].iter().try_fold(root.get_ref(), |table, key| as_table(table.get(*key)?));
        for (name, value) in of_tools.into_iter().flatten().filter(|(name, _)| name.get_ref().replace('_', "-") == NAME)
        {
            let is_table = name.get_ref() == NAME && as_table(value).is_some();
            if !is_table {
                let message = format!("expected a table [package.metadata.{NAME}] with config-file");
                mistakes.push(source.error(&name.span(), message));
            }
        }
        for (key, value) in of_tools.and_then(|table| as_table(table.get(NAME)?)).into_iter().flatten() {
            match (key.get_ref().as_ref(), value.get_ref().as_str()) {
                (Self::CONFIG_FILE, Some(path)) => metadata.config_file = Some(path.into()),
                (Self::CONFIG_FILE, None) => {
                    mistakes.push(source.error(&value.span(), "config-file: expected a path in quotes"));
                }
                (other, _) => {
                    let near = suggest_key(other, &[Self::CONFIG_FILE]);
                    let message = format!("unknown key `{other}`{near}; [package.metadata.{NAME}] takes config-file");
                    mistakes.push(source.error(&key.span(), message));
                }
            }
        }
        if mistakes.is_empty() { Ok(metadata) } else { Err(mistakes) }
    }
}

/// The name of the table.
const NAME: &str = "gpu-tuned";

fn as_table<'t, 'i>(value: &'t Spanned<DeValue<'i>>) -> Option<&'t DeTable<'i>> {
    match value.get_ref() {
        DeValue::Table(table) => Some(table),
        _ => None,
    }
}

/// Reads the manifest in a folder. Cargo reports one that cannot be read.
pub fn manifest(folder: &Path) -> Option<Table> {
    regular_file::read_text(&folder.join(MANIFEST), regular_file::LARGEST).ok()?.parse().ok()
}

/// Returns the folder of the workspace that the package is a member of; `None` if there is none.
pub fn root(package: &Path) -> Option<PathBuf> {
    let (manifests, root) = above(package);
    root.filter(|root| root == package || has_member(root, &manifests, package))
}

/// Returns the manifests above the package that decide about its workspace, whether they exist or not.
pub fn manifests_above(package: &Path) -> Vec<PathBuf> {
    let (manifests, root) = above(package);
    let is_searched = |folder: &&Path| root.as_ref().is_none_or(|root| folder.starts_with(root));
    let last = package.ancestors().position(is_unpacked).unwrap_or(usize::MAX);
    let searched = package.ancestors().take(last).filter(is_searched).map(Path::to_owned);
    let folders: BTreeSet<_> = manifests.into_keys().chain(searched).filter(|folder| folder != package).collect();
    folders.into_iter().map(|folder| folder.join(MANIFEST)).collect()
}

/// Manifests by their folders.
type Manifests = BTreeMap<PathBuf, Table>;

/// Files that cargo writes into the folder of a package or repository that it has unpacked. The folders above are no part of it.
const UNPACKED: [&str; 2] = [".cargo-checksum.json", ".cargo-ok"];

fn is_unpacked(folder: &Path) -> bool {
    UNPACKED.iter().any(|file| folder.join(file).exists())
}

/// Returns the manifests in the package's folder and above, up to the workspace in which cargo searches the package, and the
/// folder of that workspace.
fn above(package: &Path) -> (Manifests, Option<PathBuf>) {
    let mut manifests = Manifests::new();
    for folder in package.ancestors() {
        if let Some(manifest) = manifest(folder) {
            let pointer = manifest.get("package").and_then(|package| package.get("workspace")?.as_str());
            let pointer = pointer.map(|root| normalized(&folder.join(root)));
            let is_root = manifest.get("workspace").is_some_and(|workspace| includes(workspace, folder, package));
            manifests.insert(folder.to_owned(), manifest);
            let root = if is_root { Some(folder.to_owned()) } else { pointer };
            if let Some(root) = root {
                let of_root = self::manifest(&root);
                manifests.extend(of_root.map(|manifest| (root.clone(), manifest)));
                return (manifests, Some(root));
            }
        }
        if is_unpacked(folder) {
            break;
        }
    }
    (manifests, None)
}

/// Returns true for a member by cargo's rules: the package at the root, listed packages, and the path dependencies of members.
fn has_member(root: &Path, known: &Manifests, package: &Path) -> bool {
    let Some(of_root) = known.get(root) else { return false };
    let Some(workspace) = of_root.get("workspace") else { return false };
    let listed = workspace.get("members").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
    let mut open: Vec<PathBuf> = listed.flat_map(|pattern| listed_by(root, pattern)).collect();
    open.push(root.to_owned());
    let mut seen = BTreeSet::new();
    while !open.iter().any(|folder| folder == package) {
        let Some(folder) = open.pop() else { return false };
        let is_inside = folder.starts_with(root) || above(&folder).1.is_some_and(|found| found == root);
        if is_inside && includes(workspace, root, &folder) && seen.insert(folder.clone()) {
            let manifest = manifest(&folder).unwrap_or_default();
            open.extend(path_dependencies(&manifest, &folder, workspace, root));
        }
    }
    includes(workspace, root, package)
}

/// Returns the folders with a manifest that a pattern of `members` lists; the path itself if there is none.
fn listed_by(root: &Path, pattern: &str) -> Vec<PathBuf> {
    let path = normalized(&Path::new(&Pattern::escape(&root.to_string_lossy())).join(pattern));
    let found = glob(&path.to_string_lossy()).into_iter().flatten().flatten();
    let found: Vec<PathBuf> = found.filter(|folder| folder.join(MANIFEST).is_file()).collect();
    if found.is_empty() { vec![normalized(&root.join(pattern))] } else { found }
}

/// Returns the folders of a package's path dependencies, those of the workspace included.
fn path_dependencies(manifest: &Table, folder: &Path, workspace: &Value, root: &Path) -> Vec<PathBuf> {
    let path = |(name, dependency): (&String, &Value)| {
        let of_workspace = inherited(name, dependency, workspace);
        let (from, dependency) = of_workspace.map_or((folder, dependency), |dependency| (root, dependency));
        Some(normalized(&from.join(dependency.get("path")?.as_str()?)))
    };
    dependencies(manifest).filter_map(path).collect()
}

/// Returns the dependencies of every kind and for every target.
fn dependencies(manifest: &Table) -> impl Iterator<Item = (&String, &Value)> {
    let of_targets = manifest.get("target").and_then(Value::as_table).into_iter().flat_map(Table::values);
    let tables = core::iter::once(manifest).chain(of_targets.filter_map(Value::as_table));
    tables.flat_map(|table| DEPENDENCIES.iter().filter_map(|key| table.get(*key)?.as_table())).flatten()
}

/// Returns the workspace's part of a dependency; `None` without `workspace = true`.
fn inherited<'w>(name: &str, dependency: &Value, workspace: &'w Value) -> Option<&'w Value> {
    let inherits = dependency.get("workspace").and_then(Value::as_bool) == Some(true);
    inherits.then(|| workspace.get("dependencies")?.get(name)).flatten()
}

/// Returns the name under which a package depends on the crate `krate`: its own, else that of `NAME = { package = "…" }`.
pub fn dependency_name(package: &Path, krate: &str) -> Option<String> {
    let manifest = manifest(package)?;
    if dependencies(&manifest).any(|(name, _)| name == krate) {
        return Some(krate.to_owned());
    }
    let (above, root) = above(package);
    let workspace = root.and_then(|root| above.get(&root)?.get("workspace"));
    let is_meant = |(name, dependency): &(&String, &Value)| {
        let dependency = workspace.and_then(|workspace| inherited(name, dependency, workspace)).unwrap_or(dependency);
        dependency.get("package").and_then(Value::as_str) == Some(krate)
    };
    dependencies(&manifest).find(is_meant).map(|(name, _)| name.clone())
}

/// The tables of dependencies in a manifest, with the older spellings.
const DEPENDENCIES: [&str; 5] =
    ["dependencies", "dev-dependencies", "build-dependencies", "dev_dependencies", "build_dependencies"];

/// Returns the path without `.` and `..`, as cargo compares paths.
pub fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::CurDir => {}
            Component::ParentDir => drop(normalized.pop()),
            other => normalized.push(other),
        }
    }
    normalized
}

/// Returns the path of the `Cargo.lock` that cargo uses: that of the workspace above, which need not list a dependency. Without a
/// workspace, the nearest one in the package's folder or above. An unpacked package may contain one, which cargo ignores.
pub fn cargo_lock(package: &Path) -> Option<PathBuf> {
    let exists = |path: &PathBuf| path.is_file();
    if let (_, Some(root)) = above(package) {
        return Some(root.join(CargoLock::NAME)).filter(exists);
    }
    let folders = package.ancestors().skip(usize::from(is_unpacked(package)));
    folders.map(|folder| folder.join(CargoLock::NAME)).find(exists)
}

/// Returns the paths of a package's `gpu-tuned.toml`, from its folder: the package's own, then that of the workspace of which
/// the package is a member. The first that exists is the package's file.
pub fn config_files(package: &Path) -> Vec<PathBuf> {
    let own = PathBuf::from(ConfigFile::NAME);
    if is_there(&package.join(&own)) {
        return vec![own];
    }
    let shared = root(package).filter(|root| root != package);
    core::iter::once(own).chain(shared.map(|root| relative(&root, package).join(ConfigFile::NAME))).collect()
}

/// Returns the path from the folder `from`; the whole path if `from` is a link, above which other folders are.
pub fn relative(path: &Path, from: &Path) -> PathBuf {
    let shared = path.components().zip(from.components()).take_while(|(one, other)| one == other).count();
    let up = from.components().skip(shared).map(|_| Component::ParentDir);
    let relative: PathBuf = up.chain(path.components().skip(shared)).collect();
    let folder = |path: &Path| path.ancestors().find_map(|folder| folder.canonicalize().ok());
    if folder(&from.join(&relative)) == folder(path) { relative } else { path.to_owned() }
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
    files.iter().find(|file| is_there(&package.join(file))).unwrap_or(&files[0])
}

/// Returns true for a file, and for a link, whatever it names: a link to a missing file is a mistake.
pub fn is_there(path: &Path) -> bool {
    path.exists() || path.is_symlink()
}

/// Returns false if the workspace in `folder` excludes the package.
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
