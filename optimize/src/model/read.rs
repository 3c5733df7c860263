//! Dimensions among the entries of a file.

use gpu_tuned_core::dims::{Dim, DimKind, DimValue, Schema as _, named};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{Matrix, ModelKind, Training};

use super::dims::{Dims, Origin};
use crate::config::Config;
use crate::dialect::{Key, Role};
use crate::document::Value;
use crate::entry::ConfigEntry;
use crate::matched::{MatchedKey, Meaning};
use crate::names::{KindNames, Names, Words};

/// Reads dimensions and records mistakes.
pub(super) struct Reader<'e> {
    entries: &'e [ConfigEntry],
    source: Source<'e>,
    pub mistakes: Vec<FileError>,
}

impl<'e> Reader<'e> {
    pub(super) fn new(entries: &'e [ConfigEntry], source: Source<'e>) -> Self {
        Self { entries, source, mistakes: Vec::new() }
    }

    /// Adds every dimension of these keys that the file has and the user did not give.
    pub(super) fn dims(&mut self, keys: &[(String, Words)], kind: &'static ModelKind, dims: &mut Dims) {
        for (name, keys) in keys {
            let Some(dim) = named(kind.dims, name).filter(|dim| !dims.has(dim.name)) else { continue };
            let added = keys.iter().find_map(|key| key.split_once('+')?.1.parse::<u64>().ok()).unwrap_or(0);
            let Some(entry) = self.find(keys, name) else { continue };
            match value(dim, entry) {
                Ok(Some(DimValue::Count(count))) => {
                    dims.add(dim.name, DimValue::Count(count + added), Origin::Key(entry.shown.clone()));
                }
                Ok(Some(value)) => dims.add(dim.name, value, Origin::Key(entry.shown.clone())),
                Ok(None) => {}
                Err(message) => self.mistake(entry, format!("{message}; give it with --dim {name}=…")),
            }
        }
        // `feed_forward_proj: gated-gelu`
        let gate = self.entries.iter().find(|entry| entry.name() == "feed_forward_proj");
        if let (Some(entry), Some(dim)) = (gate, named(kind.dims, "gated")) {
            let is_gated = matches!(&entry.value, Value::Text(text) if text.starts_with("gated"));
            dims.add(dim.name, DimValue::Flag(is_gated), Origin::Key(entry.shown.clone()));
        }
    }

    /// Bounds the length of sequences by the model's longest.
    pub(super) fn cap_length(&mut self, names: &KindNames, kind: &'static ModelKind, dims: &mut Dims) {
        let Some(keys) = names.keys_of("{max}") else { return };
        let Some(entry) = self.find(keys, "{max}") else { return };
        let Some(longest) = entry.value.count() else { return };
        if let Some(rows) = named(kind.dims, "max_seq") {
            dims.add(rows.name, DimValue::Count(longest), Origin::Key(entry.shown.clone()));
        }
        match dims.get("seq") {
            Some(DimValue::Count(seq)) if *seq <= longest || dims.origin("seq") == Some(&Origin::Option) => {}
            _ => dims.set("seq", DimValue::Count(longest), Origin::Key(entry.shown.clone())),
        }
    }

