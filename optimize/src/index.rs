//! The entries of a file by their names, and the dialect that they are in.

use core::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use gpu_tuned_core::source::{FileError, Source};
use serde::Deserialize;

use crate::dialect::{DIALECTS, Dialect, Key, Role, ends};
use crate::entry::ConfigEntry;
use crate::names::Words;

/// A kind of file that is no training config.
#[derive(Deserialize)]
pub(crate) struct OtherFile {
    pub name: String,
    recognised: Vec<Words>,
}

static OTHERS: LazyLock<HashMap<String, Vec<OtherFile>>> =
    LazyLock::new(|| toml::from_str(include_str!("dialects/others.toml")).expect("BUG: the table of files is valid"));

/// The entries of a file by the names of their keys.
pub(crate) struct Index<'e> {
    pub entries: &'e [ConfigEntry],
    by_name: HashMap<&'e str, Vec<&'e ConfigEntry>>,
}

impl<'e> Index<'e> {
    pub(crate) fn new(entries: &'e [ConfigEntry]) -> Self {
        let mut by_name: HashMap<&str, Vec<&ConfigEntry>> = HashMap::new();
        for entry in entries.iter().filter(|entry| !entry.key.is_empty()) {
            by_name.entry(entry.name()).or_default().push(entry);
        }
        Self { entries, by_name }
    }

    /// The entries whose path ends in these names.
    pub(crate) fn find<'i>(&'i self, names: &'i str) -> impl Iterator<Item = &'e ConfigEntry> + 'i {
        let last = names.rsplit('.').next().unwrap_or(names);
        let entries = self.by_name.get(last).map_or(&[][..], Vec::as_slice);
        entries.iter().copied().filter(move |entry| ends(&entry.path, names))
    }

    fn has_all_of_one(&self, sets: &[Words]) -> bool {
        let has = |names: &str| self.find(names).next().is_some();
        let agrees = |names: &str| names.strip_prefix('!').map_or_else(|| has(names), |names| !has(names));
        sets.iter().any(|set| set.iter().all(agrees))
    }
}

/// The dialect of a file: the first of the user's and the shipped ones.
pub(crate) fn recognise(index: &Index<'_>, users: &[&'static Dialect]) -> &'static Dialect {
    let mut all = users.iter().copied().chain(DIALECTS.iter());
    all.find(|dialect| index.has_all_of_one(&dialect.recognised)).unwrap_or_else(Dialect::plain)
}

/// Keys of a dialect: its own, and those of hand-written configs for settings that it has no key for.
fn read_by(dialect: &'static Dialect) -> impl Iterator<Item = &'static Key> {
    let is_own = |other: &Key| dialect.keys.iter().any(|key| key.role == other.role && key.dim == other.dim);
    let others = Dialect::plain().keys.iter().filter(move |other| {
        !dialect.is_plain() && (matches!(other.role, Role::NoCounterpart | Role::Method) || !is_own(other))
    });
    dialect.keys.iter().chain(others)
}

/// The entries of a file that are keys of the dialect, in their order. The name with more tables counts first.
pub(crate) fn matches<'e>(dialect: &'static Dialect, index: &Index<'e>) -> Vec<(&'static Key, &'e ConfigEntry)> {
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let mut names: Vec<_> = read_by(dialect).flat_map(|key| key.names.iter().map(move |names| (key, names))).collect();
    let is_own = |key: &Key| dialect.keys.iter().any(|own| core::ptr::eq(own, key));
    names.sort_by_key(|(key, names)| (!is_own(key), Reverse(names.matches('.').count())));
    for (key, names) in names {
        let entries = index.find(names).filter(|entry| seen.insert(core::ptr::from_ref(*entry)));
        found.extend(entries.map(|entry| (key, entry)));
    }
    found.sort_by_key(|(_, entry)| entry.key_span.start);
    found
}

/// The kind of a file that is no training config.
pub(crate) fn other_file(index: &Index<'_>) -> Option<&'static str> {
    let other = OTHERS.values().flatten().find(|other| index.has_all_of_one(&other.recognised));
    other.map(|other| other.name.as_str())
}

/// The values that references can mean.
pub(crate) struct Targets<'i, 'e> {
    index: &'i Index<'e>,
    roles: HashMap<*const ConfigEntry, Role>,
    /// Number of names in the longest path.
    longest: usize,
    /// The first values by so many last names of their paths.
    by_names: HashMap<usize, HashMap<&'e [String], &'e ConfigEntry>>,
}

impl<'i, 'e> Targets<'i, 'e> {
    pub(crate) fn new(index: &'i Index<'e>, matches: &[(&Key, &'e ConfigEntry)]) -> Self {
        let roles = matches.iter().map(|(key, entry)| (core::ptr::from_ref(*entry), key.role)).collect();
        let longest = index.entries.iter().map(|entry| entry.path.len()).max().unwrap_or_default();
        Self { index, roles, longest, by_names: HashMap::new() }
    }

    /// The first value that a reference can mean, with the role of its key.
    pub(crate) fn find(&mut self, names: &str) -> Option<(&'e ConfigEntry, Option<Role>)> {
        let is_value = |entry: &&ConfigEntry| entry.value.is_scalar() && !entry.value.is_reference();
        let parts: Vec<String> = names.split('.').map(str::to_owned).collect();
        let entry = if parts.iter().any(String::is_empty) {
            self.index.find(names).find(is_value)?
        } else {
            let count = Some(parts.len()).filter(|count| *count <= self.longest)?;
            let values = self.by_names.entry(count).or_insert_with(|| {
                let values = self.index.entries.iter().filter(|entry| !entry.key.is_empty()).filter(is_value);
                let ends =
                    values.filter_map(|entry| Some((&entry.path[entry.path.len().checked_sub(count)?..], entry)));
                // The first value replaces the later ones.
                ends.rev().collect()
            });
            *values.get(parts.as_slice())?
        };
        Some((entry, self.roles.get(&core::ptr::from_ref(entry)).copied()))
    }
}

/// A mistake at the last of two entries with one path, if a setting is the first of them or within it.
pub(crate) fn given_twice<'e>(
    index: &Index<'e>,
    mut settings: impl Iterator<Item = &'e ConfigEntry>,
    source: Source<'_>,
) -> Option<FileError> {
    let (mut last, mut repeated): (HashMap<&str, &ConfigEntry>, HashSet<&str>) = Default::default();
    for entry in index.entries.iter().filter(|entry| !entry.key.is_empty()) {
        if last.insert(&entry.shown, entry).is_some() {
            repeated.insert(&entry.shown);
        }
    }
    let dropped_for = |entry: &'e ConfigEntry| {
        let tables = entry.shown.match_indices('.').map(|(end, _)| &entry.shown[..end]);
        let paths = [entry.shown.as_str()].into_iter().chain(tables);
        let mut last = paths.filter(|path| repeated.contains(path)).filter_map(|path| Some((path, *last.get(path)?)));
        let is_in = |last: &ConfigEntry| (last.key_span.start..last.span.end).contains(&entry.key_span.start);
        last.find(|(_, last)| !is_in(last))
    };
    let (entry, (path, last)) = settings.find_map(|entry| Some((entry, dropped_for(entry)?)))?;
    let message = if entry.path.starts_with(&last.path) {
        format!("`{path}` is given twice, and programs read the last: delete the other")
    } else {
        format!("two keys have the path `{path}`, as one of their names has a dot: rename one")
    };
    Some(source.error(&last.key_span, message))
}
