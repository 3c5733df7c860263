//! Dimensions among the entries of a file.

use gpu_tuned_core::dims::{Dim, DimKind, DimValue, named};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::ModelKind;

use super::evidence::names_of_models;
use super::{Dims, Origin};
use crate::dialect::{ends, is_word};
use crate::document::{ConfigEntry, Value};
use crate::names::{Family, KindNames, Names, Words, contains_word};
use crate::vocabulary::is_beside_training;

/// Largest length of sequences that is assumed where only the model's is known.
const MAX_ASSUMED_SEQ: u64 = 8192;

/// Reads dimensions and records mistakes.
pub(super) struct Reader<'e> {
    entries: &'e [ConfigEntry],
    source: Source<'e>,
    kind: &'static str,
    pub mistakes: Vec<FileError>,
}

impl<'e> Reader<'e> {
    pub(super) fn new(entries: &'e [ConfigEntry], source: Source<'e>, kind: &'static str) -> Self {
        Self { entries, source, kind, mistakes: Vec::new() }
    }

    /// Adds every dimension of these keys that the file has and the user did not give.
    pub(super) fn dims(&mut self, keys: &[(String, Words)], kind: &'static ModelKind, dims: &mut Dims) {
        for (name, keys) in keys {
            let Some(dim) = named(kind.dims, name).filter(|dim| !dims.has(dim.name)) else { continue };
            let Some(entry) = self.find(keys, name) else { continue };
            let [added, divisor] = keys.iter().find_map(|key| adjustment(key, entry.name())).unwrap_or([0, 1]);
            match value(dim, entry) {
                Ok(Some(DimValue::Count(count))) => {
                    let count = DimValue::Count((count / divisor).saturating_add(added));
                    dims.add(dim.name, count, Origin::Key(entry.shown.clone()));
                }
                Ok(Some(value)) => dims.add(dim.name, value, Origin::Key(entry.shown.clone())),
                Ok(None) => {}
                Err(message) => self.mistake(entry, format!("{message}; give it with --dim {name}=…")),
            }
        }
    }

    /// Adds the dimensions of a family that follow from values of other keys.
    pub(super) fn given(&self, family: &Family, kind: &'static ModelKind, dims: &mut Dims) {
        for (conditions, values) in &family.given {
            let all: Option<Vec<_>> = conditions.iter().map(|one| meeting(self.entries, one)).collect();
            let Some(all) = all else { continue };
            let keys = all.iter().map(|entry| entry.shown.as_str()).collect::<Vec<_>>().join(", ");
            for (name, value) in values {
                dims.add_named(kind, name, value, Origin::Key(keys.clone()));
            }
        }
    }

    /// Adds the width of feed-forward layers that a family has without a key.
    pub(super) fn width(&self, family: &Family, dims: &mut Dims) {
        let Some(DimValue::Count(width)) = dims.get("d_model").cloned() else { return };
        let is_met = |conditions: &Words| conditions.iter().all(|one| meeting(self.entries, one).is_some());
        if let Some((_, [times, by, multiple])) = family.widths.iter().find(|(conditions, _)| is_met(conditions)) {
            let width = width.saturating_mul(*times) / (by * multiple) * multiple;
            dims.add("d_ff", DimValue::Count(width), Origin::Assumed("the default".to_owned()));
        }
    }

    /// Pads a vocabulary to the multiple that a key gives, or that the family has.
    pub(super) fn pad(&self, family: Option<&Family>, dims: &mut Dims) {
        let own = self.entries.iter().find(|entry| Names::get().keys.multiple.has(entry.name()));
        let multiple = own.map_or(family.and_then(|family| family.multiple), |entry| entry.value.count());
        let is_vocab = |name: &str, key: &str| name == "vocab" && !key.contains("padded");
        for (name, value, origin) in &mut dims.0 {
            if let (DimValue::Count(vocab), Origin::Key(key), Some(multiple)) = (value, origin, multiple)
                && is_vocab(name, key)
                && let Some(padded) = vocab.checked_next_multiple_of(multiple)
            {
                *vocab = padded;
            }
        }
    }

