//! The settings of a config and their keys.

use std::ops::RangeInclusive;

use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::{Precision, suggest};

use crate::dialect::{DIALECTS, Family, Key, Role, Spelling, known};
use crate::document::{ConfigText, Value};
use crate::entry::ConfigEntry;
use crate::error::OptimizeError;

/// A key of the file that the dialect tables list.
#[derive(Clone, Debug)]
pub(crate) struct MatchedKey {
    pub role: Role,
    pub spelling: Spelling,
    pub entry: ConfigEntry,
    pub family: Family,
}

/// The keys of a file that the dialect tables list, and the mistakes in their values.
pub(crate) struct MatchedKeys<'t> {
    pub source: Source<'t>,
    pub all: Vec<MatchedKey>,
    pub mistakes: Vec<FileError>,
}

/// A key that the user assigns to a setting.
#[derive(Clone, Debug)]
pub struct KeyOverride {
    pub(crate) role: Role,
    pub(crate) key: String,
}

impl KeyOverride {
    /// Assigns a key of the file to a setting, as `--at SETTING=KEY` does.
    ///
    /// # Errors
    ///
    /// Where there is no such setting, or no such key with a single value.
    pub fn new(setting: &str, key: &str, entries: &[ConfigEntry]) -> Result<Self, OptimizeError> {
        let names = || Role::NAMED.iter().map(|(name, _)| *name);
        let role = Role::NAMED.iter().find(|(name, _)| *name == setting).map(|(_, role)| *role);
        let role = role.ok_or_else(|| OptimizeError::NoSetting {
            name: setting.to_owned(),
            hint: suggest(setting, names()),
            names: names().collect::<Vec<_>>().join(", "),
        })?;
        if entries.iter().any(|entry| entry.shown == key && entry.value.is_scalar()) {
            return Ok(Self { role, key: key.to_owned() });
        }
        let hint = suggest(key, entries.iter().map(|entry| entry.shown.as_str()));
        Err(OptimizeError::NoKey { setting: setting.to_owned(), key: key.to_owned(), hint })
    }
}

impl<'t> MatchedKeys<'t> {
    /// Finds the keys of settings. A key that the user assigns replaces all others of its setting.
    pub(crate) fn new(entries: &[ConfigEntry], file: &'t ConfigText, overrides: &[KeyOverride]) -> Self {
        let mut all: Vec<MatchedKey> = entries
            .iter()
            .filter_map(|entry| {
                let assigned = overrides.iter().find(|it| it.key == entry.shown);
                let key = match assigned {
                    Some(assigned) => DIALECTS.keys.iter().find(|key| key.role == assigned.role),
                    None => known(&entry.path),
                }?;
                let own = known(&entry.path).filter(|own| own.role == key.role).unwrap_or(key);
                let is_replaced = assigned.is_none() && overrides.iter().any(|it| it.role == key.role);
                (!is_replaced && is_usable(entry, own, assigned.is_some())).then(|| MatchedKey::new(own, entry.clone()))
            })
            .collect();
        // DeepSpeed's `train_batch_size` is the global batch beside a micro-batch.
        if all.iter().filter(|found| found.role == Role::Batch).count() > 1
            && let Some(found) = all.iter_mut().find(|found| found.entry.name() == "train_batch_size")
        {
            found.role = Role::GlobalBatch;
        }
        Self { source: file.source(), all, mistakes: Vec::new() }
    }

    pub(crate) fn with_role(&self, role: Role) -> impl Iterator<Item = &MatchedKey> {
        self.all.iter().filter(move |found| found.role == role)
    }

    /// The only key of a role; several are a mistake.
    pub(crate) fn only(&mut self, role: Role) -> Option<MatchedKey> {
        let mut found = self.with_role(role).cloned();
        let (first, second) = (found.next()?, found.next());
        drop(found);
        if let (Some(second), Some(name)) = (second, role.name()) {
            let (one, other) = (&first.entry.shown, &second.entry.shown);
            let message =
                format!("`{one}` and `{other}` both look like the {name} of training; choose one: --at {name}={one}");
            self.mistakes.push(self.source.error(&second.entry.key_span, message));
        }
        Some(first)
    }

