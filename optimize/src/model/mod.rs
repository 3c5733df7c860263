//! The workload of a config: dimensions of the model and their origins.

mod dims;
mod evidence;
mod read;
mod training;

use std::borrow::Cow;

use gpu_tuned_core::dims::{Dim, DimValue, DimValues, Presence, Schema as _, named, parse_value};
use gpu_tuned_core::suggest_key;
use gpu_tuned_core::workload::{ModelKind, ModelSpec, Optimizer, Training, WorkloadSpec};

use crate::config::Config;
use crate::document::ConfigText;
use crate::entry::ConfigEntry;
use crate::error::OptimizeError;
use crate::key_names::contains_word;
use crate::names::{Family, KindNames, Names};
use dims::Dims;
pub use dims::{Dimension, Origin};
use evidence::Evidence;
pub(crate) use evidence::use_of_micro_batch;
use read::Reader;

/// A model with its dimensions.
pub struct Model {
    /// Model and training.
    pub spec: WorkloadSpec,
    /// Reason for the kind of model.
    pub because: String,
    /// Dimensions with their origins.
    pub dims: Vec<Dimension>,
}

/// The user's description of a model, in place of the config's.
#[derive(Clone, Copy, Default)]
pub struct ModelRequest<'a> {
    /// Kind of model, as `--model` names it.
    pub kind: Option<&'a str>,
    /// Dimensions, as `--dim NAME=VALUE` gives them.
    pub dims: &'a [(String, String)],
    /// The optimizer, where the config names one.
    pub optimizer: Option<Optimizer>,
    /// The config of the training, with the length of sequences, adapters and packed weights.
    pub config: Option<&'a Config>,
}

impl Model {
    /// Reads a model from the entries of a file.
    ///
    /// # Errors
    ///
    /// An unknown kind, missing dimensions, values that a model cannot have, and models that no kind describes.
    pub fn read(entries: &[ConfigEntry], file: &ConfigText, request: &ModelRequest<'_>) -> Result<Self, OptimizeError> {
        let all = entries;
        let is_own = |entry: &&ConfigEntry| !entry.tables().any(|table| Names::get().keys.parts.has(table));
        let own: Vec<_> = all.iter().filter(is_own).collect();
        let own = if own.len() == all.len() { Cow::Borrowed(all) } else { own.into_iter().cloned().collect() };
        let entries = &*own;
        let (kind, evidence, because) = kind(entries, request)?;
        let mut reader = Reader::new(entries, file.source(), kind.name);
        let mut dims = requested(kind, request.dims)?;
        let evidence = evidence.filter(|evidence| evidence.names.name == kind.name);
        let names = evidence.as_ref().map(|evidence| evidence.names);
        let layout = evidence.as_ref().and_then(|evidence| evidence.layout);
        if let Some(config) = request.config {
            let mistakes = training::add_training(config, kind, &mut dims);
            if !mistakes.is_empty() {
                return Err(config.file.mistakes(mistakes));
            }
        }
        if let (Some(names), Some(evidence)) = (names, &evidence) {
            if request.kind.is_none() {
                evidence::check_modelled(all, evidence)?;
            }
            reader.dims(layout.map(|(layout, _)| layout.keys.as_slice()).unwrap_or_default(), kind, &mut dims);
            reader.dims(&names.dims, kind, &mut dims);
            reader.cap_length(names, kind, &mut dims);
            read::compose(names, &mut reader, &mut dims);
        }
        add_layout(kind, layout, &mut dims);
        add_cell(kind, request.kind, evidence.as_ref().map(|evidence| evidence.by.as_str()), &mut dims);
        add_assumptions(kind, &mut dims);
        if !reader.mistakes.is_empty() {
            return Err(file.mistakes(reader.mistakes));
        }
        if dims.get("gated") != Some(&DimValue::Flag(true))
            && let Some(DimValue::ChoiceList(matrices)) = dims.get_mut("lora_targets")
        {
            matrices.retain(|matrix| matrix != "gate");
        }
        let (values, training) = (dims.values(kind.dims), dims.values(Training::DIMS));
        let model_file = request.config.and_then(Config::model_file);
        require_all(kind, names, &values, model_file)?;
        let mut spec =
            WorkloadSpec { model: ModelSpec::from_values(kind, &values), training: Training::from_values(&training) };
        if let (Some(optimizer), false) = (request.optimizer, training.contains_key("optimizer")) {
            spec.training.optimizer = optimizer;
        }
        if let Some((name, message)) = spec.mistakes().into_iter().next() {
            let place = match dims.origin(name) {
                Some(Origin::Key(keys)) => reader.error_at(keys.split(", ").next().unwrap_or(keys), &message),
                _ => None,
            };
            return Err(place.map_or(OptimizeError::Dimension { message }, |error| file.mistakes(vec![error])));
        }
        Ok(Self { spec, because, dims: dims.into_list() })
    }
}

