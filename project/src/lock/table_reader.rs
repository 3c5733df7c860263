//! Reading the values of a table by name, and collecting mistakes with their places.

use core::cell::RefCell;
use core::ops::{Range, RangeInclusive};

use gpu_tuned_core::dims::format_count;
use gpu_tuned_core::source::{FileError, Source};
use serde::de::{DeserializeOwned, IntoDeserializer, value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::config::{Table, as_table};
use crate::file::MOST_MISTAKES;

/// A file that is being read, and its mistakes so far.
pub(super) struct Reader<'i> {
    pub source: Source<'i>,
    mistakes: RefCell<Vec<FileError>>,
}

impl<'i> Reader<'i> {
    pub(super) fn new(source: Source<'i>) -> Self {
        Self { source, mistakes: RefCell::default() }
    }

    pub(super) fn mistake(&self, place: &Range<usize>, message: impl Into<String>) {
        let mut mistakes = self.mistakes.borrow_mut();
        if mistakes.len() < MOST_MISTAKES {
            mistakes.push(self.source.error(place, message));
        }
    }

    /// Returns the value, or records the mistakes.
    pub(super) fn accept<T>(&self, outcome: Result<T, Vec<FileError>>) -> Option<T> {
        outcome
            .map_err(|found| {
                let mut mistakes = self.mistakes.borrow_mut();
                let room = MOST_MISTAKES.saturating_sub(mistakes.len());
                mistakes.extend(found.into_iter().take(room));
            })
            .ok()
    }

    pub(super) fn into_mistakes(self) -> Vec<FileError> {
        let mut mistakes = self.mistakes.into_inner();
        mistakes.sort_by_key(|mistake| (mistake.place.line, mistake.place.column));
        mistakes
    }
}

/// A table that is being read. Values that are not read may belong to a newer release.
pub(super) struct TableReader<'r, 'i> {
    pub reader: &'r Reader<'i>,
    /// Path of the table, such as `workload.char-lm`.
    pub path: String,
    /// Place of its first header.
    pub place: Range<usize>,
    table: DeTable<'i>,
}

impl<'r, 'i> TableReader<'r, 'i> {
    /// The whole file.
    pub(super) fn root(table: Table<'i>, reader: &'r Reader<'i>) -> Self {
        Self { reader, path: String::new(), place: 0..0, table: table.into_inner() }
    }

    /// Records the `required` values that are missing.
    pub(super) fn needs(&self, required: &[&str]) {
        let missing: Vec<_> = required.iter().copied().filter(|key| self.is_missing(key)).collect();
        if !missing.is_empty() {
            self.reader.mistake(&self.place, format!("{} needs {}", self.path, missing.join(", ")));
        }
    }

    pub(super) fn is_missing(&self, key: &str) -> bool {
        !self.table.contains_key(key)
    }

    /// A table below this one.
    pub(super) fn table(&mut self, key: &str) -> Option<Table<'i>> {
        let value = self.table.remove(key)?;
        let wrong = |span| self.reader.mistake(&span, format!("{}: expected a table", self.named(key)));
        as_table(value).map_err(wrong).ok()
    }

    /// The tables below the one of this name, each by its own name.
    pub(super) fn tables(&mut self, key: &str) -> Vec<(String, Self)> {
        let Some(parent) = self.table(key) else { return Vec::new() };
        let path = self.named(key);
        let child = |(name, value): (Spanned<_>, Spanned<DeValue<'i>>)| {
            let (place, name) = (name.span(), String::from(name.into_inner()));
            let path = format!("{path}.{name}");
            match as_table(value) {
                Ok(table) => Some((name, Self { reader: self.reader, path, place, table: table.into_inner() })),
                Err(span) => {
                    self.reader.mistake(&span, format!("{path}: expected a table"));
                    None
                }
            }
        };
        parent.into_inner().into_iter().filter_map(child).collect()
    }

    pub(super) fn count(&mut self, key: &str, range: &RangeInclusive<u64>) -> Option<u64> {
        let read = |value: &DeValue| whole(value).filter(|count| range.contains(count));
        let (least, most) = (range.start(), range.end());
        let expected = || {
            if least == most {
                least.to_string()
            } else {
                format!("a whole number from {least} to {}", format_count(*most))
            }
        };
        self.take(key, read, expected)
    }

    /// A count of at least `least`, the value of a named key.
    pub(super) fn count_from(&mut self, key: &str, (least, name): (u64, &str), most: u64) -> Option<u64> {
        let read = |value: &DeValue| whole(value).filter(|count| (least..=most).contains(count));
        self.take(key, read, || format!("a whole number from {least}, {name}, to {}", format_count(most)))
    }

    pub(super) fn number(&mut self, key: &str, range: &RangeInclusive<f64>, expected: &str) -> Option<f64> {
        let read = |value: &DeValue| number(value).filter(|number| range.contains(number));
        self.take(key, read, || expected.to_owned())
    }

    pub(super) fn text(&mut self, key: &str) -> Option<String> {
        self.take(key, |value| value.as_str().map(str::to_owned), || "a text in quotes".to_owned())
    }

    pub(super) fn flag(&mut self, key: &str) -> Option<bool> {
        self.take(
            key,
            |value| if let DeValue::Boolean(flag) = value { Some(*flag) } else { None },
            || "true or false".to_owned(),
        )
    }

    /// Reads a choice by its name.
    pub(super) fn choice<T: DeserializeOwned>(&mut self, key: &str, names: &str) -> Option<T> {
        let read = |value: &DeValue| {
            let text: value::StrDeserializer<'_, value::Error> = value.as_str()?.into_deserializer();
            T::deserialize(text).ok()
        };
        self.take(key, read, || format!("one of {names}"))
    }

    fn take<T>(&mut self, key: &str, read: impl Fn(&DeValue) -> Option<T>, expected: impl Fn() -> String) -> Option<T> {
        let value = self.table.remove(key)?;
        let found = read(value.get_ref());
        if found.is_none() {
            self.reader.mistake(&value.span(), format!("{}: expected {}", self.named(key), expected()));
        }
        found
    }

    /// Path of a key in this table.
    fn named(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }
}

pub(super) fn whole(value: &DeValue) -> Option<u64> {
    let whole = value.as_integer()?;
    u64::from_str_radix(whole.as_str(), whole.radix()).ok()
}

/// Number with or without a fraction. A number beyond the range of `f64` is infinite.
fn number(value: &DeValue) -> Option<f64> {
    match value.as_float() {
        Some(float) => float.as_str().parse().ok(),
        None => whole(value).map(|whole| whole as f64),
    }
}
