//! `Cargo.toml`, edited in place.

use std::path::{Path, PathBuf};
use std::{fs, iter};

use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::regular_file::{LARGEST, read_text};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_project::workspace::{manifest, relative};
use gpu_tuned_propose::diff::display_name;
use gpu_tuned_propose::line_endings::{Style, Text};
use gpu_tuned_propose::toml_insert::{self, Order};
use toml_edit::{Array, Document, DocumentMut, InlineTable, Item, TableLike, Value};

use crate::error::Error;
use crate::files::Change;

/// A `Cargo.toml` that is being edited.
pub(super) struct Manifest {
    path: PathBuf,
    name: String,
    before: String,
    text: Text,
    document: DocumentMut,
    /// True if we created the table of features.
    has_new_features: bool,
}

impl Manifest {
    pub(super) fn read(path: &Path, workspace: &Path) -> Result<Self, Error> {
        let before = read_text(path, LARGEST).map_err(|source| Error::Read { path: path.to_owned(), source })?;
        let name = display_name(path, workspace);
        let text = Text::parse(&name, &before).map_err(|mistake| in_file(*mistake, &before))?;
        let document = Document::parse(text.lines.as_str()).map_err(|error| {
            let source = Source { file: &name, text: &text.lines };
            in_file(source.error(&error.span().unwrap_or(0..0), error.message()), &text.lines)
        })?;
        let document = document.into_mut();
        Ok(Self { path: path.to_owned(), name, before, text, document, has_new_features: false })
    }

    pub(super) const fn style(&self) -> Style {
        self.text.style()
    }

    pub(super) fn change(self) -> Change {
        let after = self.text.with(self.document.to_string()).written();
        Change { path: self.path, name: self.name, before: Some(self.before), after }
    }

    /// The item at the end of these keys.
    fn get(&self, keys: &[&str]) -> Option<&Item> {
        keys.iter().try_fold(self.document.as_item(), |item, key| item.as_table_like()?.get(key))
    }

    /// The table at the end of these keys.
    fn table(&self, keys: &[&str]) -> Option<&dyn TableLike> {
        self.get(keys)?.as_table_like()
    }

    /// An error at the end of these keys.
    fn mistake(&self, keys: &[&str], message: impl Into<String>) -> Error {
        let text = &self.text.lines;
        let place = Document::parse(text.as_str()).ok().and_then(|document| place(document.as_item(), keys));
        in_file(Source { file: &self.name, text }.error(&place.unwrap_or(0..0), message), text)
    }

    pub(super) fn has_no_script(&self) -> Error {
        self.mistake(&["package", "build"], "the package has no build script; remove `build = false`")
    }

    pub(super) fn forbids_script(&self) -> bool {
        self.get(&["package", "build"]).is_some_and(|build| build.as_bool() == Some(false))
    }
}

fn in_file(mistake: FileError, text: &str) -> Error {
    Error::Files { mistakes: vec![(mistake, text.into())] }
}

/// Place of the last of these keys that has one.
fn place(item: &Item, keys: &[&str]) -> Option<std::ops::Range<usize>> {
    let [first, rest @ ..] = keys else { return None };
    let (key, item) = item.as_table_like()?.get_key_value(first)?;
    place(item, rest).or_else(|| key.span())
}

const TABLES: [&str; 3] = ["dependencies", "build-dependencies", "dev-dependencies"];

pub(super) struct Wanted<'a> {
    pub table: &'static str,
    pub krate: &'static str,
    pub features: &'a [&'static str],
    /// Features that imply the last one.
    pub enough: &'a [&'static str],
    pub from: &'a Origin,
}

impl Manifest {
    /// Adds or completes a dependency, and returns its name in the package.
    /// A dependency that is optional, or only for some targets or uses, is an error.
    pub(super) fn depend(
        &mut self,
        wanted: &Wanted<'_>,
        root: Option<&mut Self>,
        inherits: Option<Inheritance>,
    ) -> Result<String, Error> {
        self.refuse_elsewhere(wanted)?;
        let known = self.table(&[wanted.table]).and_then(|table| named(table, wanted.krate));
        let name = known.clone().unwrap_or_else(|| wanted.krate.to_owned());
        if known.is_some() {
            self.complete(wanted, &name, root.as_deref());
            self.relocate(wanted, root);
            return Ok(name);
        }
        let item = match inherits {
            None => Item::Value(self.described(wanted)),
            Some(style) => {
                let root = match root {
                    Some(root) => root,
                    None => &mut *self,
                };
                root.offer(wanted);
                inherited(wanted, style)
            }
        };
        let table =
            toml_insert::table(&mut self.document, wanted.table, &["package", "features", "lib", "dependencies"]);
        toml_insert::entry(table, &name, item, Order::Sorted);
        Ok(name)
    }