    /// The count of a role; `None` where the file leaves it open.
    pub(crate) fn count(&mut self, role: Role, range: RangeInclusive<u64>) -> Option<u64> {
        let read = self.only(role)?.count(range, self.source);
        self.keep(read)
    }

    /// The flag of a role; `None` where the file leaves it open.
    pub(crate) fn flag(&mut self, role: Role) -> Option<bool> {
        let read = self.only(role)?.flag(self.source);
        self.keep(read)
    }

    /// The value that was read; a mistake is recorded.
    pub(crate) fn keep<T>(&mut self, read: Result<Option<T>, FileError>) -> Option<T> {
        read.unwrap_or_else(|mistake| {
            self.mistakes.push(mistake);
            None
        })
    }
}

/// Returns true if the value can be one of the key: other tables use names of settings, too.
fn is_usable(entry: &ConfigEntry, key: &Key, is_assigned: bool) -> bool {
    if entry.value.is_reference() {
        return false;
    }
    match key.role {
        Role::Ranks | Role::RanksOfNode | Role::Nodes => !matches!(entry.value, Value::Table(_)),
        // The size of a whole data set is neither a share, such as 0.8, nor one of the parts in a list.
        Role::Samples if !is_assigned => {
            entry.value.count().is_some_and(|count| count > 1) && !entry.shown.contains('[')
        }
        _ => entry.value.is_scalar(),
    }
}

impl MatchedKey {
    fn new(key: &Key, entry: ConfigEntry) -> Self {
        let spelling = match (key.spelling, &entry.value) {
            // `mixed_precision: true`
            (Spelling::Precision, Value::Flag(true)) => Spelling::FlagFor(Precision::MixedF16),
            (spelling, _) => spelling,
        };
        Self { role: key.role, spelling, entry, family: key.family }
    }

    /// The count; `None` where the file leaves it open.
    pub(crate) fn count(&self, range: RangeInclusive<u64>, source: Source<'_>) -> Result<Option<u64>, FileError> {
        let value = &self.entry.value;
        let is_open = match value {
            Value::Null => true,
            Value::Text(text) => text == "auto",
            _ => false,
        };
        if is_open {
            return Ok(None);
        }
        let count = value.count().filter(|count| range.contains(count));
        count.map(Some).ok_or_else(|| {
            let found = match value {
                Value::Number(digits) => digits.as_str(),
                other => other.kind(),
            };
            let (min, max) = (range.start(), *range.end());
            let is_large_power = max.is_power_of_two() && max > 1 << 16;
            let max = if is_large_power { format!("2^{}", max.ilog2()) } else { max.to_string() };
            let name = &self.entry.shown;
            let message = format!("`{name}`: expected a whole number from {min} to {max}, found {found}");
            source.error(&self.entry.place(), message)
        })
    }

    /// The flag; numbers 0 and 1 are flags, too. `None` where the file leaves it open.
    pub(crate) fn flag(&self, source: Source<'_>) -> Result<Option<bool>, FileError> {
        let value = &self.entry.value;
        let found = match value {
            Value::Null => return Ok(None),
            Value::Flag(flag) => return Ok(Some(*flag)),
            Value::Number(digits) if digits == "0" || digits == "1" => return Ok(Some(digits == "1")),
            // In axolotl, `bf16: auto` is on where the GPU has bf16. In DeepSpeed's tables `auto` is filled in elsewhere.
            Value::Text(text) if text == "auto" => return Ok((self.entry.name() == "bf16").then_some(true)),
            Value::Text(text) => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" => return Ok(Some(true)),
                "false" | "no" | "off" => return Ok(Some(false)),
                _ => format!("`{text}`"),
            },
            Value::Number(digits) => digits.clone(),
            Value::List(_) | Value::Table(_) => value.kind().to_owned(),
        };
        let message = format!("`{}`: expected true or false, found {found}", self.entry.shown);
        Err(source.error(&self.entry.place(), message))
    }
}
