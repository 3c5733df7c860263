//! Schemas: all keys that a framework's release reads, a table each in `schemas/`.

use std::collections::HashSet;

use gpu_tuned_core::suggest;
use serde::Deserialize;

use crate::dialect::{Dialect, is_word};
use crate::document::{ConfigEntry, Value};
use crate::names::Words;
use crate::vocabulary::{has_no_value, is_named_by_models};

/// All keys that a framework's release reads.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Schema {
    /// The framework with its release.
    pub release: String,
    /// Addresses of the files that declare the keys.
    #[cfg_attr(not(test), expect(dead_code, reason = "for readers of the table"))]
    pub source: Words,
    /// Keys whose table is the root; without them it is that of the file.
    #[serde(default)]
    anchors: Words,
    /// True if a program has further tables, and dimensions of the model, beside the keys.
    #[serde(default)]
    is_shared: bool,
    #[serde(rename = "table")]
    pub tables: Vec<SchemaTable>,
}

/// The keys of a table, or of several alike.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SchemaTable {
    /// Paths from the root, which is a dot; a star is any name.
    pub at: Words,
    /// Keys of rows of dialects, and of dimensions of models.
    #[serde(default)]
    pub read: Words,
    /// Keys without an effect on memory, precision, batch, speed and task, with all that is within them.
    #[serde(default)]
    pub harmless: Words,
    /// Keys with content of the user.
    #[serde(default)]
    pub open: Words,
    /// What keys change, unless they are off; with `=` unless they have one of the values between bars.
    #[serde(default)]
    pub changes: Vec<(String, Words)>,
    /// Keys that are read, and whose tables are those of another dialect.
    #[serde(default)]
    pub within: Vec<(String, String)>,
}

/// Place of a key in the schema.
pub(crate) enum Place<'s> {
    Read,
    Harmless,
    /// It changes this.
    Changes(&'s str),
    /// The framework has no such key.
    Unknown(&'s Schema),
    /// The place is the user's.
    Open,
}

/// The schema of a file, with the paths of its roots.
pub(crate) struct SchemaKeys<'s, 'e> {
    schema: &'s Schema,
    roots: HashSet<&'e [String]>,
}

impl<'s, 'e> SchemaKeys<'s, 'e> {
    pub(crate) fn new(schema: &'s Schema, entries: &'e [ConfigEntry]) -> Self {
        let anchored = entries.iter().filter(|entry| schema.anchors.has(entry.name()));
        let mut roots: HashSet<_> = anchored.map(|entry| &entry.path[..entry.path.len() - 1]).collect();
        if schema.anchors.iter().next().is_none() {
            roots.insert(&[]);
        }
        Self { schema, roots }
    }

    pub(crate) fn place(&self, entry: &ConfigEntry) -> Place<'s> {
        let root = (0..entry.path.len()).rev().find(|end| self.roots.contains(&entry.path[..*end]));
        let place = self.schema.place(&entry.path[root.unwrap_or_default()..], entry);
        // Programs have keys of their own beside a table of the framework's.
        if root.is_some() || matches!(place, Place::Changes(_)) { place } else { Place::Open }
    }
}

impl Schema {
    /// Proposes the nearest key.
    pub(crate) fn suggest(&self, name: &str) -> String {
        suggest(name, self.tables.iter().flat_map(SchemaTable::names).filter(|known| *known != name))
    }

    fn place(&self, path: &[String], entry: &ConfigEntry) -> Place<'_> {
        let Some((name, parents)) = path.split_last() else { return Place::Open };
        let tables = || self.tables.iter().filter(|table| table.at.iter().any(|at| is_at(at, parents)));
        if let Some(place) = tables().find_map(|table| table.place(name, &entry.value)) {
            return place;
        }
        let is_table = matches!(entry.value, Value::Table(_));
        if self.tables.iter().any(|table| table.at.iter().any(|at| is_at(at, path))) {
            return if is_table { Place::Read } else { Place::Open };
        }
        let is_of_program = || is_table || is_named_by_models(name) || !entry.aliases.is_empty();
        if tables().next().is_some() && !(self.is_shared && is_of_program()) {
            return Place::Unknown(self);
        }
        let above = (1..path.len()).rev().find_map(|end| {
            let (name, parents) = path[..end].split_last()?;
            let mut tables = self.tables.iter().filter(|table| table.at.iter().any(|at| is_at(at, parents)));
            let within =
                |table: &SchemaTable| table.within.iter().find(|(key, _)| key == name).map(|(_, name)| name.clone());
            tables.find_map(|table| Some((table.place(name, &Value::Null)?, within(table), end)))
        });
        match above {
            Some((_, Some(other), end)) => {
                let schema = Dialect::named(&other).and_then(|dialect| dialect.schema.as_ref());
                schema.map_or(Place::Open, |schema| schema.place(&path[end..], entry))
            }
            Some((Place::Harmless | Place::Changes(_), ..)) => Place::Harmless,
            _ => Place::Open,
        }
    }
}

impl SchemaTable {
    /// All keys, in their order.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let changes = self.changes.iter().flat_map(|(_, names)| names.iter());
        let changes = changes.map(|name| name.split_once('=').map_or(name, |(name, _)| name));
        [&self.read, &self.harmless, &self.open].into_iter().flat_map(Words::iter).chain(changes)
    }

    fn place(&self, name: &str, value: &Value) -> Option<Place<'_>> {
        let change = self.changes.iter().find_map(|(topic, names)| {
            let mut names =
                names.iter().map(|all| all.split_once('=').map_or((all, None), |(own, is)| (own, Some(is))));
            Some((topic, names.find(|(own, _)| *own == name)?.1))
        });
        match change {
            Some((_, values)) if is_default(value, values) => Some(Place::Harmless),
            Some((topic, _)) => Some(Place::Changes(topic)),
            None if self.read.has(name) => Some(Place::Read),
            None if self.harmless.has(name) => Some(Place::Harmless),
            None if self.open.has(name) => Some(Place::Open),
            None => None,
        }
    }
}

/// Returns true for a path of these names; a dot is the root, and a star any name.
fn is_at(at: &str, path: &[String]) -> bool {
    let mut names = at.split('.').filter(|name| !name.is_empty());
    let fits = path.iter().all(|own| names.next().is_some_and(|name| name == "*" || name == own));
    fits && names.next().is_none()
}

/// Returns true for a value without an effect: null, or one of those between bars. Without them it is one that is off.
fn is_default(value: &Value, values: Option<&str>) -> bool {
    let Some(values) = values else { return has_no_value(value, false) };
    let texts = value.bare().map(|text| text.to_ascii_lowercase());
    let number = |text: &str| text.parse::<f64>().ok();
    let is_same = |known: &str, text: &str| {
        is_word(known, text) || number(known).is_some_and(|known| number(text) == Some(known))
    };
    *value == Value::Null || texts.is_some_and(|text| values.split('|').any(|known| is_same(known, &text)))
}
