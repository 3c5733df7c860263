//! `gpu-tuned.toml`: the profiles, workloads and goals that people write.

#[cfg(test)]
mod tests;

use core::ops::Range;
use std::collections::BTreeMap;

use gpu_tuned_core::dims::{self, Dim, DimValues, Presence, Schema, parse_value};
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileTable};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{ModelKind, ModelSpec, Training, WorkloadSpec};
use gpu_tuned_core::{Goal, suggest, suggest_key};
use serde::Deserialize;
use thiserror::Error;
use toml::de::{DeString, DeTable, DeValue, ValueDeserializer};
use toml::{Spanned, Value};

use crate::file::{MOST_MISTAKES, merge_marker};

/// The content of a `gpu-tuned.toml`.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ConfigFile {
    /// The user's own GPU profiles, and shipped ones with other figures.
    pub profiles: Vec<Profile>,
    /// Workloads by name.
    pub workloads: BTreeMap<String, WorkloadSpec>,
    /// The default goal of every struct.
    pub goal: Goal,
}

const SECTIONS: [&str; 3] = ["profile", "workload", "goal"];

pub(crate) type Table<'i> = Spanned<DeTable<'i>>;

impl ConfigFile {
    /// The file's default name, beside `Cargo.toml`.
    pub const NAME: &'static str = "gpu-tuned.toml";

    /// The advice for a file that is not UTF-8.
    pub const REMEDY: &'static str = "save it as UTF-8";