    /// Notation of dependencies that the package inherits from its workspace, if it has any.
    pub(super) fn inherits(&self, root: Option<&Self>) -> Option<Inheritance> {
        root.unwrap_or(self).table(&["workspace", "dependencies"])?;
        let all = TABLES.iter().filter_map(|name| self.table(&[name])).flat_map(TableLike::iter).map(|(_, item)| item);
        let inherited: Vec<_> = all.filter(|item| is_true(item, "workspace")).collect();
        let is_dotted = |item: &&&Item| item.as_table().is_some_and(toml_edit::Table::is_dotted);
        let dotted = inherited.iter().filter(is_dotted).count();
        (!inherited.is_empty()).then_some(if dotted * 2 > inherited.len() {
            Inheritance::Dotted
        } else {
            Inheritance::InLine
        })
    }

    /// Refuses a conditional dependency.
    fn refuse_elsewhere(&self, wanted: &Wanted<'_>) -> Result<(), Error> {
        let Wanted { table, krate, .. } = *wanted;
        let old_name = table.replace('-', "_");
        if old_name != table && self.get(&[&old_name]).is_some() {
            return Err(self.mistake(&[&old_name], format!("rename this table to `{table}`")));
        }
        if let Some(name) = self.table(&[table]).and_then(|all| named(all, krate)) {
            if self.get(&[table, &name]).is_some_and(|item| is_true(item, "optional")) {
                let message = format!("`{krate}` is optional, but always needed; remove `optional = true`");
                return Err(self.mistake(&[table, &name, "optional"], message));
            }
            return Ok(());
        }
        if let Some(keys) = self.uses(krate).first() {
            let message = format!("`{krate}` is only for some targets or uses; move it into [{table}]");
            return Err(self.mistake(&keys.iter().map(String::as_str).collect::<Vec<_>>(), message));
        }
        Ok(())
    }

    /// Keys of all dependencies on a crate, also of those for some targets or uses.
    fn uses(&self, krate: &str) -> Vec<Vec<String>> {
        let targets = self.table(&["target"]).into_iter().flat_map(TableLike::iter);
        let places = iter::once(vec![]).chain(targets.map(|(target, _)| vec!["target", target]));
        let tables = places.flat_map(|place| TABLES.map(|table| [&place[..], &[table]].concat()));
        let in_table = |keys: Vec<&str>| {
            let name = named(self.table(&keys)?, krate)?;
            Some(keys.into_iter().map(str::to_owned).chain([name]).collect())
        };
        tables.filter_map(in_table).collect()
    }

    fn complete(&mut self, wanted: &Wanted<'_>, name: &str, root: Option<&Self>) {
        let item = self.get(&[wanted.table, name]);
        let mut has: Vec<String> = item.map(features).unwrap_or_default();
        if item.is_some_and(|item| is_true(item, "workspace")) {
            let offered = root.unwrap_or(self).get(&["workspace", "dependencies", name]);
            has.extend(offered.map(features).unwrap_or_default());
        }
        let is_enough = |has: &String| wanted.enough.contains(&has.as_str());
        let Some((last, others)) = wanted.features.split_last() else { return };
        let lacks = |feature: &&&'static str| !has.iter().any(|has| has == **feature);
        let mut lacking: Vec<&'static str> = others.iter().filter(lacks).copied().collect();
        if lacks(&last) && !has.iter().any(is_enough) {
            lacking.push(*last);
        }
        let Some(item) = self.document.get_mut(wanted.table).and_then(|table| table.get_mut(name)) else { return };
        for feature in lacking {
            enable(item, feature);
        }
    }

    /// Sets the path of a dependency to the requested checkout, wherever the package or its workspace describes it.
    fn relocate(&mut self, wanted: &Wanted<'_>, mut root: Option<&mut Self>) {
        let Origin::Path { folder, is_relative } = wanted.from else { return };
        for keys in self.uses(wanted.krate) {
            let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let mut manifest = &mut *self;
            if manifest.get(&keys).is_some_and(|item| is_true(item, "workspace")) {
                keys.splice(..keys.len() - 1, ["workspace", "dependencies"]);
                manifest = root.as_deref_mut().unwrap_or(manifest);
            }
            let there = manifest.get(&keys).and_then(|item| item.get("path")).and_then(Item::as_str);
            let there = there.and_then(|path| fs::canonicalize(manifest.folder().join(path)).ok());
            let path = manifest.path_to(folder, *is_relative);
            let document = manifest.document.as_item_mut();
            let found = keys.iter().try_fold(document, |item, key| item.as_table_like_mut()?.get_mut(key));
            if let Some(item) = found.filter(|_| there.as_ref() != Some(folder)) {
                take_from(item, path);
            }
        }
    }