    /// Adds the rows of a table of positions, which the training can enlarge, and the length of sequences where the training leaves it
    /// to the model. Trainers do not shorten a length that they are given.
    pub(super) fn add_length(&mut self, names: &KindNames, kind: &'static ModelKind, enlarges: bool, dims: &mut Dims) {
        let Some(keys) = names.keys_of("{max}") else { return };
        let Some(entry) = self.find(keys, "{max}") else { return };
        let Some(longest) = entry.value.count() else { return };
        let (origin, seq) = (Origin::Key(entry.shown.clone()), dims.get("seq").cloned());
        if let Some(rows) = named(kind.dims, "max_seq") {
            let least = if let (Some(DimValue::Count(seq)), true) = (&seq, enlarges) { *seq } else { 0 };
            dims.add(rows.name, DimValue::Count(longest.max(least)), origin.clone());
        }
        // Models of long texts are rarely trained on texts that long.
        if seq.is_none() && longest <= MAX_ASSUMED_SEQ {
            dims.add("seq", DimValue::Count(longest), origin);
        }
    }

    /// The entry with one of the keys: in a section of the model first, then by the order of the keys.
    fn find(&mut self, keys: &Words, dim: &str) -> Option<&'e ConfigEntry> {
        let (all, kind) = (self.entries, self.kind);
        let names: Vec<_> = keys.iter().map(|key| key.split(['+', '/']).next().unwrap_or(key)).collect();
        let names_of = Names::get();
        let is_section = |table: &str| {
            names_of.keys.sections.has(table) || names_of.kinds.iter().any(|names| names.words.has(table))
        };
        let rank = |entry: &ConfigEntry| {
            let own = entry.name();
            // `sequence: { min: 7, max: 30 }`
            let name = if own == "max" { entry.tables().next().unwrap_or(own) } else { own };
            let position = names.iter().position(|known| *known == name)?;
            let is_value = !matches!(entry.value, Value::Table(_) | Value::Null);
            // `tokenizer: {model_max_length: 1024}`
            let is_of_data = dim == "{max}" && is_beside_training(entry);
            let is_own = !is_of_data && !entry.tables().any(|table| is_of_other_kind(table, kind));
            (is_value && is_own).then_some((!entry.tables().any(is_section), position))
        };
        let ranked: Vec<_> = all.iter().filter_map(|entry| Some((rank(entry)?, entry))).collect();
        let best = ranked.iter().map(|(rank, _)| *rank).min()?;
        let mut of_rank = ranked.iter().filter(|(rank, _)| *rank == best).map(|(_, entry)| *entry);
        let first = of_rank.next()?;
        // `n_layer` beside `num_layers`.
        let is_rival = |other: &&ConfigEntry| {
            // `model: {n_layer: 12, encoder: {layers: 4}}`
            let is_within = dim == "layers"
                && first.parent().is_some_and(|table| !table.is_empty() && other.path.starts_with(table));
            let is_beside = is_within || other.parent() == first.parent();
            // `hidden_dim` can be the width of feed-forward layers.
            let is_of_kind = dim == "d_model" && other.name() != "hidden_dim" || dim == "image" && kind == "vit";
            let is_dim = ["layers", "heads"].contains(&dim) || is_of_kind;
            let is_stack = dim == "layers" && other.path != first.path && other.name().contains("encoder");
            is_dim && is_beside && (other.value != first.value || is_stack)
        };
        let rival = ranked.iter().map(|(_, entry)| *entry).find(is_rival);
        // Two stacks of one depth are no single stack.
        let is_other = |other: &&ConfigEntry| other.value != first.value || dim == "layers" && other.path != first.path;
        if let Some(other) = of_rank.find(is_other).or(rival) {
            let (name, one, two) = (dim.trim_matches(['{', '}']), &first.shown, &other.shown);
            let what = if one == two { "is given twice and looks" } else { "both look" };
            let keys = if one == two { format!("`{one}`") } else { format!("`{one}` and `{two}`") };
            self.mistake(other, format!("{keys} {what} like the model's {name}; choose with --dim"));
        }
        let Some(names) = first.value.reference() else { return Some(first) };
        let is_value = |entry: &&ConfigEntry| entry.value.is_scalar() && entry.value.reference().is_none();
        let mut values = all.iter().filter(is_value);
        let target = values.find(|entry| ends(&entry.path, names.trim_start_matches('.')));
        if target.is_none() {
            self.mistake(first, format!("`{}` refers to another value: give it with --dim {dim}=…", first.shown));
        }
        target
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
}

/// What is added to the value of a key of this name, and what divides it before: `max_position_embeddings+2`, `hidden/2`.
fn adjustment(key: &str, name: &str) -> Option<[u64; 2]> {
    let rest = key.strip_prefix(name)?;
    let number = |sign: char| rest.strip_prefix(sign)?.parse().ok();
    Some([number('+').unwrap_or(0), number('/').unwrap_or(1)])
        .filter(|_| rest.is_empty() || rest.starts_with(['+', '/']))
}

