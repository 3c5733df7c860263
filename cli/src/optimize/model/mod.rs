//! The workload of a config: the model's dimensions that the file has, and where each comes from.

mod evidence;
mod names;
mod read;
mod shape;

use gpu_tuned_core::dims::{DimValue, DimValues, Presence, Schema as _, named};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::suggest;
use gpu_tuned_core::workload::{ModelKind, ModelSpec, Optimizer, Training, WorkloadSpec};
use serde::Serialize;

use super::error::OptimizeError;
use super::leaf::Leaf;
use evidence::Evidence;
use names::{LAYOUTS, Names};
use read::Reader;

/// A model's dimensions with their origins.
pub(super) struct Model {
    pub spec: WorkloadSpec,
    /// What tells the kind, in words.
    pub because: String,
    pub dims: Vec<Dimension>,
}

/// A dimension and where it comes from.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Dimension {
    pub name: String,
    pub value: String,
    #[serde(flatten)]
    pub origin: Origin,
}

/// Where a dimension comes from.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "origin", content = "from")]
pub(super) enum Origin {
    /// A key of the config, or several.
    Key(String),
    /// The command line.
    Option,
    /// Neither: why it is taken to be that.
    Assumed(String),
}

/// What is asked of a model beside what the file says.
pub(super) struct Asked<'a> {
    /// `--model`
    pub kind: Option<&'a str>,
    /// `--dim`
    pub dims: &'a [(String, String)],
    pub optimizer: Option<Optimizer>,
}

/// Why there is no model.
pub(super) enum NoModel {
    Mistakes(Vec<FileError>),
    Unknown(OptimizeError),
}

impl From<OptimizeError> for NoModel {
    fn from(error: OptimizeError) -> Self {
        Self::Unknown(error)
    }
}

