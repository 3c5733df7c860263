//! `gpu-tuned.toml`: the profiles, workloads and goals that people write.

mod said;

use core::ops::Range;
use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::dims::{self, Described};
use crate::profile::{Profile, ProfileId, ProfileTable};
use crate::source::{FileError, Source};
use crate::workload::{ModelKind, ModelSpec, Training, WorkloadSpec};
use crate::{Goal, suggest};
use said::Said;

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

pub(crate) type Table<'i> = Spanned<DeTable<'i>>;

impl ConfigFile {
    /// The file's usual name, beside `Cargo.toml`.
    pub const NAME: &'static str = "gpu-tuned.toml";

    /// What to do about a file that is no text.
    pub const REMEDY: &'static str = "save it as UTF-8";

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
            match workload(&format!("workload.{}", name.get_ref()), name.span(), table, source) {
                Ok(spec) => drop(self.workloads.insert(name.get_ref().to_string(), spec)),
                Err(found) => mistakes.extend(found),
            }
        }
        done(mistakes)
    }

    fn read_goal<'i>(&mut self, value: Spanned<DeValue<'i>>, source: Source<'i>) -> Result<(), Vec<FileError>> {
        let table = as_table(value).map_err(|span| vec![source.error(&span, "goal: expected a table")])?;
        self.goal = goal(table, source)?;
        Ok(())
    }
}

/// `[goal]`.
pub(crate) fn goal<'i>(table: Table<'i>, source: Source<'i>) -> Result<Goal, Vec<FileError>> {
    let span = table.span();
    let entries = table.into_inner().into_iter().collect();
    let said = Said::read(entries, &[Goal::DIMS], ("goal", &span), source)?;
    let goal = Goal::from_values(&said.values);
    let at = |name: &str| said.place(name).unwrap_or(&span).clone();
    done(goal.mistakes().into_iter().map(|(name, message)| source.error(&at(name), message)).collect()).map(|()| goal)
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

pub(crate) fn as_table(value: Spanned<DeValue<'_>>) -> Result<Table<'_>, Range<usize>> {
    let span = value.span();
    match value.into_inner() {
        DeValue::Table(table) => Ok(Spanned::new(span, table)),
        _ => Err(span),
    }
}

/// What a table says of a workload: how it is trained, beside a family's dimensions in a table of the family's name, or
/// costs. `owner` is what the table is called, `place` where it stands.
pub(crate) fn workload<'i>(
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
    let mut families = families.into_iter();
    let (kind, entries, place) = match families.next() {
        None => (&ModelKind::ALL[0], costs, place),
        Some((kind, key, value)) => {
            let aside = costs.into_iter().map(|(key, _)| key).chain(families.map(|(_, key, _)| key));
            done(aside.map(|extra| beside(&extra, owner, kind, source)).collect())?;
            let table = as_table(value).map_err(|span| vec![source.error(&span, "expected a table")])?;
            (kind, table.into_inner().into_iter().collect(), key.span())
        }
    };
    let model = Said::read(entries, &[kind.dims], (owner, &place), source);
    let training = Said::read(training, &[Training::DIMS], (owner, &place), source);
    let (model, training) = match (model, training) {
        (Ok(model), Ok(training)) => (model, training),
        (model, training) => return Err([model.err(), training.err()].into_iter().flatten().flatten().collect()),
    };
    let spec = WorkloadSpec {
        model: ModelSpec::from_values(kind, &model.values),
        training: Training::from_values(&training.values),
    };
    let at = |name: &str| model.place(name).or(training.place(name)).unwrap_or(&place).clone();
    done(spec.mistakes().into_iter().map(|(name, message)| source.error(&at(name), message)).collect()).map(|()| spec)
}

fn beside(extra: &Spanned<DeString<'_>>, owner: &str, kind: &ModelKind, source: Source<'_>) -> FileError {
    let names = || Training::DIMS.iter().map(|dim| dim.name);
    let near = suggest(extra.get_ref(), names());
    let list: Vec<_> = names().collect();
    let message = format!(
        "{owner} takes the model's dimensions in .{}, and beside it only what is said of the training: {}{near}",
        kind.name,
        list.join(", ")
    );
    source.error(&extra.span(), message)
}

fn done(mistakes: Vec<FileError>) -> Result<(), Vec<FileError>> {
    if mistakes.is_empty() { Ok(()) } else { Err(mistakes) }
}