    /// Parses the file's text.
    ///
    /// # Errors
    ///
    /// All mistakes, each with its place.
    pub fn parse(source: Source<'_>) -> Result<Self, Vec<FileError>> {
        let document = DeTable::parse(source.text).map_err(|error| {
            let merge = merge_marker(source, "keep one of them, and remove the lines of the merge");
            vec![merge.unwrap_or_else(|| source.toml_error(&error))]
        })?;
        let mut file = Self::default();
        let mut mistakes = Vec::new();
        for (section, value) in document.into_inner() {
            if mistakes.len() >= MOST_MISTAKES {
                break;
            }
            let outcome = match section.get_ref().as_ref() {
                "profile" => each_table(&section, value, source, |id, table| {
                    ProfileId::of_user(id.get_ref())
                        .map_err(|error| vec![source.error(&id.span(), error.to_string())])?;
                    ProfileTable::parse_user(&id, table, source).map(|profile| file.profiles.push(profile))
                }),
                "workload" => each_table(&section, value, source, |name, table| {
                    let spec = parse_workload(&format!("workload.{}", name.get_ref()), name.span(), table, source)?;
                    file.workloads.insert(name.get_ref().to_string(), spec);
                    Ok(())
                }),
                "goal" => as_table(value)
                    .map_err(|span| vec![source.error(&span, "goal: expected a table")])
                    .and_then(|table| parse_goal(table, source))
                    .map(|goal| file.goal = goal),
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
}

/// Parses `[goal]`.
pub(crate) fn parse_goal<'i>(table: Table<'i>, source: Source<'i>) -> Result<Goal, Vec<FileError>> {
    let span = table.span();
    let entries = table.into_inner().into_iter().collect();
    let parsed = ParsedKeys::parse(entries, &[Goal::DIMS], ("goal", &span), source)?;
    let goal = Goal::from_values(&parsed.values);
    let at = |name: &str| parsed.place(name).unwrap_or(&span).clone();
    refuse(goal.mistakes().into_iter().map(|(name, message)| source.error(&at(name), message)).collect()).map(|()| goal)
}

/// Reads each table below a section.
fn each_table<'i>(
    section: &Spanned<DeString<'i>>,
    value: Spanned<DeValue<'i>>,
    source: Source<'i>,
    mut read: impl FnMut(Spanned<DeString<'i>>, Table<'i>) -> Result<(), Vec<FileError>>,
) -> Result<(), Vec<FileError>> {
    let name = section.get_ref();
    let Ok(tables) = as_table(value) else {
        return Err(vec![source.error(&section.span(), format!("{name}: expected tables [{name}.NAME]"))]);
    };
    let mut mistakes = Vec::new();
    for (key, value) in tables.into_inner() {
        if mistakes.len() >= MOST_MISTAKES {
            break;
        }
        match as_table(value) {
            Ok(table) => mistakes.extend(read(key, table).err().into_iter().flatten()),
            Err(span) => mistakes.push(source.error(&span, format!("{name}.{}: expected a table", key.get_ref()))),
        }
    }
    refuse(mistakes)
}

pub(crate) fn as_table(value: Spanned<DeValue<'_>>) -> Result<Table<'_>, Range<usize>> {
    let span = value.span();
    match value.into_inner() {
        DeValue::Table(table) => Ok(Spanned::new(span, table)),
        _ => Err(span),
    }
}

/// Parses a workload: training keys, beside the dimensions of one family in a table of the family's name, or costs.
/// `owner` and `place` are the table's name and place.
pub(crate) fn parse_workload<'i>(
    owner: &str,
    place: Range<usize>,
    table: Table<'i>,
    source: Source<'i>,
) -> Result<WorkloadSpec, Vec<FileError>> {
    let mut families = Vec::new();
    let (mut costs, mut training) = (Vec::new(), Vec::new());
    for (key, value) in table.into_inner() {
        let word = key.get_ref().as_ref();
        match ModelKind::named(word).filter(|_| matches!(value.get_ref(), DeValue::Table(_))) {
            Some(kind) => families.push((kind, key, value)),
            None if dims::named(Training::DIMS, word).is_some() => training.push((key, value)),
            None => costs.push((key, value)),
        }
    }
    if families.is_empty() {
        let is_model = |(key, value): &&(Spanned<DeString<'_>>, Spanned<DeValue<'_>>)| {
            value.get_ref().is_table() && dims::named(ModelKind::ALL[0].dims, key.get_ref()).is_none()
        };
        refuse(costs.iter().filter(is_model).map(|(key, _)| no_model(key, source)).collect())?;
    }
    let mut families = families.into_iter();
    let (kind, entries, place) = match families.next() {
        None => (&ModelKind::ALL[0], costs, place),
        Some((kind, key, value)) => {
            let aside = costs.into_iter().map(|(key, _)| key).chain(families.map(|(_, key, _)| key));
            refuse(aside.map(|extra| beside(&extra, owner, kind, source)).collect())?;
            let table = as_table(value).map_err(|span| vec![source.error(&span, "expected a table")])?;
            (kind, table.into_inner().into_iter().collect(), key.span())
        }
    };
    let model = ParsedKeys::parse(entries, &[kind.dims], (owner, &place), source);
    let training = ParsedKeys::parse(training, &[Training::DIMS], (owner, &place), source);
    let (model, training) = match (model, training) {
        (Ok(model), Ok(training)) => (model, training),
        (model, training) => return Err([model.err(), training.err()].into_iter().flatten().flatten().collect()),
    };
    let spec = WorkloadSpec {
        model: ModelSpec::from_values(kind, &model.values),
        training: Training::from_values(&training.values),
    };
    let at = |name: &str| model.place(name).or(training.place(name)).unwrap_or(&place).clone();
    refuse(spec.mistakes().into_iter().map(|(name, message)| source.error(&at(name), message)).collect()).map(|()| spec)
}

fn no_model(key: &Spanned<DeString<'_>>, source: Source<'_>) -> FileError {
    let name = key.get_ref();
    source.error(
        &key.span(),
        format!("there is no model `{name}`{}; there are {}", ModelKind::suggest(name), ModelKind::list()),
    )
}

fn beside(extra: &Spanned<DeString<'_>>, owner: &str, kind: &ModelKind, source: Source<'_>) -> FileError {
    let names = || Training::DIMS.iter().map(|dim| dim.name);
    if ModelKind::named(extra.get_ref()).is_some() {
        let message = format!("{owner} has two models, {} and {}: keep one of them", kind.name, extra.get_ref());
        return source.error(&extra.span(), message);
    }
    let near = suggest(extra.get_ref(), names());
    let list: Vec<_> = names().collect();
    let message = format!(
        "unknown key `{}`{near}; the model's dimensions belong into [{owner}.{}], and {owner} itself takes {}",
        extra.get_ref(),
        kind.name,
        list.join(", ")
    );
    source.error(&extra.span(), message)
}

/// Returns the mistakes as an error, if there are any.
fn refuse(mistakes: Vec<FileError>) -> Result<(), Vec<FileError>> {
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}

/// A key with its value.
type Entry<'i> = (Spanned<DeString<'i>>, Spanned<DeValue<'i>>);

/// Values with the places of their keys.
#[derive(Default)]
struct ParsedKeys {
    values: DimValues,
    places: BTreeMap<&'static str, Range<usize>>,
}

impl ParsedKeys {
    /// Parses the entries, all of which have to be in `known`. `owner` and `place` are the table's name and place.
    fn parse(
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
        refuse(mistakes).map(|()| parsed)
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
    fn place(&self, name: &str) -> Option<&Range<usize>> {
        self.places.get(name)
    }
}

fn unknown(key: &Spanned<DeString<'_>>, known: &[&'static [Dim]], owner: &str, source: Source<'_>) -> FileError {
    let names: Vec<_> = known.iter().copied().flatten().map(|dim| dim.name).collect();
    let (key, span) = (key.get_ref(), key.span());
    source.error(&span, format!("unknown key `{key}`{}; {owner} takes {}", suggest_key(key, &names), names.join(", ")))
}

/// Words that describe no workload.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum PairsError {
    /// The model is unknown.
    #[error(
        "there is no model `{name}`{hint}; models are {}; {}",
        ModelKind::requestable().collect::<Vec<_>>().join(", "),
        ModelKind::MEASURE
    )]
    UnknownModel {
        /// The name.
        name: String,
        /// The suggestion.
        hint: String,
    },
    /// The list of dimensions has no end.
    #[error("the list of dimensions has no `)` at its end; expected {model}(NAME = VALUE, …)")]
    NoEnd {
        /// The model.
        model: String,
    },
    /// An entry has no value.
    #[error("`{found}` is no dimension with a value; expected {model}(NAME = VALUE, …)")]
    NoPair {
        /// The model.
        model: String,
        /// The text in place of a dimension.
        found: String,
    },
    /// A key of the goal.
    #[error("`{name}` is no dimension of a model, but of the goal: give it as an option, such as --global-batch")]
    Goal {
        /// The key.
        name: String,
    },
    /// A name is given twice.
    #[error("`{name}` is given twice: keep one of them")]
    Twice {
        /// The name.
        name: String,
    },
    /// Dimensions are unknown, missing, out of range or contradictory.
    #[error("{}", messages.join("\n"))]
    Mistakes {
        /// A message for each mistake.
        messages: Vec<String>,
    },
}