    /// Adds a dependency to those of the workspace.
    fn offer(&mut self, wanted: &Wanted<'_>) {
        let described = Item::Value(self.described(&Wanted { features: &[], ..*wanted }));
        let offered = &mut self.document["workspace"]["dependencies"];
        if offered.get(wanted.krate).is_none() {
            toml_insert::entry(offered, wanted.krate, described, Order::Sorted);
        }
    }
}

/// Notation of an inherited dependency.
#[derive(Clone, Copy)]
pub(super) enum Inheritance {
    /// `a.workspace = true`
    Dotted,
    /// `a = { workspace = true }`
    InLine,
}

fn named(table: &dyn TableLike, krate: &str) -> Option<String> {
    let is_it = |(name, item): &(&str, &Item)| {
        item.get("package").and_then(Item::as_str).map_or(*name == krate, |package| package == krate)
    };
    table.iter().find(is_it).map(|(name, _)| name.to_owned())
}

fn is_true(item: &Item, key: &str) -> bool {
    item.get(key).and_then(Item::as_bool) == Some(true)
}

fn features(item: &Item) -> Vec<String> {
    let list = item.get("features").and_then(Item::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn inherited(wanted: &Wanted<'_>, style: Inheritance) -> Item {
    let mut table = InlineTable::new();
    table.insert("workspace", true.into());
    if !wanted.features.is_empty() {
        table.insert("features", Value::Array(wanted.features.iter().copied().collect::<Array>()));
    }
    if wanted.features.is_empty() && matches!(style, Inheritance::Dotted) {
        let mut table = table.into_table();
        table.set_dotted(true);
        return Item::Table(table);
    }
    Item::Value(Value::InlineTable(table))
}

fn enable(dependency: &mut Item, feature: &str) {
    match dependency.get_mut("features").and_then(Item::as_array_mut) {
        Some(list) => toml_insert::in_list(list, feature),
        None => add_key(dependency, "features", Value::Array(std::iter::once(feature).collect())),
    }
}

fn take_from(dependency: &mut Item, path: String) {
    if let Some(table) = dependency.as_table_like_mut() {
        for key in ["git", "branch", "tag", "rev", "registry"] {
            table.remove(key);
        }
    }
    match dependency.get_mut("path").and_then(Item::as_value_mut) {
        Some(there) => {
            let decor = there.decor().clone();
            *there = path.into();
            *there.decor_mut() = decor;
        }
        None => add_key(dependency, "path", path.into()),
    }
}

fn add_key(dependency: &mut Item, key: &str, value: Value) {
    match dependency {
        Item::Value(Value::InlineTable(table)) => toml_insert::in_line(table, key, value),
        Item::Value(version) => {
            let decor = version.decor().clone();
            let mut bare = version.clone();
            bare.decor_mut().clear();
            let mut table: InlineTable = [("version", bare), (key, value)].into_iter().collect();
            *table.decor_mut() = decor;
            *version = Value::InlineTable(table);
        }
        Item::Table(table) => drop(table.insert(key, Item::Value(value))),
        _ => {}
    }
}

pub(super) enum Origin {
    Release,
    /// A folder. Relative paths begin at the manifest.
    Path {
        folder: PathBuf,
        is_relative: bool,
    },
    /// The origin of another crate, as a manifest writes it.
    Same(InlineTable),
}

/// A crate beside another one in their repository.
pub(super) struct Sibling {
    pub krate: &'static str,
    pub folder: &'static str,
}

pub(super) struct SiblingOrigin {
    pub origin: Origin,
    /// True if the workspace sets the origin.
    pub is_offered: bool,
}

impl Manifest {
    /// Origin of a dependency's sibling: by path, git repository or registry.
    pub(super) fn beside(&self, name: &str, sibling: &Sibling, root: Option<&Self>) -> Option<SiblingOrigin> {
        let (home, entry) = self.described_at("dependencies", name, root)?;
        let text = |key: &str| entry.get(key).and_then(Item::as_str);
        let mut place = InlineTable::new();
        if let Some(path) = text("path") {
            let path = next_to(Path::new(path), sibling.folder);
            if !is_crate(&home.folder().join(&path), sibling.krate) {
                return None;
            }
            place.insert("path", path.display().to_string().into());
        } else {
            let key = ["git", "registry"].into_iter().find(|key| text(key).is_some())?;
            place.extend(text(key).map(|source| (key, source)));
        }
        for key in ["branch", "tag", "rev", "version"] {
            place.extend(text(key).map(|said| (key, said)));
        }
        let is_offered = self.get(&["dependencies", name]).is_some_and(|item| is_true(item, "workspace"));
        Some(SiblingOrigin { origin: Origin::Same(place), is_offered })
    }

    /// Returns true if a dependency comes from crates.io.
    pub(super) fn is_release(&self, table: &str, name: &str, root: Option<&Self>) -> bool {
        let is_elsewhere = |entry: &Item| ["path", "git", "registry"].iter().any(|key| entry.get(key).is_some());
        !self.described_at(table, name, root).is_some_and(|(_, entry)| is_elsewhere(entry))
    }

    /// Returns true if the workspace describes a crate for its members.
    pub(super) fn offers(&self, krate: &str) -> bool {
        self.get(&["workspace", "dependencies", krate]).is_some()
    }

    /// The entry that sets a dependency's origin, with its manifest: the package's or the workspace's.
    fn described_at<'m>(&'m self, table: &str, name: &str, root: Option<&'m Self>) -> Option<(&'m Self, &'m Item)> {
        let entry = self.get(&[table, name])?;
        if !is_true(entry, "workspace") {
            return Some((self, entry));
        }
        let root = root.unwrap_or(self);
        Some((root, root.get(&["workspace", "dependencies", name])?))
    }

    /// Folder of relative paths.
    fn folder(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new(""))
    }

    /// The path of a folder in this manifest, with slashes if it is relative.
    fn path_to(&self, folder: &Path, is_relative: bool) -> String {
        match fs::canonicalize(self.folder()) {
            Ok(own) if is_relative => {
                let path = relative(folder, &own);
                path.iter().map(|part| part.to_string_lossy()).collect::<Vec<_>>().join("/")
            }
            _ => folder.display().to_string(),
        }
    }

    /// The value of a new dependency.
    fn described(&self, wanted: &Wanted<'_>) -> Value {
        // The usual form: all compatible releases.
        let (release, _) = env!("CARGO_PKG_VERSION").rsplit_once('.').expect("BUG: a version has three parts");
        let mut table = match wanted.from {
            Origin::Release if wanted.features.is_empty() => return release.into(),
            Origin::Release => [("version", release)].into_iter().collect(),
            Origin::Path { folder, is_relative } => {
                [("path", self.path_to(folder, *is_relative)), ("version", release.to_owned())].into_iter().collect()
            }
            Origin::Same(place) => place.clone(),
        };
        if !wanted.features.is_empty() {
            table.insert("features", Value::Array(wanted.features.iter().copied().collect::<Array>()));
        }
        Value::InlineTable(table)
    }
}

