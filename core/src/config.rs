//! `gpu-tuned.toml`: the profiles, workloads and goals that people write.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue, Deserializer};

use crate::profile::{Profile, ProfileId, ProfileTable};
use crate::source::{FileError, Source};
use crate::workload::{Declared, WorkloadSpec};
use crate::{Goal, suggest};

/// What a `gpu-tuned.toml` says.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ConfigFile {
    /// The user's own GPU profiles, and shipped ones with other figures.
    pub profiles: Vec<Profile>,
    /// Workloads by name.
    pub workloads: BTreeMap<String, WorkloadSpec>,
    /// The goal for every struct that does not say otherwise.
    pub goal: Goal,
}

const SECTIONS: [&str; 3] = ["profile", "workload", "goal"];

type Table<'i> = Spanned<DeTable<'i>>;

impl ConfigFile {
    /// The file's usual name, beside `Cargo.toml`.
    pub const NAME: &'static str = "gpu-tuned.toml";

    /// Reads the file's text.
    ///
    /// # Errors
    ///
    /// Every mistake that can be told apart, each with its place.
    pub fn parse(source: Source<'_>) -> Result<Self, Vec<FileError>> {
        let document = DeTable::parse(source.text).map_err(|error| vec![source.toml_error(&error)])?;
        let mut file = Self::default();
        let mut mistakes = Vec::new();
        for (section, value) in document.into_inner() {
            let outcome = match section.get_ref().as_ref() {
                "profile" => file.read_profiles(entries(value, &section, source), source),
                "workload" => file.read_workloads(entries(value, &section, source), source),
                "goal" => file.read_goal(value, source),
                other => Err(vec![source.error(
                    &section.span(),
                    format!(
                        "unknown section `{other}`, expected profile, workload or goal{}",
                        suggest(other, SECTIONS)
                    ),
                )]),
            };
            mistakes.extend(outcome.err().into_iter().flatten());
        }
        mistakes.sort_by_key(|mistake| (mistake.place.line, mistake.place.column));
        if mistakes.is_empty() { Ok(file) } else { Err(mistakes) }
    }

    fn read_profiles<'i>(&mut self, entries: Entries<'i>, source: Source<'i>) -> Result<(), Vec<FileError>> {
        let (tables, mut mistakes) = entries;
        for (id, table) in tables {
            let outcome = match id.get_ref().parse::<ProfileId>() {
                Err(error) => Err(source.error(&id.span(), error.to_string())),
                Ok(_) => ProfileTable::parse_user(&id, table, source),
            };
            match outcome {
                Ok(profile) => self.profiles.push(profile),
                Err(mistake) => mistakes.push(mistake),
            }
        }
        done(mistakes)
    }

    fn read_workloads<'i>(&mut self, entries: Entries<'i>, source: Source<'i>) -> Result<(), Vec<FileError>> {
        let (tables, mut mistakes) = entries;
        for (name, table) in tables {
            match workload(&name, table, source) {
                Ok(spec) => drop(self.workloads.insert(name.get_ref().to_string(), spec)),
                Err(found) => mistakes.extend(found),
            }
        }
        done(mistakes)
    }

    fn read_goal<'i>(&mut self, value: Spanned<DeValue<'i>>, source: Source<'i>) -> Result<(), Vec<FileError>> {
        let table = as_table(value).map_err(|span| vec![source.error(&span, "goal: expected a table")])?;
        let span = table.span();
        let places = places(table.get_ref());
        self.goal = deserialize(table, source).map_err(|mistake| vec![mistake])?;
        let at = |key: &str| places.get(key).cloned().unwrap_or_else(|| span.clone());
        done(self.goal.mistakes().into_iter().map(|(key, message)| source.error(&at(key), message)).collect())
    }
}

/// The tables below a section, and what below it is no table.
type Entries<'i> = (Vec<(Spanned<DeString<'i>>, Table<'i>)>, Vec<FileError>);

fn entries<'i>(value: Spanned<DeValue<'i>>, section: &Spanned<DeString<'i>>, source: Source<'i>) -> Entries<'i> {
    let name = section.get_ref();
    let Ok(table) = as_table(value) else {
        return (Vec::new(), vec![source.error(&section.span(), format!("{name}: expected tables [{name}.NAME]"))]);
    };
    let mut tables = Vec::new();
    let mut mistakes = Vec::new();
    for (key, value) in table.into_inner() {
        match as_table(value) {
            Ok(table) => tables.push((key, table)),
            Err(span) => mistakes.push(source.error(&span, format!("{name}.{}: expected a table", key.get_ref()))),
        }
    }
    (tables, mistakes)
}

fn as_table(value: Spanned<DeValue<'_>>) -> Result<Table<'_>, core::ops::Range<usize>> {
    let span = value.span();
    match value.into_inner() {
        DeValue::Table(table) => Ok(Spanned::new(span, table)),
        _ => Err(span),
    }
}

fn places(table: &DeTable<'_>) -> BTreeMap<String, core::ops::Range<usize>> {
    table.iter().map(|(key, value)| (key.get_ref().to_string(), value.span())).collect()
}

fn deserialize<'i, T: Deserialize<'i>>(table: Table<'i>, source: Source<'i>) -> Result<T, FileError> {
    let span = table.span();
    T::deserialize(Deserializer::from(table)).map_err(|error| match error.span() {
        Some(_) => source.toml_error(&error),
        None => source.error(&span, error.message()),
    })
}

/// `[workload.NAME]` with stated costs, or `[workload.NAME.FAMILY]` with dimensions.
fn workload<'i>(
    name: &Spanned<DeString<'i>>,
    mut table: Table<'i>,
    source: Source<'i>,
) -> Result<WorkloadSpec, Vec<FileError>> {
    let family = WorkloadSpec::FAMILIES.into_iter().find(|family| table.get_ref().contains_key(*family));
    let inner = match family {
        None => table,
        Some(family) => {
            let value = table.get_mut().remove(family).expect("BUG: the key was found above");
            if let Some((extra, _)) = table.get_ref().iter().next() {
                let message =
                    format!("workload.{}: takes the dimensions in .{family}, nothing beside them", name.get_ref());
                return Err(vec![source.error(&extra.span(), message)]);
            }
            as_table(value).map_err(|span| vec![source.error(&span, format!("{family}: expected a table"))])?
        }
    };
    let places = places(inner.get_ref());
    let spec = match family {
        Some("transformer") => deserialize(inner, source).map(WorkloadSpec::Transformer),
        Some(_) => deserialize(inner, source).map(WorkloadSpec::Convnet),
        None => deserialize::<Declared>(inner, source).map(WorkloadSpec::Declared),
    };
    let spec = spec.map_err(|mistake| vec![mistake])?;
    let at = |key: &str| places.get(key).cloned().unwrap_or_else(|| name.span());
    done(spec.mistakes().into_iter().map(|(key, message)| source.error(&at(key), message)).collect()).map(|()| spec)
}

fn done(mistakes: Vec<FileError>) -> Result<(), Vec<FileError>> {
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}