/// The entry of a condition `key=value`, with bars between several keys or values; all texts of a list have to fit.
pub(super) fn meeting<'e>(entries: &'e [ConfigEntry], condition: &str) -> Option<&'e ConfigEntry> {
    let fits = |value: &Value, words: &str| {
        let texts = value.texts();
        let is_one = |text: &String| words.split('|').any(|word| is_word(word, &text.to_ascii_lowercase()));
        !texts.is_empty() && texts.iter().all(is_one)
    };
    let (key, words) = condition.split_once('=')?;
    entries.iter().find(|entry| key.split('|').any(|key| ends(&entry.path, key)) && fits(&entry.value, words))
}

/// Returns true if a table is named after another kind of model only.
fn is_of_other_kind(table: &str, kind: &str) -> bool {
    let mut named = Names::get().kinds.iter().filter(|names| names.words.has(table)).peekable();
    named.peek().is_some() && named.all(|names| names.name != kind)
}

/// The value of a dimension; `None` where the file leaves it open.
pub(super) fn value(dim: &Dim, entry: &ConfigEntry) -> Result<Option<DimValue>, String> {
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

fn side(name: &str, sides: Option<&[u64]>) -> Result<DimValue, String> {
    match sides {
        Some([side]) => Ok(DimValue::Count(*side)),
        Some([height, width]) if height == width => Ok(DimValue::Count(*height)),
        Some([height, width]) => Err(format!(
            "`{name}`: the planner needs square images; give the side of a square with as many pixels: --dim image={}",
            ((height * width) as f64).sqrt().round()
        )),
        Some([_, _, _]) => Err(format!(
            "`{name}`: models over volumes cannot be described by dimensions; {} with --workload NAME, or give their costs: \
             --model declared --dim …",
            ModelKind::MEASURE
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
    Names::get().kinds.iter().filter_map(reading).collect()
}

/// Adds the dimensions that the kind combines from several keys.
pub(super) fn compose(names: &KindNames, reader: &mut Reader<'_>, dims: &mut Dims) {
    let mut counts = |part: &str| reader.counts(names, part);
    match names.name.as_str() {
        "transformer" if !dims.has("d_ff") => {
            // `hidden_dim` is the width of feed-forward layers only beside that of the residual stream.
            let width = counts("{d_ff}").filter(|(_, key)| dims.origin("d_model") != Some(&Origin::Key(key.clone())));
            if let Some((width, key)) = width {
                // `projector: {hidden_dim: 8192}`
                let table = |key: &str| key.rsplit('.').nth(1).map(str::to_owned);
                let is_other = table(&key).is_some_and(|table| !Names::get().feed_forward.has(&table));
                if matches!(dims.origin("d_model"), Some(Origin::Key(own)) if is_other && table(own) != table(&key))
                    && let Some(entry) = reader.entries.iter().find(|it| it.shown == key)
                {
                    reader.mistake(entry, format!("`{key}` is not beside the width of the model: give --dim d_ff=…"));
                }
                dims.add("d_ff", DimValue::Count(width[0]), Origin::Key(key));
            }
        }
        "convnet" if !dims.has("stages") => {
            let (Some(widths), Some(blocks)) = (counts("{widths}"), counts("{blocks}")) else { return };
            let mut named = reader.entries.iter().flat_map(names_of_models);
            let is_residual = named.any(|(name, _)| contains_word(&name, "resnet"));
            // The depth of ResNets counts layers, no blocks.
            let is_depth = blocks.0.len() == 1 && ["depth", "num_layers"].iter().any(|name| blocks.1.ends_with(name));
            let stages = stages(&widths.0, &blocks.0, is_residual).filter(|_| !(is_residual && is_depth));
            if let Some(stages) = stages {
                dims.add("stages", DimValue::Stages(stages), keys(&[&widths.1, &blocks.1]));
                if is_residual || blocks.1.to_lowercase().contains("res") {
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

/// `[channels, blocks]` of each stage: of lists of one length, or with one number for all stages. With `doubles` one width doubles.
fn stages(widths: &[u64], blocks: &[u64], doubles: bool) -> Option<Vec<[u64; 2]>> {
    let count = widths.len().max(blocks.len());
    let doubles = doubles && widths.len() == 1;
    let fits = (count <= 32 || !doubles) && [widths, blocks].iter().all(|list| [1, count].contains(&list.len()));
    let factor = |stage: usize| if doubles { 1 << stage } else { 1 };
    let width = |stage: usize| widths[stage % widths.len()].saturating_mul(factor(stage));
    let stage = |stage: usize| [width(stage), blocks[stage % blocks.len()]];
    fits.then(|| (0..count).map(stage).collect())
}