/// Another folder beside this one, as a path of the same kind.
fn next_to(folder: &Path, name: &str) -> PathBuf {
    match (folder.file_name(), folder.parent()) {
        (Some(_), Some(parent)) => parent.join(name),
        // A path that ends in dots.
        _ => folder.join("..").join(name),
    }
}

/// Returns true if a folder has the crate of this name.
fn is_crate(folder: &Path, krate: &str) -> bool {
    let manifest = manifest(folder);
    let name = manifest.as_ref().and_then(|manifest| manifest.get("package")?.get("name")?.as_str());
    name == Some(krate)
}

/// The feature for the GPU in the build machine, where the package has a `native` of its own.
const OTHER_NATIVE: &str = "native-gpu";

/// Returns true if a feature enables `CRATE/FEATURE`.
fn has_feature(list: &Array, enables: &str) -> bool {
    let weak = enables.replace('/', "?/");
    list.iter().filter_map(Value::as_str).any(|enabled| enabled == enables || enabled == weak)
}

/// Tables of optional dependencies.
const TABLES_WITH_OPTIONAL: [&str; 2] = ["dependencies", "build-dependencies"];

impl Manifest {
    /// Declares GPUs.
    /// An optional dependency of the same name is an error.
    pub(super) fn declare(&mut self, targets: &[ProfileId]) -> Result<(), Error> {
        self.has_new_features = self.get(&["features"]).is_none();
        for target in targets {
            self.feature(target.as_str(), None)?;
        }
        if let Some(first) = targets.first().filter(|_| self.has_new_features) {
            self.comment(first.as_str(), "# The GPUs to build for.\n");
        }
        Ok(())
    }

