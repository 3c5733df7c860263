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

/// A mistake at the last entry of a setting that is there twice.
pub(crate) fn given_twice<'e>(
    index: &Index<'_>,
    mut settings: impl Iterator<Item = &'e ConfigEntry>,
    source: Source<'_>,
) -> Option<FileError> {
    let last = settings.find_map(|entry| {
        let same = index.find(entry.name()).filter(|other| other.shown == entry.shown);
        same.last().filter(|last| last.key_span != entry.key_span)
    })?;
    let message = format!("`{}` is given twice, and programs read the last: delete the other", last.shown);
    Some(source.error(&last.key_span, message))
}