impl Model {
    /// Reads it off the entries of a file.
    pub(super) fn read(leaves: &[Leaf<'_>], source: Source<'_>, asked: &Asked<'_>) -> Result<Self, NoModel> {
        let (kind, evidence, because) = kind(leaves, asked)?;
        let mut reader = Reader::new(leaves, source);
        let mut dims = said(kind, asked.dims)?;
        if let Some(evidence) = evidence.as_ref().filter(|evidence| evidence.names.kind == kind.name) {
            reader.dims(evidence.names, kind, &mut dims);
            shape::compose(evidence.names, &mut reader, &mut dims);
        }
        layout(kind, evidence.as_ref().and_then(|evidence| evidence.word), &mut dims);
        cell(kind, asked.kind, evidence.as_ref(), &mut dims);
        assume(kind, &mut dims);
        if !reader.mistakes.is_empty() {
            return Err(NoModel::Mistakes(reader.mistakes));
        }
        let model_dims = |all: &Dims| -> DimValues {
            all.0.iter().filter_map(|(name, value, _)| Some((named(kind.dims, name)?.name, value.clone()))).collect()
        };
        let values = model_dims(&dims);
        missing(kind, evidence.as_ref().map(|evidence| evidence.names), &values)?;
        let training: DimValues = dims
            .0
            .iter()
            .filter_map(|(name, value, _)| Some((named(Training::DIMS, name)?.name, value.clone())))
            .collect();
        let mut spec =
            WorkloadSpec { model: ModelSpec::from_values(kind, &values), training: Training::from_values(&training) };
        if let (Some(optimizer), false) = (asked.optimizer, training.contains_key("optimizer")) {
            spec.training.optimizer = optimizer;
        }
        if let Some((name, message)) = spec.mistakes().into_iter().next() {
            return Err(dims.mistake(name, message, &reader));
        }
        let dims = dims.0.into_iter().map(|(name, value, origin)| Dimension {
            name: name.to_owned(),
            value: value.to_string(),
            origin,
        });
        Ok(Self { spec, because, dims: dims.collect() })
    }
}

/// The kind, what tells it, and that in words.
fn kind(
    leaves: &[Leaf<'_>],
    asked: &Asked<'_>,
) -> Result<(&'static ModelKind, Option<Evidence>, String), OptimizeError> {
    if let Some(said) = asked.kind {
        let name = if said == "lstm" || said == "gru" { "recurrent" } else { said };
        let kind = ModelKind::named(name).ok_or_else(|| OptimizeError::UnknownKind {
            name: said.to_owned(),
            hint: suggest(said, ModelKind::ALL.iter().map(|kind| kind.name)),
        })?;
        let evidence = names::of(kind.name).map(|names| Evidence { names, by: "--model".to_owned(), word: None });
        return Ok((kind, evidence, "--model says so".to_owned()));
    }
    match evidence::weigh(leaves) {
        Ok(evidence) => {
            let kind = ModelKind::named(evidence.names.kind).expect("BUG: the names are of kinds that there are");
            let because = format!("{} says so", evidence.by);
            Ok((kind, Some(evidence), because))
        }
        Err(could_be) => {
            let readings = if could_be.is_empty() {
                read::readings(leaves)
            } else {
                could_be.iter().map(|one| format!("{} ({})", one.names.kind, one.by)).collect()
            };
            Err(OptimizeError::NoKind { readings })
        }
    }
}

/// Dimensions by name, in the order in which they were found.
#[derive(Default)]
pub(super) struct Dims(Vec<(&'static str, DimValue, Origin)>);

impl Dims {
    fn has(&self, name: &str) -> bool {
        self.0.iter().any(|(known, ..)| *known == name)
    }

    fn get(&self, name: &str) -> Option<&DimValue> {
        self.0.iter().find(|(known, ..)| *known == name).map(|(_, value, _)| value)
    }

    /// Adds one, unless it is there.
    fn put(&mut self, name: &'static str, value: DimValue, origin: Origin) {
        if !self.has(name) {
            self.0.push((name, value, origin));
        }
    }

    /// What is wrong with one, with its place where the file has it.
    fn mistake(&self, name: &str, message: String, reader: &Reader<'_, '_>) -> NoModel {
        let origin = self.0.iter().find(|(known, ..)| *known == name).map(|(.., origin)| origin);
        match origin {
            Some(Origin::Key(key)) => {
                let first = key.split(", ").next().unwrap_or(key);
                match reader.error_at(first, &message) {
                    Some(error) => NoModel::Mistakes(vec![error]),
                    None => OptimizeError::Dimension { message }.into(),
                }
            }
            _ => OptimizeError::Dimension { message }.into(),
        }
    }
}

/// What `--dim` says, of the model and of its training.
fn said(kind: &'static ModelKind, given: &[(String, String)]) -> Result<Dims, OptimizeError> {
    let mut dims = Dims::default();
    for (name, text) in given {
        let all = || kind.dims.iter().chain(Training::DIMS);
        let dim = named(kind.dims, name).or_else(|| named(Training::DIMS, name));
        let dim = dim.ok_or_else(|| OptimizeError::UnknownDim {
            kind: kind.name,
            name: name.clone(),
            hint: suggest(name, all().map(|dim| dim.name)),
            names: kind.dims.iter().map(|dim| dim.name).collect::<Vec<_>>().join(", "),
        })?;
        let value = value(text).as_ref().and_then(|value| dim.kind.read(value));
        let value = value.ok_or_else(|| OptimizeError::Dimension {
            message: format!("--dim {name}={text}: expected {}", dim.kind.expected()),
        })?;
        dims.put(dim.name, value, Origin::Option);
    }
    Ok(dims)
}

/// A value as TOML has it; a word needs no quotes.
fn value(text: &str) -> Option<toml::Value> {
    let read = |text: &str| toml::from_str::<toml::Table>(&format!("value = {text}")).ok()?.remove("value");
    read(text).or_else(|| Some(toml::Value::String(text.to_owned())))
}

/// The layout that a model's name is known for.
fn layout(kind: &'static ModelKind, word: Option<&'static str>, dims: &mut Dims) {
    let Some(word) = word else { return };
    let Some((_, layout)) = LAYOUTS.iter().find(|(words, _)| words.contains(&word)) else { return };
    for (name, text) in *layout {
        let Some(dim) = named(kind.dims, name) else { continue };
        let value = value(text)
            .as_ref()
            .and_then(|value| dim.kind.read(value))
            .expect("BUG: layouts have values of their kind");
        dims.put(dim.name, value, Origin::Assumed(format!("as {word} models have it")));
    }
}

/// The cell of a recurrent network, where its name says that.
fn cell(kind: &'static ModelKind, said: Option<&str>, evidence: Option<&Evidence>, dims: &mut Dims) {
    if kind.name != "recurrent" {
        return;
    }
    let word = said.or(evidence.and_then(|evidence| evidence.word));
    if word == Some("gru") {
        let origin = if said.is_some() { Origin::Option } else { Origin::Assumed("its name".to_owned()) };
        dims.put("cell", DimValue::Choice("gru".to_owned()), origin);
    }
}

/// What costs next to nothing, or no more than this, where nobody says it.
fn assume(kind: &'static ModelKind, dims: &mut Dims) {
    let small = || Origin::Assumed("no key says it; it costs next to nothing".to_owned());
    match kind.name {
        "recurrent" => {
            dims.put("outputs", DimValue::Count(1), small());
            if let Some(hidden) = dims.get("hidden").cloned() {
                dims.put("inputs", hidden, Origin::Assumed("no key says it; as wide as the layers".to_owned()));
            }
        }
        "convnet" | "unet" => {
            dims.put("classes", DimValue::Count(1), small());
            if kind.name == "convnet" {
                let why = "no key says it; a convolution 3x3 with norm and activation".to_owned();
                dims.put("block", DimValue::Choice("plain".to_owned()), Origin::Assumed(why));
            }
        }
        _ => {}
    }
}

/// The dimensions without which there is no model.
fn missing(kind: &'static ModelKind, names: Option<&'static Names>, values: &DimValues) -> Result<(), OptimizeError> {
    let is_missing =
        |dim: &&gpu_tuned_core::dims::Dim| dim.presence == Presence::Required && !values.contains_key(dim.name);
    let aliases = |dim: &str| {
        let of = |name: &str| names.and_then(|names| names.dims.iter().find(|(known, _)| *known == name));
        let all = match (kind.name, dim) {
            ("convnet", "stages") | ("unet" | "mlp", "widths") => of("{widths}"),
            _ => of(dim),
        };
        all.map_or_else(String::new, |(_, all)| {
            format!(" (looked for {})", all.iter().take(4).copied().collect::<Vec<_>>().join(", "))
        })
    };
    let missing: Vec<_> = kind
        .dims
        .iter()
        .filter(is_missing)
        .map(|dim| (dim.name, format!("{}: {}{}", dim.name, dim.meaning, aliases(dim.name))))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(OptimizeError::MissingDims {
        kind: kind.name,
        options: missing.iter().map(|(name, _)| format!("--dim {name}=…")).collect::<Vec<_>>().join(" "),
        missing: missing.into_iter().map(|(_, said)| said).collect(),
    })
}