    /// Declares a feature for the GPU in the build machine, and `cuda`, which enable features of these dependencies. Returns the
    /// name of the first, and notes on the package's features. An optional dependency of the same name is an error.
    pub(super) fn pass_on(&mut self, [runtime, build]: [&str; 2]) -> Result<(String, Vec<String>), Error> {
        let enables = format!("{build}/native");
        let features = self.table(&["features"]).into_iter().flat_map(TableLike::iter);
        let is_ours = |list: &Item| list.as_array().is_some_and(|list| has_feature(list, &enables));
        let known = features.filter(|(_, list)| is_ours(list)).map(|(name, _)| name.to_owned()).next();
        let mut notes = Vec::new();
        let native = known.unwrap_or_else(|| {
            let is_taken = self.get(&["features", ProfileId::NATIVE]).is_some();
            let name = if is_taken { OTHER_NATIVE } else { ProfileId::NATIVE };
            notes.extend(is_taken.then(|| {
                format!("the feature `native` is the package's own: `{name}` builds for the GPU in the build machine")
            }));
            name.to_owned()
        });
        self.feature(&native, Some(enables))?;
        notes.extend(self.feature("cuda", Some(format!("{runtime}/cuda")))?);
        if self.has_new_features {
            self.comment(&native, "# The GPU in the build machine.\n");
            self.comment("cuda", "# Trains on a CUDA GPU.\n");
        }
        Ok((native, notes))
    }

    /// Declares a feature that enables another one. Returns a note on a changed feature.
    fn feature(&mut self, name: &str, enables: Option<String>) -> Result<Option<String>, Error> {
        if self.get(&["features", name]).is_none() {
            self.refuse_dependency(name)?;
            let list: Array = enables.iter().map(String::as_str).collect();
            let table = toml_insert::table(&mut self.document, "features", &["package"]);
            let order = if self.has_new_features { Order::Last } else { Order::Sorted };
            toml_insert::entry(table, name, Item::Value(Value::Array(list)), order);
            return Ok(None);
        }
        let Some(enables) = enables else { return Ok(None) };
        let list = self.document["features"].get_mut(name).and_then(Item::as_array_mut);
        let Some(list) = list else { return Ok(None) };
        if has_feature(list, &enables) {
            return Ok(None);
        }
        toml_insert::in_list(list, &enables);
        Ok(Some(format!("the feature `{name}` exists, and now enables `{enables}`, too")))
    }

    fn comment(&mut self, name: &str, comment: &str) {
        let table = self.document.get_mut("features").and_then(Item::as_table_mut);
        if let Some(mut key) = table.and_then(|table| table.key_mut(name)) {
            key.leaf_decor_mut().set_prefix(comment);
        }
    }

    /// Refuses the name of an optional dependency, which is a feature.
    fn refuse_dependency(&self, name: &str) -> Result<(), Error> {
        let refuse = |keys: &[&str]| {
            let message = format!(
                "the optional dependency `{name}` has the name of a feature that is to be added; name it `dep:{name}` in \
                 the features that enable it"
            );
            Err(self.mistake(keys, message))
        };
        // A dependency with `dep:` is not a feature.
        let lists =
            self.table(&["features"]).into_iter().flat_map(TableLike::iter).filter_map(|(_, item)| item.as_array());
        let hidden = format!("dep:{name}");
        if lists.flatten().any(|value| value.as_str() == Some(&hidden)) {
            return Ok(());
        }
        let is_optional = |keys: &[&str]| self.get(keys).and_then(|item| item.get("optional")?.as_bool()) == Some(true);
        if let Some(table) = TABLES_WITH_OPTIONAL.into_iter().find(|table| is_optional(&[table, name])) {
            return refuse(&[table, name]);
        }
        for (target, _) in self.table(&["target"]).into_iter().flat_map(TableLike::iter) {
            if let Some(table) =
                TABLES_WITH_OPTIONAL.into_iter().find(|table| is_optional(&["target", target, table, name]))
            {
                return refuse(&["target", target, table, name]);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::next_to;

    #[test]
    fn a_folder_beside_another_is_named_as_that_is() {
        for (folder, beside) in [
            ("../runtime", "../build-support"),
            ("../runtime/", "../build-support"),
            ("runtime", "build-support"),
            ("/x/runtime", "/x/build-support"),
            ("..", "../../build-support"),
            (".", "./../build-support"),
        ] {
            assert_eq!(next_to(Path::new(folder), "build-support"), Path::new(beside), "{folder}");
        }
    }
}