/// Parses a model by the code that parses `gpu-tuned.toml`. Returns its name and the workload.
///
/// `model` is a name, or the model in the words of an attribute: `transformer(layers = 12, …)`. `pairs` are further
/// dimensions, or keys of the training. Names in values need no quotes.
///
/// # Errors
///
/// When the model is unknown, or a dimension is unknown, missing, out of range or given twice.
pub fn workload_from_words<'m>(
    model: &'m str,
    pairs: &[(String, String)],
) -> Result<(&'m str, WorkloadSpec), PairsError> {
    let (model, list) = model.split_once('(').unwrap_or((model, ")"));
    let model = model.trim();
    let unknown = || PairsError::UnknownModel { name: model.to_owned(), hint: ModelKind::suggest(model) };
    let (kind, cell) = ModelKind::requested(model).ok_or_else(unknown)?;
    let Some((inside, behind)) = list.rsplit_once(')') else {
        return Err(PairsError::NoEnd { model: model.to_owned() });
    };
    let listed = listed(inside, behind).map_err(|found| PairsError::NoPair { model: model.to_owned(), found })?;
    let (mut dims, mut training) = (toml::Table::new(), toml::Table::new());
    dims.extend(cell.map(|cell| ("cell".to_owned(), cell.into())));
    for (name, value) in listed.iter().chain(pairs) {
        let is_training = dims::named(Training::DIMS, name).is_some();
        if dims::named(Goal::DIMS, name).is_some() {
            return Err(PairsError::Goal { name: name.clone() });
        }
        let table = if is_training { &mut training } else { &mut dims };
        if table.insert(name.clone(), parse_value(value)).is_some() {
            return Err(PairsError::Twice { name: name.clone() });
        }
    }
    training.insert(kind.name.to_owned(), dims.into());
    let text = training.to_string();
    let source = Source { file: "--dim", text: &text };
    let table = DeTable::parse(&text).expect("BUG: a table is written as TOML");
    let parsed = parse_workload(kind.name, 0..0, table, source);
    let mistakes =
        |found: Vec<_>| PairsError::Mistakes { messages: found.into_iter().map(|it: FileError| it.message).collect() };
    parsed.map(|spec| (model, spec)).map_err(mistakes)
}

/// Splits `layers = 12, widths = [8, 8]` into names and values, or returns the text that is no pair. Further pairs may
/// follow `behind` the parenthesis, as in an attribute.
fn listed(inside: &str, behind: &str) -> Result<Vec<(String, String)>, String> {
    let (mut depth, mut is_quoted) = (0_usize, false);
    let is_end = |character: char| {
        match character {
            '"' => is_quoted = !is_quoted,
            '[' | '{' => depth += 1,
            ']' | '}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        character == ',' && depth == 0 && !is_quoted
    };
    let all = format!("{inside},{behind}");
    let entries = all.split(is_end).map(str::trim).filter(|entry| !entry.is_empty());
    let pair = |entry: &str| {
        let pair = entry.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
        pair.filter(|(name, value)| !name.is_empty() && !value.is_empty()).ok_or_else(|| entry.to_owned())
    };
    entries.map(pair).collect()
}
