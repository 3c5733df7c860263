//! The workload of a config: dimensions of the model and their origins.

mod class;
mod evidence;
mod known;
mod read;

use gpu_tuned_core::dims::{Dim, DimValue, DimValues, Presence, Schema as _, named, parse_value};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::suggest_key;
use gpu_tuned_core::workload::{ModelKind, ModelSpec, Norm, Optimizer, Training, WorkloadSpec};
use serde::Serialize;

use crate::config::Config;
use crate::dialect::{DefaultValue, Role};
use crate::document::{ConfigEntry, ConfigText, Value};
use crate::error::{MOST_MISTAKES, OptimizeError};
use crate::matched::{MatchedKey, Meaning};
use crate::names::{KindNames, Layout, Names, contains_word};
use crate::vocabulary::is_beside_training;
use evidence::Evidence;
pub(crate) use evidence::{KeysOfModels, sections, use_of_micro_batch};
use known::{Known, changes_dimensions};
use read::{Reader, value};

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
    /// Reads a model from the entries of a file, or takes the dimensions of the well-known model that the training's config names.
    ///
    /// # Errors
    ///
    /// An unknown kind, missing dimensions, values that a model cannot have, and models that no kind describes.
    pub fn read(entries: &[ConfigEntry], file: &ConfigText, request: &ModelRequest<'_>) -> Result<Self, OptimizeError> {
        let saved = request.config.filter(|config| config.loads_saved());
        if let Some(entry) = saved.and_then(|_| read::meeting(entries, ".dtype|.torch_dtype=float32")) {
            let remedy = "write `torch_dtype: float32` into its config";
            let message = format!("`{}`: the training loads weights in fp32: {remedy}", entry.shown);
            return Err(file.mistakes(vec![file.source().error(&entry.place(), message)]));
        }
        let read = Self::of_entries(entries, file, request);
        if let (Ok(model), None) = (&read, request.kind) {
            model.check_loaded(entries)?;
        }
        if !matches!(read, Err(OptimizeError::NoKind { .. } | OptimizeError::MissingDims { .. })) {
            return read;
        }
        let classes = entries.iter().flat_map(evidence::names_of_models);
        let files = request.config.into_iter().flat_map(Config::named_models);
        let mut named = files.chain(classes).filter(|_| request.kind.is_none());
        let with_config = |text: &str| Known::named(text).filter(|known| known.described().is_none());
        let Some((known, by)) = named.find_map(|(text, by)| Some((with_config(&text)?, by))) else { return read };
        let of = known.file();
        let mut model = Self::of_entries(&of.entries()?, &of, request)?;
        let names = Names::get().kind(model.spec.model.kind().name);
        let Some(names) = names.filter(|names| !changes_dimensions(names, entries)) else { return read };
        evidence::check_modelled(entries, &Evidence { names, by: by.clone(), layout: None })?;
        model.because = format!("by {by}, with the dimensions of {}", known.name);
        for dimension in &mut model.dims {
            let is_own = |key: &str| entries.iter().any(|entry| entry.shown == key);
            if matches!(&dimension.origin, Origin::Key(key) if !is_own(key)) {
                dimension.origin = Origin::Assumed(format!("as in {}", known.name));
            }
        }
        Ok(model)
    }

    /// Refuses a well-known model whose weights are loaded beside the dimensions of another one.
    fn check_loaded(&self, entries: &[ConfigEntry]) -> Result<(), OptimizeError> {
        for entry in entries.iter().filter(|entry| Names::get().keys.loading.has(entry.name())) {
            // `tokenizer: {pretrained: gpt2}`, `checkpoint: out/gpt2`
            let Value::Text(text) = &entry.value else { continue };
            if is_beside_training(entry) || !known::is_name(text) {
                continue;
            }
            // Only the dimensions of weights are compared.
            let request = ModelRequest { dims: &[("seq".to_owned(), "1".to_owned())], ..ModelRequest::default() };
            let Some(Ok(known)) = Self::known(text, &request) else { continue };
            if ["layers", "d_model"].iter().any(|dim| known.value_of(dim) != self.value_of(dim)) {
                let what = format!("`{} = {text}` beside the dimensions of another model", entry.shown);
                return Err(OptimizeError::NotModelled { what });
            }
        }
        Ok(())
    }

    fn value_of(&self, name: &str) -> Option<&str> {
        self.dims.iter().find(|dim| dim.name == name).map(|dim| dim.value.as_str())
    }

    /// Names of the well-known models.
    pub fn known_names() -> impl Iterator<Item = &'static str> {
        Known::names()
    }

    /// Takes the dimensions of a well-known model, such as `gpt2`, `resnet18` or `meta-llama/Llama-2-7b-hf`. Dimensions of the
    /// request count more. `None` for other names.
    ///
    /// # Errors
    ///
    /// Unknown dimensions, and values that a model cannot have.
    pub fn known(name: &str, request: &ModelRequest<'_>) -> Option<Result<Self, OptimizeError>> {
        let known = Known::named(name)?;
        let file = known.file();
        let Some((kind, mut dims)) = known.described() else {
            return Some(file.entries().and_then(|entries| Self::of_entries(&entries, &file, request)));
        };
        dims.retain(|(name, _)| !request.dims.iter().any(|(given, _)| given == name));
        dims.extend_from_slice(request.dims);
        let request = ModelRequest { kind: Some(kind), dims: &dims, ..*request };
        Some(file.entries().and_then(|entries| Self::of_entries(&entries, &file, &request)))
    }

    /// Reads a model from the entries of a file.
    fn of_entries(
        entries: &[ConfigEntry],
        file: &ConfigText,
        request: &ModelRequest<'_>,
    ) -> Result<Self, OptimizeError> {
        let all = entries;
        let conditions = request.config.into_iter().flat_map(|config| &config.dialect.unread);
        let unread: Vec<_> = conditions.filter(|(_, on)| read::meeting(all, on).is_none()).collect();
        let is_unread = |entry: &ConfigEntry| unread.iter().any(|(key, _)| key == entry.name());
        let is_part = |entry: &ConfigEntry| entry.tables().any(|table| Names::get().keys.parts.has(table));
        let own: Vec<_> = all.iter().filter(|entry| !is_unread(entry) && !is_part(entry)).cloned().collect();
        let entries = own.as_slice();
        let (kind, evidence, because) = kind(entries, request)?;
        let mut dims = requested(kind, request.dims)?;
        let is_own = |config: &&Config| config.file.source().text == file.source().text;
        let own = request.config.filter(is_own);
        let family = || Names::get().layout(&own?.dialect.family);
        let mut evidence = evidence.filter(|evidence| evidence.names.name == kind.name);
        if let Some(evidence) = &mut evidence {
            let usual = || Names::get().layout(kind.name).filter(|_| kind.name == "transformer");
            evidence.layout = family().or(evidence.layout).or_else(usual);
        }
        let names = evidence.as_ref().map(|evidence| evidence.names);
        let layout = evidence.as_ref().and_then(|evidence| evidence.layout);
        let read = names.and_then(|names| class::as_read(entries, names, layout.map(|(family, _)| family)));
        let entries = read.as_deref().unwrap_or(entries);
        let mut reader = Reader::new(entries, file.source(), kind.name);
        if let Some(config) = request.config {
            let mistakes = add_training(config, kind, layout, &mut dims);
            if !mistakes.is_empty() {
                return Err(config.file.mistakes(mistakes));
            }
        }
        if let (Some(names), Some(evidence)) = (names, &evidence) {
            if request.kind.is_none() {
                evidence::check_modelled(all, evidence)?;
                // The keys of a training's file are checked with it.
                if own.is_none() {
                    evidence::check_known(all)?;
                }
            }
            if let Some((family, _)) = layout {
                reader.given(family, kind, &mut dims);
                reader.dims(&family.keys, kind, &mut dims);
            }
            reader.dims(&names.dims, kind, &mut dims);
            reader.pad(layout.map(|(family, _)| family), &mut dims);
            // `config_overrides: {n_positions: 2048}` of another file's model
            let is_table = |entry: &ConfigEntry| {
                ["n_ctx", "n_positions", "max_position_embeddings"].contains(&entry.name())
                    && entry.tables().any(|table| ["config_overrides", "model_kwargs"].contains(&table))
            };
            let enlarges = request.config.is_some_and(|config| config.entries.iter().any(is_table));
            reader.add_length(names, kind, enlarges, &mut dims);
            read::compose(names, &mut reader, &mut dims);
            if let Some((family, _)) = layout {
                reader.width(family, &mut dims);
            }
        }
        add_layout(kind, layout, &mut dims);
        add_cell(kind, request.kind, evidence.as_ref().map(|evidence| evidence.by.as_str()), &mut dims);
        add_assumptions(kind, &mut dims);
        if !reader.mistakes.is_empty() {
            return Err(file.mistakes(reader.mistakes));
        }
        let is_gated = dims.get("gated") == Some(&DimValue::Flag(true));
        for (name, value, _) in &mut dims.0 {
            if let ("lora_targets", DimValue::ChoiceList(matrices)) = (*name, value) {
                matrices.retain(|matrix| is_gated || matrix != "gate");
            }
        }
        let (values, training) = (dims.values(kind.dims), dims.values(Training::DIMS));
        let model_file = request.config.and_then(Config::model_file);
        // Gated layers have no usual width: some round two thirds of it up.
        let is_gated =
            layout.is_some_and(|(family, _)| family.dims.iter().any(|(dim, _)| dim == "gated")) && !dims.has("d_ff");
        require_all(kind, names, is_gated, &values, model_file)?;
        let mut spec =
            WorkloadSpec { model: ModelSpec::from_values(kind, &values), training: Training::from_values(&training) };
        if let (Some(optimizer), false) = (request.optimizer, training.contains_key("optimizer")) {
            spec.training.optimizer = optimizer;
        }
        if let Some((name, message)) = spec.mistakes().into_iter().next() {
            let keys = if let Some(Origin::Key(keys)) = dims.origin(name) { keys.split(", ").next() } else { None };
            let entry = entries.iter().find(|entry| keys == Some(entry.shown.as_str()));
            return Err(match entry {
                Some(entry) => file.mistakes(vec![file.source().error(&entry.span, message)]),
                None => OptimizeError::Dimension { message },
            });
        }
        let to_dimension = |(name, value, origin): (&str, DimValue, Origin)| Dimension {
            name: name.to_owned(),
            value: value.to_string(),
            origin: match origin {
                Origin::Key(key) if key.starts_with(class::DEFAULT) => Origin::Assumed(key),
                other => other,
            },
        };
        Ok(Self { spec, because, dims: dims.0.into_iter().map(to_dimension).collect() })
    }
}

