//! `gpu-tuned.toml`: the profiles, workloads and goals that people write.

mod keys;
mod pairs;

use core::ops::Range;
use std::collections::BTreeMap;

use gpu_tuned_core::dims::{self, Schema};
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileTable};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{ModelKind, ModelSpec, Training, WorkloadSpec};
use gpu_tuned_core::{Goal, suggest};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::conflict;
use crate::file::MOST_MISTAKES;

pub use pairs::{PairsError, workload_from_words};

use keys::ParsedKeys;

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

const SECTIONS: [&str; 4] = ["profile", "workload", "goal", "dialect"];

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
            let merge = conflict::marker(source, "keep one of them, and remove the lines of the merge");
            vec![merge.unwrap_or_else(|| source.toml_error(&error))]
        })?;
        let mut file = Self::default();
        let mut mistakes = Vec::new();
        for (section, value) in document.into_inner() {
            if mistakes.len() >= MOST_MISTAKES {
                break;
            }
            let outcome = match section.get_ref().as_ref() {
                "profile" => file.read_profiles(entries(value, &section, source), source),
                "workload" => file.read_workloads(entries(value, &section, source), source),
                "goal" => file.read_goal(value, source),
                // Read by `cargo gpu-tuned optimize`.
                "dialect" => Ok(()),
                other => Err(vec![source.error(
                    &section.span(),
                    format!(
                        "unknown section `{other}`, expected profile, workload, goal or dialect{}",
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
            if mistakes.len() >= MOST_MISTAKES {
                break;
            }
            let outcome = match ProfileId::of_user(id.get_ref()) {
                Err(error) => Err(vec![source.error(&id.span(), error.to_string())]),
                Ok(_) => ProfileTable::parse_user(&id, table, source),
            };
            match outcome {
                Ok(profile) => self.profiles.push(profile),
                Err(found) => mistakes.extend(found),
            }
        }
        refuse(mistakes)
    }

    fn read_workloads<'i>(&mut self, entries: Entries<'i>, source: Source<'i>) -> Result<(), Vec<FileError>> {
        let (tables, mut mistakes) = entries;
        for (name, table) in tables {
            if mistakes.len() >= MOST_MISTAKES {
                break;
            }
            match parse_workload(&format!("workload.{}", name.get_ref()), name.span(), table, source) {
                Ok(spec) => drop(self.workloads.insert(name.get_ref().to_string(), spec)),
                Err(found) => mistakes.extend(found),
            }
        }
        refuse(mistakes)
    }

    fn read_goal<'i>(&mut self, value: Spanned<DeValue<'i>>, source: Source<'i>) -> Result<(), Vec<FileError>> {
        let table = as_table(value).map_err(|span| vec![source.error(&span, "goal: expected a table")])?;
        self.goal = parse_goal(table, source)?;
        Ok(())
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

/// The tables below a section, and the mistakes of entries that are no tables.
type Entries<'i> = (Vec<(Spanned<DeString<'i>>, Table<'i>)>, Vec<FileError>);

fn entries<'i>(value: Spanned<DeValue<'i>>, section: &Spanned<DeString<'i>>, source: Source<'i>) -> Entries<'i> {
    let name = section.get_ref();
    let Ok(table) = as_table(value) else {
        return (Vec::new(), vec![source.error(&section.span(), format!("{name}: expected tables [{name}.NAME]"))]);
    };
    let mut tables = Vec::new();
    let mut mistakes = Vec::new();
    for (key, value) in table.into_inner() {
        if mistakes.len() >= MOST_MISTAKES {
            break;
        }
        match as_table(value) {
            Ok(table) => tables.push((key, table)),
            Err(span) => mistakes.push(source.error(&span, format!("{name}.{}: expected a table", key.get_ref()))),
        }
    }
    (tables, mistakes)
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