    /// Adds the dimensions that the training's config gives: lengths, adapters, packed weights. Returns its mistakes.
    pub(super) fn training_dims(config: &Config, kind: &'static ModelKind, dims: &mut Dims) -> Vec<FileError> {
        let (source, mut mistakes) = (config.file.source(), Vec::new());
        let is_adapted = match config.with_role(Role::Adapter).next().map(|key| (key, key.meaning(source.text))) {
            Some((_, Meaning::Known(word))) => word == "on",
            Some((key, Meaning::Unknown)) if !key.is_left => return vec![key.unknown(source)],
            _ => config.dialect.default_of(Role::Adapter, "").is_none_or(|default| default == "on"),
        };
        let find = |row: &Key| {
            let dim = named(kind.dims, &row.dim).or_else(|| named(Training::DIMS, &row.dim));
            dim.filter(|dim| dim.name != "lora_targets" && (is_adapted || dim.name != "lora_rank"))
        };
        for key in config.with_role(Role::Dim).filter(|key| !key.is_left && !key.is_open()) {
            let Some(dim) = find(key.row) else { continue };
            let read = match key.meaning(source.text) {
                _ if key.row.words.is_empty() => {
                    value(dim, &key.entry).map_err(|message| source.error(&key.entry.place(), message))
                }
                Meaning::Known(word) => Ok(dim.kind.read(&toml::Value::String(word.to_owned()))),
                Meaning::Open => Ok(None),
                Meaning::Unknown => Err(key.unknown(source)),
            };
            let shown = &key.entry.shown;
            match (read, dims.get(dim.name)) {
                (Ok(Some(value)), Some(other)) if value != *other && dims.origin(dim.name) != Some(&Origin::Option) => {
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
        for row in config.dialect.rows(Role::Dim) {
            let number = || row.default.as_ref()?.parse().ok().map(toml::Value::Integer);
            if let Some((dim, value)) = find(row).and_then(|dim| Some((dim, dim.kind.read(&number()?)?))) {
                dims.add(dim.name, value, Origin::Assumed(format!("the default of {}", config.dialect.name)));
            }
        }
        mistakes.extend(targets(config, dims).err());
        mistakes
    }

    /// The entry with one of the keys: in a section of the model first, then by the order of the keys.
    fn find(&mut self, keys: &Words, dim: &str) -> Option<&'e ConfigEntry> {
        let all = self.entries;
        let rank = |entry: &ConfigEntry| {
            let own = entry.name();
            // `sequence: { min: 7, max: 30 }`
            let name = if own == "max" { entry.tables().next().unwrap_or(own) } else { own };
            let position = keys
                .position(name)
                .or_else(|| keys.iter().position(|key| key.split_once('+').is_some_and(|(key, _)| key == name)))?;
            let is_value = !matches!(entry.value, Value::Table(_) | Value::Null) && !entry.value.is_reference();
            is_value.then_some((!entry.tables().any(is_section), position))
        };
        let best = all.iter().filter_map(rank).min()?;
        let mut of_rank = all.iter().filter(|entry| rank(entry) == Some(best));
        let first = of_rank.next()?;
        if let Some(other) = of_rank.find(|other| other.value != first.value) {
            let (name, one, two) = (dim.trim_matches(['{', '}']), &first.shown, &other.shown);
            self.mistake(other, format!("`{one}` and `{two}` both look like the model's {name}; choose with --dim"));
        }
        Some(first)
    }

    /// One whole number or a list of them, for a part of a dimension; with its key.
    pub(super) fn counts(&mut self, names: &KindNames, part: &str) -> Option<(Vec<u64>, String)> {
        let entry = self.find(names.keys_of(part)?, part)?;
        let counts = match &entry.value {
            Value::List(nodes) => nodes.iter().map(|node| node.value.count()).collect::<Option<Vec<_>>>(),
            one => one.count().map(|count| vec![count]),
        };
        let counts = counts.filter(|all| !all.is_empty() && all.iter().all(|count| (1..=1 << 20).contains(count)));
        if counts.is_none() {
            self.mistake(entry, format!("`{}`: expected whole numbers from 1 to 2^20", entry.shown));
        }
        counts.map(|counts| (counts, entry.shown.clone()))
    }

    fn mistake(&mut self, entry: &ConfigEntry, message: String) {
        self.mistakes.push(self.source.error(&entry.span, message));
    }

    /// The message with the place of a key's value.
    pub(super) fn error_at(&self, key: &str, message: &str) -> Option<FileError> {
        let entry = self.entries.iter().find(|entry| entry.shown == key)?;
        Some(self.source.error(&entry.span, message))
    }
}

/// Adds the matrices that have adapters.
fn targets(config: &Config, dims: &mut Dims) -> Result<(), FileError> {
    const EVERY: &str = "query key value output gate up down";
    let source = config.file.source();
    let text = |value: &Value| value.bare().unwrap_or_default();
    let words = |key: &MatchedKey| match (&key.entry.value, key.meaning(source.text)) {
        (_, Meaning::Known(words)) => words.split(' ').map(str::to_owned).collect(),
        _ if !key.row.words.is_empty() => Vec::new(),
        (Value::List(nodes), _) => nodes.iter().map(|node| text(&node.value)).collect(),
        (value, _) => text(value).split([',', '|']).map(|word| word.trim().to_owned()).collect::<Vec<_>>(),
    };
    let keys = config.with_role(Role::Dim).filter(|key| key.row.dim == "lora_targets");
    let all: Vec<_> = keys.map(|key| (key, words(key))).filter(|(_, words)| !words.concat().is_empty()).collect();
    let default = config.dialect.default_of(Role::Dim, "lora_targets");
    if !dims.has("lora_rank") || dims.has("lora_targets") || all.is_empty() && default.is_none() {
        return Ok(());
    }
    let mut matrices: Vec<&str> = default.filter(|_| all.is_empty()).map(|_| EVERY).into_iter().collect();
    for (key, word) in all.iter().flat_map(|(key, words)| words.iter().map(move |word| (key, word))) {
        matrices.push(match word.as_str() {
            "all" | "all-linear" | "all_linear" => EVERY,
            word => {
                let own = || Matrix::ALL.into_iter().map(Matrix::name).find(|name| *name == word);
                let remedy = "name the matrices with adapters: --dim 'lora_targets=[\"query\", \"value\"]'";
                let message = || format!("`{}`: no matrix is known as `{word}`; {remedy}", key.entry.shown);
                let found = Names::get().matrices(word).or_else(own);
                found.ok_or_else(|| source.error(&key.entry.place(), message()))?
            }
        });
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

/// Returns true if a table is named after models or a kind of them.
fn is_section(table: &str) -> bool {
    Names::get().keys.sections.has(table) || Names::get().kinds().any(|names| names.words.has(table))
}

/// The value of a dimension; `None` where the file leaves it open.
fn value(dim: &Dim, entry: &ConfigEntry) -> Result<Option<DimValue>, String> {
    let (name, value) = (&entry.shown, &entry.value);
    let read = match (&dim.kind, value) {
        // The largest of several lengths costs most; each of several features counts.
        (DimKind::Count(_), Value::List(nodes)) if dim.name == "seq" => {
            nodes.iter().map(|node| node.value.count()).max().flatten().map(DimValue::Count)
        }
        (DimKind::Count(_), Value::List(nodes)) if dim.name == "inputs" => Some(DimValue::Count(nodes.len() as u64)),
        (DimKind::Count(_), Value::List(nodes)) if dim.name == "image" => {
            let sides: Option<Vec<_>> = nodes.iter().map(|node| node.value.count()).collect();
            return side(name, sides.as_deref()).map(Some);
        }
        (DimKind::Count(_), Value::Number(digits)) => match value.count() {
            Some(count) => Some(DimValue::Count(count)),
            None => return Err(format!("`{name}`: expected a whole number, found {digits}")),
        },
        (DimKind::Flag, Value::Flag(flag)) => Some(DimValue::Flag(*flag)),
        // `dropout: 0.1`
        (DimKind::Flag, Value::Number(digits)) => digits.parse().ok().map(|share: f64| DimValue::Flag(share > 0.0)),
        (DimKind::Choice(choices), Value::Text(text)) => {
            let text = text.to_ascii_lowercase();
            return Ok(choices.names.iter().find(|(name, _)| *name == text).map(|_| DimValue::Choice(text)));
        }
        _ => None,
    };
    let expected = || format!("`{name}`: expected {}, found {}", dim.kind.expected(), value.kind());
    read.map(Some).ok_or_else(expected)
}

/// The side of a square image.
fn side(name: &str, sides: Option<&[u64]>) -> Result<DimValue, String> {
    match sides {
        Some([side]) => Ok(DimValue::Count(*side)),
        Some([height, width]) if height == width => Ok(DimValue::Count(*height)),
        Some([height, width]) => Err(format!(
            "`{name}`: the planner needs square images; give the side of a square with as many pixels: --dim image={}",
            ((height * width) as f64).sqrt().round()
        )),
        Some([_, _, _]) => Err(format!(
            "`{name}`: models over volumes cannot be described by dimensions; give their costs (--model declared --dim …), \
             or measure the model and name it with --workload"
        )),
        _ => Err(format!("`{name}`: expected the side of a square image in pixels")),
    }
}

/// Dimensions that models of any kind have.
const COMMON_DIMS: &[&str] =
    &["classes", "seq", "dropout", "bias", "outputs", "{outputs}", "batch_statistics", "tied_head"];

/// The kinds of which a file without other evidence has two dimensions or more.
pub(super) fn readings(entries: &[ConfigEntry]) -> Vec<String> {
    let reading = |names: &KindNames| {
        let dims = names.dims.iter().filter(|(dim, _)| !COMMON_DIMS.contains(&dim.as_str()));
        let found = dims.filter_map(|(_, keys)| entries.iter().find(|entry| keys.has(entry.name())));
        let found: Vec<_> = found.map(|entry| entry.shown.as_str()).collect();
        (found.len() > 1).then(|| format!("{} ({})", names.name, found.join(", ")))
    };
    Names::get().kinds().filter_map(reading).collect()
}

/// Adds the dimensions that the kind combines from several keys.
pub(super) fn compose(names: &KindNames, reader: &mut Reader<'_>, dims: &mut Dims) {
    let mut counts = |part: &str| reader.counts(names, part);
    match names.name.as_str() {
        "convnet" if !dims.has("stages") => {
            let (Some(widths), Some(blocks)) = (counts("{widths}"), counts("{blocks}")) else { return };
            if let Some(stages) = stages(&widths.0, &blocks.0) {
                dims.add("stages", DimValue::Stages(stages), keys(&[&widths.1, &blocks.1]));
                if blocks.1.to_lowercase().contains("res") {
                    dims.add("block", DimValue::Choice("basic".to_owned()), Origin::Key(blocks.1));
                }
            }
        }
        "unet" if !dims.has("widths") => {
            let Some((widths, key)) = counts("{widths}") else { return };
            match (widths.as_slice(), counts("{blocks}")) {
                ([first], Some((levels, levels_key))) => {
                    let doubled = (0..levels[0].min(16)).map(|level| first << level).collect();
                    dims.add("widths", DimValue::Counts(doubled), keys(&[&key, &levels_key]));
                }
                ([_], None) => {}
                _ => dims.add("widths", DimValue::Counts(widths), keys(&[&key])),
            }
        }
        "mlp" if !dims.has("widths") => {
            let (inputs, hidden, outputs) = (counts("{inputs}"), counts("{widths}"), counts("{outputs}"));
            let (Some(inputs), Some(hidden)) = (inputs, hidden) else { return };
            let layers = counts("{blocks}").filter(|_| hidden.0.len() == 1);
            let repeated = layers.as_ref().map_or(1, |(layers, _)| layers[0].min(1024) as usize);
            let outputs = outputs.unwrap_or_else(|| (vec![1], String::new()));
            let inner = hidden.0.iter().copied().cycle().take(hidden.0.len() * repeated);
            let widths = inputs.0.iter().copied().take(1).chain(inner).chain(outputs.0.into_iter().take(1)).collect();
            let layers_key = layers.map_or_else(String::new, |(_, key)| key);
            dims.add("widths", DimValue::Counts(widths), keys(&[&inputs.1, &hidden.1, &layers_key, &outputs.1]));
        }
        _ => {}
    }
}

/// The keys that a dimension combines.
fn keys(all: &[&str]) -> Origin {
    Origin::Key(all.iter().copied().filter(|key| !key.is_empty()).collect::<Vec<_>>().join(", "))
}

/// `[channels, blocks]` of each stage: from lists of one length, or one number for all stages of the other list.
fn stages(widths: &[u64], blocks: &[u64]) -> Option<Vec<[u64; 2]>> {
    match (widths, blocks) {
        ([width], blocks) => Some(blocks.iter().map(|blocks| [*width, *blocks]).collect()),
        (widths, [blocks]) => Some(widths.iter().map(|width| [*width, *blocks]).collect()),
        (widths, blocks) if widths.len() == blocks.len() => {
            Some(widths.iter().zip(blocks).map(|(width, blocks)| [*width, *blocks]).collect())
        }
        _ => None,
    }
}
