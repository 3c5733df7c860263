//! Dependencies of a package.

use std::path::Path;
use std::{fs, iter};

use gpu_tuned_propose::toml_insert::{self, Order};
use toml_edit::{Array, InlineTable, Item, TableLike, Value};

use super::Manifest;
use super::origin::Origin;
use crate::error::Error;

const TABLES: [&str; 3] = ["dependencies", "build-dependencies", "dev-dependencies"];

pub(in crate::init) struct Wanted<'a> {
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
    pub(in crate::init) fn depend(
        &mut self,
        wanted: &Wanted<'_>,
        root: Option<&mut Self>,
        inherits: Option<Style>,
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
            None => Item::Value(described(wanted)),
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

    /// Style of dependencies that the package inherits from its workspace, if it has any.
    pub(in crate::init) fn inherits(&self, root: Option<&Self>) -> Option<Style> {
        root.unwrap_or(self).table(&["workspace", "dependencies"])?;
        let all = TABLES.iter().filter_map(|name| self.table(&[name])).flat_map(TableLike::iter).map(|(_, item)| item);
        let inherited: Vec<_> = all.filter(|item| is_true(item, "workspace")).collect();
        let is_dotted = |item: &&&Item| item.as_table().is_some_and(toml_edit::Table::is_dotted);
        let dotted = inherited.iter().filter(is_dotted).count();
        (!inherited.is_empty()).then_some(if dotted * 2 > inherited.len() { Style::Dotted } else { Style::InLine })
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
        let Origin::Path(folder) = wanted.from else { return };
        for keys in self.uses(wanted.krate) {
            let mut keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            let mut manifest = &mut *self;
            if manifest.get(&keys).is_some_and(|item| is_true(item, "workspace")) {
                keys.splice(..keys.len() - 1, ["workspace", "dependencies"]);
                manifest = root.as_deref_mut().unwrap_or(manifest);
            }
            let there = manifest.get(&keys).and_then(|item| item.get("path")).and_then(Item::as_str);
            let there = there.and_then(|path| fs::canonicalize(manifest.folder().join(path)).ok());
            let document = manifest.document.as_item_mut();
            let found = keys.iter().try_fold(document, |item, key| item.as_table_like_mut()?.get_mut(key));
            if let Some(item) = found.filter(|_| there.as_ref() != Some(folder)) {
                take_from(item, folder);
            }
        }
    }

    /// Adds a dependency to those of the workspace.
    fn offer(&mut self, wanted: &Wanted<'_>) {
        let offered = &mut self.document["workspace"]["dependencies"];
        if offered.get(wanted.krate).is_none() {
            let plain = Wanted { features: &[], ..*wanted };
            toml_insert::entry(offered, wanted.krate, Item::Value(described(&plain)), Order::Sorted);
        }
    }
}

/// Style of an inherited dependency.
#[derive(Clone, Copy)]
pub(in crate::init) enum Style {
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

pub(super) fn is_true(item: &Item, key: &str) -> bool {
    item.get(key).and_then(Item::as_bool) == Some(true)
}

fn features(item: &Item) -> Vec<String> {
    let list = item.get("features").and_then(Item::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn described(wanted: &Wanted<'_>) -> Value {
    // The usual form: all compatible releases.
    let (release, _) = env!("CARGO_PKG_VERSION").rsplit_once('.').expect("BUG: a version has three parts");
    let mut table = match wanted.from {
        Origin::Release if wanted.features.is_empty() => return release.into(),
        Origin::Release => [("version", release)].into_iter().collect(),
        Origin::Path(folder) => {
            [("path", folder.display().to_string()), ("version", release.to_owned())].into_iter().collect()
        }
        Origin::Same(place) => place.clone(),
    };
    if !wanted.features.is_empty() {
        table.insert("features", Value::Array(wanted.features.iter().copied().collect::<Array>()));
    }
    Value::InlineTable(table)
}

fn inherited(wanted: &Wanted<'_>, style: Style) -> Item {
    let mut table = InlineTable::new();
    table.insert("workspace", true.into());
    if !wanted.features.is_empty() {
        table.insert("features", Value::Array(wanted.features.iter().copied().collect::<Array>()));
    }
    if wanted.features.is_empty() && matches!(style, Style::Dotted) {
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

fn take_from(dependency: &mut Item, folder: &Path) {
    if let Some(table) = dependency.as_table_like_mut() {
        for key in ["git", "branch", "tag", "rev", "registry"] {
            table.remove(key);
        }
    }
    let path = folder.display().to_string();
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