/// The kind, the evidence for it, and the reason for messages.
fn kind(
    entries: &[ConfigEntry],
    request: &ModelRequest<'_>,
) -> Result<(&'static ModelKind, Option<Evidence>, String), OptimizeError> {
    let identified = evidence::identify(entries);
    if let Some(requested) = request.kind {
        let (kind, _) = ModelKind::requested(requested).ok_or_else(|| OptimizeError::UnknownKind {
            name: requested.to_owned(),
            hint: ModelKind::suggest(requested),
        })?;
        let own = identified.ok().filter(|evidence| evidence.names.name == kind.name);
        let layout = own.and_then(|evidence| evidence.layout);
        let evidence = Names::get().kind(kind.name).map(|names| Evidence { names, by: "--model".to_owned(), layout });
        return Ok((kind, evidence, "by --model".to_owned()));
    }
    let file = request.config.and_then(Config::model_file);
    match identified {
        Ok(evidence) => {
            let kind = ModelKind::named(&evidence.names.name).expect("BUG: the names are of kinds that exist");
            let because = format!("by {}", evidence.by);
            Ok((kind, Some(evidence), because))
        }
        Err(candidates) if candidates.is_empty() => {
            Err(OptimizeError::NoKind { readings: read::readings(entries), file })
        }
        Err(candidates) => {
            let readings = candidates.iter().map(|one| format!("{} ({})", one.names.name, one.by)).collect();
            Err(OptimizeError::NoKind { readings, file })
        }
    }
}

/// Dimensions of the model and its training that the user gives.
fn requested(kind: &'static ModelKind, given: &[(String, String)]) -> Result<Dims, OptimizeError> {
    let mut dims = Dims::default();
    for (name, text) in given {
        let dim = named(kind.dims, name).or_else(|| named(Training::DIMS, name));
        let dim = dim.ok_or_else(|| OptimizeError::UnknownDim {
            kind: kind.name,
            name: name.clone(),
            hint: suggest_key(name, &kind.dims.iter().chain(Training::DIMS).map(|dim| dim.name).collect::<Vec<_>>()),
            names: kind.dims.iter().map(|dim| dim.name).collect::<Vec<_>>().join(", "),
        })?;
        if dims.has(dim.name) {
            return Err(OptimizeError::Dimension { message: format!("--dim {name} is given twice: keep one of them") });
        }
        let value = dim.kind.read(&parse_value(text));
        let value = value.ok_or_else(|| OptimizeError::Dimension {
            message: format!("--dim {name}={text}: expected {}", dim.kind.expected()),
        })?;
        dims.add(dim.name, value, Origin::Option);
    }
    Ok(dims)
}

/// Adds the dimensions that every model of the family has.
fn add_layout(kind: &'static ModelKind, layout: Option<(&'static Family, &'static str)>, dims: &mut Dims) {
    for (name, value) in layout.iter().flat_map(|(layout, _)| &layout.dims) {
        let word = layout.map_or("", |(_, word)| word);
        if let Some((dim, value)) = named(kind.dims, name).and_then(|dim| Some((dim.name, dim.kind.read(value)?))) {
            dims.add(dim, value, Origin::Assumed(format!("as in {word} models")));
        }
    }
    // Positions of another kind have no table, and a table of the sequence's length is the default.
    let is_of_length = dims.get("max_seq") == dims.get("seq");
    if is_of_length || dims.get("positions").is_some_and(|kind| *kind != DimValue::Choice("learned".to_owned())) {
        dims.remove("max_seq");
    }
}

/// Adds the cell of a recurrent network that is named so.
fn add_cell(kind: &'static ModelKind, requested: Option<&str>, by: Option<&str>, dims: &mut Dims) {
    let named = by.is_some_and(|by| contains_word(by, "gru"));
    if kind.name == "recurrent" && (requested == Some("gru") || requested.is_none() && named) {
        let origin = if requested.is_some() { Origin::Option } else { Origin::Assumed("its name".to_owned()) };
        dims.add("cell", DimValue::Choice("gru".to_owned()), origin);
    }
}

/// Adds dimensions that cost next to nothing, or are bounded by others.
fn add_assumptions(kind: &'static ModelKind, dims: &mut Dims) {
    let assumed = |why: &str| Origin::Assumed(format!("no key; {why}"));
    let small = || assumed("it costs next to nothing");
    match kind.name {
        "recurrent" => {
            dims.add("outputs", DimValue::Count(1), small());
            if let Some(hidden) = dims.get("hidden").cloned() {
                dims.add("inputs", hidden, assumed("as wide as the layers"));
            }
        }
        "convnet" => {
            dims.add("classes", DimValue::Count(1), small());
            let block = DimValue::Choice("plain".to_owned());
            dims.add("block", block, assumed("a convolution 3x3 with norm and activation"));
        }
        "unet" => dims.add("classes", DimValue::Count(1), small()),
        _ => {}
    }
}

/// Refuses a model without its required dimensions.
fn require_all(
    kind: &'static ModelKind,
    names: Option<&'static KindNames>,
    values: &DimValues,
    file: Option<String>,
) -> Result<(), OptimizeError> {
    let keys = |dim: &str| {
        let part = match (kind.name, dim) {
            ("convnet", "stages") | ("unet" | "mlp", "widths") => "{widths}",
            _ => dim,
        };
        names.and_then(|names| names.keys_of(part)).map_or_else(String::new, |keys| {
            format!(" (looked for {})", keys.iter().take(4).collect::<Vec<_>>().join(", "))
        })
    };
    let is_missing = |dim: &&Dim| dim.presence == Presence::Required && !values.contains_key(dim.name);
    let missing: Vec<&Dim> = kind.dims.iter().filter(is_missing).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(OptimizeError::MissingDims {
        kind: kind.name,
        options: missing.iter().map(|dim| format!("--dim {}=…", dim.name)).collect::<Vec<_>>().join(" "),
        missing: missing.iter().map(|dim| format!("{}: {}{}", dim.name, dim.meaning, keys(dim.name))).collect(),
        file,
    })
}