/// The family of the model that the config names.
pub(crate) fn family(config: &Config) -> Option<&'static str> {
    let published = |text: &str| {
        let entries = Known::named(text)?.file().entries().ok()?;
        read::meeting(&entries, "model_type=*")?.value.bare()
    };
    let own = config.entries.iter().flat_map(evidence::names_of_models);
    let mut named = config.named_models().chain(own).map(|(text, _)| published(&text).unwrap_or(text));
    named.find_map(|text| Names::get().layout(&text).map(|(_, word)| word))
}

/// Returns true if Liger chunks the loss: by the family of the model that the config names, else by the model's layers.
pub(crate) fn has_liger(config: &Config, spec: &WorkloadSpec) -> bool {
    let is_llama = || matches!(&spec.model, ModelSpec::Transformer(it) if it.gated && it.norm == Norm::Rms);
    family(config).map_or_else(is_llama, |word| Names::get().liger.has(word))
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
fn add_layout(kind: &'static ModelKind, layout: Layout, dims: &mut Dims) {
    for (name, value) in layout.iter().flat_map(|(layout, _)| &layout.dims) {
        let word = layout.map_or("", |(_, word)| word);
        dims.add_named(kind, name, value, Origin::Assumed(format!("as in {word} models")));
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
    for (name, value, why) in Names::get().kind(kind.name).into_iter().flat_map(|names| &names.assumed) {
        let Some(dim) = named(kind.dims, name) else { continue };
        let other = value.as_str().and_then(|other| dims.get(other).cloned());
        if let Some(value) = other.or_else(|| dim.kind.read(value)) {
            dims.add(dim.name, value, Origin::Assumed(format!("no key; {why}")));
        }
    }
}

fn require_all(
    kind: &'static ModelKind,
    names: Option<&'static KindNames>,
    needs_width: bool,
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
    let is_needed = |dim: &Dim| dim.presence == Presence::Required || needs_width && dim.name == "d_ff";
    let is_missing = |dim: &&Dim| is_needed(dim) && !values.contains_key(dim.name);
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

/// A dimension of a model with its origin.
#[derive(Clone, Debug, Serialize)]
pub struct Dimension {
    /// Name of the dimension.
    pub name: String,
    /// Value as attributes spell it.
    pub value: String,
    /// Origin of the value.
    #[serde(flatten)]
    pub origin: Origin,
}

/// Origin of a dimension.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "origin", content = "from")]
pub enum Origin {
    /// One key of the config, or several with commas between.
    Key(String),
    /// The command line.
    Option,
    /// An assumption with its reason.
    Assumed(String),
}

impl Origin {
    /// The keys of the config that give the value.
    pub(crate) fn keys(&self) -> Option<impl Iterator<Item = &str>> {
        if let Self::Key(keys) = self { Some(keys.split(", ")) } else { None }
    }
}

/// Dimensions by name, in the order of discovery.
#[derive(Default)]
pub(crate) struct Dims(Vec<(&'static str, DimValue, Origin)>);

impl Dims {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(crate) fn get(&self, name: &str) -> Option<&DimValue> {
        self.0.iter().find(|(known, ..)| *known == name).map(|(_, value, _)| value)
    }

    fn origin(&self, name: &str) -> Option<&Origin> {
        self.0.iter().find(|(known, ..)| *known == name).map(|(.., origin)| origin)
    }

    /// Adds a dimension by the name and value of a table, where the kind has it.
    pub(crate) fn add_named(&mut self, kind: &'static ModelKind, name: &str, value: &toml::Value, origin: Origin) {
        if let Some((dim, value)) = named(kind.dims, name).and_then(|dim| Some((dim.name, dim.kind.read(value)?))) {
            self.add(dim, value, origin);
        }
    }

    /// Adds a dimension unless it is there.
    pub(crate) fn add(&mut self, name: &'static str, value: DimValue, origin: Origin) {
        if !self.has(name) {
            self.0.push((name, value, origin));
        }
    }

    fn remove(&mut self, name: &str) {
        self.0.retain(|(known, ..)| *known != name);
    }

    /// Values of those dimensions that a table describes.
    pub(crate) fn values(&self, table: &'static [Dim]) -> DimValues {
        self.0.iter().filter_map(|(name, value, _)| Some((named(table, name)?.name, value.clone()))).collect()
    }
}

/// Adds the dimensions that the training's config gives: lengths, adapters, packed weights. Returns its mistakes.
fn add_training(config: &Config, kind: &'static ModelKind, layout: Layout, dims: &mut Dims) -> Vec<FileError> {
    let (source, mut mistakes) = (config.file.source(), Vec::new());
    let mut switches = Vec::new();
    for key in config.with_role(Role::Adapter) {
        match key.meaning(source.text) {
            Meaning::Known(word) => switches.push(word),
            Meaning::Unknown => return vec![key.unknown(source)],
            Meaning::Open => {}
        }
    }
    if switches.is_empty() {
        switches.extend(config.dialect.default_of(Role::Adapter, "", &config.entries));
    }
    let is_adapted = switches.iter().all(|word| *word == "on");
    let find = |name: &str| {
        let dim = named(kind.dims, name).or_else(|| named(Training::DIMS, name));
        dim.filter(|dim| dim.name != "lora_targets" && (is_adapted || dim.name != "lora_rank"))
    };
    for key in config.with_role(Role::Dim).filter(|key| !key.is_open()) {
        if mistakes.len() >= MOST_MISTAKES {
            break;
        }
        // `--dim seq` is the length of both.
        let name = key.row.dim.trim_start_matches("source_");
        if dims.origin(name) == Some(&Origin::Option) {
            continue;
        }
        let Some(dim) = find(&key.row.dim) else {
            if key.row.dim == "source_seq" {
                let message =
                    format!("`{}`: a decoder's sequence has source and target: give --dim seq=…", key.entry.shown);
                mistakes.push(source.error(&key.entry.place(), message));
            }
            continue;
        };
        let read = match key.meaning(source.text) {
            _ if let (true, Some(assumed)) = (key.row.words.is_empty(), &key.assumed) => {
                Ok(dim.kind.read(&parse_value(assumed)))
            }
            _ if key.row.words.is_empty() => {
                value(dim, &key.entry).map_err(|message| source.error(&key.entry.place(), message))
            }
            Meaning::Known(word) => Ok(dim.kind.read(&parse_value(word))),
            Meaning::Open => Ok(None),
            Meaning::Unknown => Err(key.unknown(source)),
        };
        let shown = &key.entry.shown;
        match (read, dims.get(dim.name)) {
            (Ok(Some(value)), Some(other)) if value != *other => {
                let message = format!(
                    "`{shown}` and another key both look like the training's {0}; choose with --dim {0}=…",
                    dim.name
                );
                mistakes.push(source.error(&key.entry.key_span, message));
            }
            (Ok(Some(value)), _) => dims.add(dim.name, value, Origin::Key(shown.clone())),
            (Ok(None), _) => {}
            (Err(mistake), _) => mistakes.push(mistake),
        }
    }
    for row in config.dialect.defaults.iter().filter(|row| row.role == Role::Dim && row.beside.is_met(&config.entries))
    {
        let Some(dim) = find(&row.dim).filter(|dim| !dims.has(dim.name)) else { continue };
        let is_null = |key: &&MatchedKey| key.row.dim == row.dim && key.entry.value == Value::Null;
        let is_number = row.value.parse::<u64>().is_ok();
        if let Some(key) = config.with_role(Role::Dim).find(is_null).filter(|_| is_number) {
            let message = format!("`{}` is null: give it with --dim {}=…", key.entry.shown, row.dim);
            mistakes.push(source.error(&key.entry.key_span, message));
        } else if let Some(value) = dim.kind.read(&parse_value(&row.value)) {
            dims.add(dim.name, value, Origin::Assumed(format!("the default of {}", config.dialect.name)));
        }
    }
    let adapter = config.with_role(Role::Adapter).find(|_| is_adapted && !dims.has("lora_rank"));
    let adapter = adapter.filter(|key| matches!(key.meaning(source.text), Meaning::Known("on")));
    mistakes.extend(adapter.map(|key| missing_rank(key, source)).or(targets(config, layout, is_adapted, dims).err()));
    mistakes
}

fn missing_rank(key: &MatchedKey, source: Source<'_>) -> FileError {
    let message = format!("`{}`: the rank of the adapters is missing: give it with --dim lora_rank=…", key.entry.shown);
    source.error(&key.entry.place(), message)
}

/// Adds the matrices that have adapters.
fn targets(config: &Config, layout: Layout, is_adapted: bool, dims: &mut Dims) -> Result<(), FileError> {
    let source = config.file.source();
    let text = |value: &Value| value.bare().unwrap_or_default();
    let words = |key: &MatchedKey| match (&key.entry.value, key.meaning(source.text)) {
        (_, Meaning::Known(words)) => words.split(' ').map(str::to_owned).collect(),
        _ if !key.row.words.is_empty() => Vec::new(),
        (Value::List(nodes), _) => nodes.iter().map(|node| text(&node.value)).collect(),
        (value, _) => text(value).split([',', '|']).map(|word| word.trim().to_owned()).collect::<Vec<_>>(),
    };
    let keys = || config.with_role(Role::Dim).filter(|key| key.row.dim == "lora_targets");
    let is_unknown =
        |key: &&MatchedKey| !key.row.words.is_empty() && matches!(key.meaning(source.text), Meaning::Unknown);
    let is_open = dims.has("lora_rank") && !dims.has("lora_targets");
    if let Some(key) = keys().filter(|_| is_open).find(is_unknown) {
        return Err(key.unknown(source));
    }
    let all: Vec<_> = keys().map(|key| (key, words(key))).filter(|(_, words)| !words.concat().is_empty()).collect();
    let is_default = |row: &&DefaultValue| row.dim == "lora_targets" && row.beside.is_met(&config.entries);
    let defaults = config.dialect.defaults.iter().filter(is_default);
    let mut matrices: Vec<&str> = defaults.filter_map(|row| Names::get().matrices(None, &row.value)).collect();
    if all.is_empty() && matrices.is_empty() {
        matrices.extend(layout.and_then(|(family, _)| family.adapters("")));
    }
    if let (Some((key, _)), true) = (all.first(), is_adapted && !dims.has("lora_rank")) {
        return Err(missing_rank(key, source));
    }
    if !dims.has("lora_rank") || dims.has("lora_targets") || all.is_empty() && matrices.is_empty() {
        return Ok(());
    }
    for (key, word) in all.iter().flat_map(|(key, words)| words.iter().map(move |word| (key, word))) {
        let remedy = "name the matrices with adapters: --dim 'lora_targets=[\"query\", \"value\"]'";
        let message = || format!("`{}`: no matrix is known as `{word}`; {remedy}", key.entry.shown);
        let found = Names::get().matrices(layout, word);
        matrices.push(found.ok_or_else(|| source.error(&key.entry.place(), message()))?);
    }
    let mut matrices: Vec<_> = matrices.iter().flat_map(|words| words.split(' ')).map(str::to_owned).collect();
    matrices.sort_unstable();
    matrices.dedup();
    let from = all.iter().map(|(key, _)| key.entry.shown.as_str()).collect::<Vec<_>>().join(", ");
    let origin = if from.is_empty() {
        Origin::Assumed(format!("the default of {}", config.dialect.name))
    } else {
        Origin::Key(from)
    };
    dims.add("lora_targets", DimValue::ChoiceList(matrices), origin);
    Ok(())
}
