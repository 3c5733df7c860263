//! Parsing the entries of a table by a [`Dim`] table.

use core::ops::Range;
use std::collections::BTreeMap;

use gpu_tuned_core::dims::{self, Dim, DimValues, Presence};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::suggest_key;
use serde::Deserialize;
use toml::de::{DeString, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use crate::file::MOST_MISTAKES;

/// A key with its value.
pub(super) type Entry<'i> = (Spanned<DeString<'i>>, Spanned<DeValue<'i>>);

/// Values with the places of their keys.
#[derive(Default)]
pub(super) struct ParsedKeys {
    pub values: DimValues,
    pub places: BTreeMap<&'static str, Range<usize>>,
}

impl ParsedKeys {
    /// Parses the entries, all of which have to be in `known`. `owner` and `place` are the table's name and place.
    pub(super) fn parse(
        entries: Vec<Entry<'_>>,
        known: &[&'static [Dim]],
        (owner, place): (&str, &Range<usize>),
        source: Source<'_>,
    ) -> Result<Self, Vec<FileError>> {
        let mut parsed = Self::default();
        let mut mistakes = Vec::new();
        for (key, value) in entries {
            if mistakes.len() >= MOST_MISTAKES {
                break;
            }
            match known.iter().find_map(|dims| dims::named(dims, key.get_ref())) {
                Some(dim) => mistakes.extend(parsed.insert(dim, value, source)),
                None => mistakes.push(unknown(&key, known, owner, source)),
            }
        }
        let is_missing = |dim: &&Dim| dim.presence == Presence::Required && !parsed.places.contains_key(dim.name);
        let missing: Vec<_> = known.iter().copied().flatten().filter(is_missing).collect();
        if !missing.is_empty() {
            let meaning =
                |dim: &Dim| if dim.meaning == dim.name { String::new() } else { format!(" ({})", dim.meaning) };
            let missing: Vec<_> = missing.iter().map(|dim| dim.name.to_owned() + &meaning(dim)).collect();
            mistakes.push(source.error(place, format!("{owner} needs {}", missing.join(", "))));
        }
        super::refuse(mistakes).map(|()| parsed)
    }

    /// Inserts the value of one key, or returns its mistake.
    fn insert(&mut self, dim: &Dim, value: Spanned<DeValue<'_>>, source: Source<'_>) -> Option<FileError> {
        let span = value.span();
        self.places.insert(dim.name, span.clone());
        let plain = Value::deserialize(ValueDeserializer::from(value)).ok();
        let Some(read) = plain.as_ref().and_then(|plain| dim.kind.read(plain)) else {
            let near = dim.kind.suggest(plain.as_ref());
            return Some(source.error(&span, format!("{}: expected {}{near}", dim.name, dim.kind.expected())));
        };
        let mistake = dim.mistake(&read).map(|message| source.error(&span, message));
        self.values.insert(dim.name, read);
        mistake
    }

    /// Returns the place of a key.
    pub(super) fn place(&self, name: &str) -> Option<&Range<usize>> {
        self.places.get(name)
    }
}

fn unknown(key: &Spanned<DeString<'_>>, known: &[&'static [Dim]], owner: &str, source: Source<'_>) -> FileError {
    let names: Vec<_> = known.iter().copied().flatten().map(|dim| dim.name).collect();
    let (key, span) = (key.get_ref(), key.span());
    source.error(&span, format!("unknown key `{key}`{}; {owner} takes {}", suggest_key(key, &names), names.join(", ")))
}
