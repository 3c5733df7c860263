//! Identifies the kind of model by the names in a config.

use std::collections::HashSet;

use crate::dialect::ends;
use crate::document::{ConfigEntry, Value};
use crate::error::OptimizeError;
use crate::names::{Family, KindNames, Layout, Names, Words, contains_word, normal};
use crate::vocabulary::{KnownKeys, fits, has_no_value, is_beside_training, words};

use super::class::published_type;
use super::read::meeting;

/// Fewest dimensions that identify a kind of model without its name: chosen, not measured.
const MIN_DIMS: usize = 2;

/// A kind of model with the reason for it.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub names: &'static KindNames,
    /// The option or key that identifies the kind.
    pub by: String,
    /// The model's family.
    pub layout: Layout,
}

/// The only kind that the file can mean, or all candidates.
pub(super) fn identify(entries: &[ConfigEntry]) -> Result<Evidence, Vec<Evidence>> {
    let named = entries.iter().flat_map(names_of_models).filter_map(|(text, by)| {
        let kinds = Names::get().kinds.iter().filter_map(|names| {
            let words = names.words.iter().filter(|word| contains_word(&text, word));
            Some((names, words.map(str::len).max()?))
        });
        let (names, _) = kinds.max_by_key(|(_, length)| *length)?;
        Some(Evidence { names, by, layout: Names::get().layout(&text) })
    });
    let sections = || Names::get().kinds.iter().filter_map(|names| of_section(names, entries));
    let by_keys = || Names::get().kinds.iter().filter_map(|names| of_keys(names, entries));
    let mut found = distinct(named);
    if found.is_empty() {
        found = distinct(sections());
    }
    if found.is_empty() {
        let all: Vec<_> = by_keys().collect();
        let most = all.iter().map(|(_, dims)| *dims).max();
        found = distinct(all.into_iter().filter(|(_, dims)| Some(*dims) == most).map(|(evidence, _)| evidence));
    }
    if found.len() == 1 { Ok(found.remove(0)) } else { Err(found) }
}

/// Keys by which models are read or refused, each with the condition for numbers.
pub(crate) struct KeysOfModels(pub Vec<(&'static str, Option<&'static str>)>);

impl KeysOfModels {
    /// The keys for models of the file's kind, and of all kinds where that is not clear.
    pub(crate) fn new(entries: &[ConfigEntry]) -> Self {
        let (names, model) = (Names::get(), identify(entries).ok());
        let keys = &names.keys;
        let kinds = names.kinds.iter().filter(|kind| model.as_ref().is_none_or(|it| it.names.name == kind.name));
        let own = model.as_ref().and_then(|model| model.layout);
        let layouts = kinds.clone().filter_map(|kind| names.layout(&kind.name)).chain(own).map(|(family, _)| family);
        let of_layouts =
            layouts.clone().flat_map(|family| family.keys.iter().map(|(_, keys)| keys).chain([&family.unmodelled]));
        let dims = kinds.flat_map(|kind| &kind.dims).map(|(_, keys)| keys).chain(of_layouts);
        let dims = dims.chain([&names.unmodelled, &names.of_pytorch, &keys.of_llama, &keys.multiple]);
        let of_layers = [&names.norms, &names.losses, &names.layers, &names.feed_forward];
        let words = of_layers.into_iter().chain([&keys.naming, &keys.loading, &keys.sections]).flat_map(Words::iter);
        let given =
            layouts.clone().flat_map(|family| &family.given).flat_map(|(all, _)| all.iter()).map(|it| (it, Some(it)));
        let same = layouts.flat_map(|family| &family.same).flat_map(|(one, other)| [one.as_str(), other]);
        let dims = dims.flat_map(Words::iter).chain(same).map(|word| (word, None));
        let all = dims.chain(words.map(|word| (word, Some("")))).chain(given);
        Self(all.map(|(word, condition)| (word.split(['=', '+', '/']).next().unwrap_or(word), condition)).collect())
    }

    /// Returns true for a key that is read, with this value or as a table.
    pub(crate) fn has(&self, path: &[String], value: Option<&ConfigEntry>) -> bool {
        let number = value.filter(|entry| matches!(entry.value, Value::Number(_)));
        let is_met = |condition: &str| number.is_none_or(|it| meeting(std::slice::from_ref(it), condition).is_some());
        let is_it = |names: &str| names.split('|').any(|names| ends(path, names));
        self.0.iter().any(|(names, condition)| is_it(names) && condition.is_none_or(is_met))
    }
}

/// The first evidence of each kind.
fn distinct(all: impl Iterator<Item = Evidence>) -> Vec<Evidence> {
    let mut distinct: Vec<Evidence> = Vec::new();
    for one in all {
        if distinct.iter().all(|other| other.names.name != one.names.name) {
            distinct.push(one);
        }
    }
    distinct
}

/// Refuses a model of a family or with keys that no kind describes: in their place would be a smaller one.
pub(super) fn check_modelled(entries: &[ConfigEntry], evidence: &Evidence) -> Result<(), OptimizeError> {
    let names = Names::get();
    let family = evidence.layout.map(|(family, _)| family);
    let own = family.map(|family| &family.unmodelled);
    let given: Vec<_> = family.iter().flat_map(|family| &family.given).flat_map(|(all, _)| all.iter()).collect();
    let has_meaning = |entry: &ConfigEntry| given.iter().any(|one| meeting(std::slice::from_ref(entry), one).is_some());
    let of_layout = evidence.layout.iter().flat_map(|(layout, _)| &layout.keys);
    let of_dims: Vec<_> = evidence.names.dims.iter().chain(of_layout).map(|(_, keys)| keys).collect();
    let is_given = |entry: &&ConfigEntry, usual: &str| match &entry.value {
        Value::Null | Value::Flag(false) => false,
        Value::List(nodes) => !nodes.is_empty(),
        value => value.count().is_none_or(|count| count > 0 && Some(count) != usual.parse().ok()),
    };
    // `num_codebooks=1`
    let split = |word: &'static str| word.split_once('=').unwrap_or((word, "0"));
    let experts = evidence.names.keys_of("experts");
    let is_dense = experts.is_some_and(|names| !entries.iter().any(|entry| names.has(entry.name())));
    let is_large = |value: &Value| match value {
        Value::Flag(is_on) => *is_on,
        Value::Table(entries) => !entries.is_empty(),
        value => value.count().is_some_and(|count| count > 1),
    };
    let unmodelled = entries.iter().find(|entry| {
        let key = entry.name();
        let is_of_experts = is_dense && key.split('_').any(|word| names.mixture.has(word)) && is_large(&entry.value);
        // `mlp: {type: moe}`
        let layer = if key == "type" { entry.tables().next().unwrap_or(key) } else { key };
        let texts = entry.value.texts();
        let is_other_layer =
            |keys: &Words, words: &Words| keys.has(layer) && texts.iter().any(|text| words.has(&text.to_lowercase()));
        let is_of_layer = is_other_layer(&names.layers, &names.unmodelled_layers)
            || is_other_layer(&names.feed_forward, &names.unmodelled_feed_forward);
        let differs = |other: &str| entries.iter().any(|it| it.name() == other && it.value != entry.value);
        let is_other = |family: &Family| family.same.iter().any(|(one, other)| key == one && differs(other));
        if is_of_experts || is_of_layer || family.is_some_and(is_other) {
            return true;
        }
        let general = names.unmodelled.iter().map(split).find(|(name, _)| *name == key);
        let general = general.filter(|_| !of_dims.iter().any(|keys| keys.has(key)));
        let own = own.filter(|own| own.has(key)).map(|_| (key, "0"));
        let is_of_model = |(_, usual): (&str, &str)| is_given(entry, usual) && !has_meaning(entry);
        own.or(general).is_some_and(is_of_model) && !is_beside_training(entry)
    });
    if let Some(entry) = unmodelled {
        return Err(OptimizeError::NotModelled { what: what(entry) });
    }
    if let Some(table) = of_other_module(entries, evidence) {
        return Err(OptimizeError::NotModelled { what: what(table) });
    }
    let is_unknown = |text: &str| {
        let has = |words: &Words| words.iter().any(|word| contains_word(text, word));
        has(&names.unmodelled_words) && !names.kinds.iter().any(|kind| has(&kind.words))
    };
    if let Some((_, what)) = entries.iter().flat_map(names_of_models).find(|(text, _)| is_unknown(text)) {
        return Err(OptimizeError::NotModelled { what });
    }
    let Some(model_type) = published_type(entries) else { return Ok(()) };
    let is_beside = |entry: &&ConfigEntry| model_type.parent() == entry.parent();
    let of = |name: &str| entries.iter().filter(is_beside).find(|entry| entry.name() == name);
    if let Some(packed) = of("quantization_config").filter(|entry| entry.value != Value::Null) {
        return Err(OptimizeError::NotModelled { what: what(packed) });
    }
    let family = model_type.value.bare().unwrap_or_default().to_lowercase().replace('-', "_");
    let is_known = names.layout.iter().any(|layout| layout.words.has(&family));
    if is_known { Ok(()) } else { Err(OptimizeError::NotModelled { what: what(model_type) }) }
}

/// Refuses an unknown key in the hand-written file of a model.
pub(super) fn check_known(entries: &[ConfigEntry]) -> Result<(), OptimizeError> {
    let is_published = entries.iter().any(|entry| entry.name() == "model_type");
    let known = KnownKeys::new(entries);
    let unknown = entries.iter().find(|entry| !is_published && known.is_of_model(entry) && !known.has(entry));
    unknown.map_or(Ok(()), |entry| Err(OptimizeError::NotModelled { what: what(entry) }))
}

/// The key with its value, for messages.
fn what(entry: &ConfigEntry) -> String {
    let value = entry.value.bare().map_or_else(String::new, |value| format!(" = {value}"));
    format!("`{}{value}`", entry.shown)
}

/// Effect of the samples of a micro-batch beside the rounding, by the names of norm, loss and model.
pub(crate) fn use_of_micro_batch(entries: &[ConfigEntry]) -> Option<&'static str> {
    let names = Names::get();
    let texts = |keys: &'static Words| {
        let is_there = move |entry: &&ConfigEntry| {
            let is_named = keys.has(entry.name()) || keys.iter().any(|word| fits(entry.name(), word));
            is_named || entry.tables().next().is_some_and(|table| keys.has(table))
        };
        // `norm: {Batch: {num_features: 64}}`
        let all = |entry: &ConfigEntry| match &entry.value {
            Value::Table(_) => vec![entry.name().to_owned()],
            value => value.texts(),
        };
        entries.iter().filter(is_there).flat_map(all)
    };
    let has = |text: &str, words: &Words| words.iter().any(|word| contains_word(text, word));
    let beside = |entry: &&ConfigEntry| !is_beside_training(entry);
    // `bn_momentum: 0.1`, and `freeze_bn: false` keeps statistics.
    let has_key = |words: &Words| {
        let is_word = |entry: &&ConfigEntry| {
            words.iter().any(|word| !names.unmodelled_words.has(word) && fits(entry.name(), word))
        };
        let stays = |entry: &ConfigEntry| ["freeze", "sync"].iter().any(|word| fits(entry.name(), word));
        let is_on = |entry: &ConfigEntry| stays(entry) || !has_no_value(&entry.value, false);
        entries.iter().filter(beside).filter(is_word).any(is_on)
    };
    let is_of_batches = |text: String| has(&format!("{text}_norm"), &names.of_batches);
    if has_key(&names.of_batches) || texts(&names.norms).any(is_of_batches) {
        return Some("the model computes statistics over");
    }
    let models = entries.iter().flat_map(names_of_models).map(|(text, _)| text);
    let methods = texts(words("methods", "keys")).filter(|text| !text.contains("sum"));
    let compares = models.chain(texts(&names.losses)).chain(methods).any(|text| has(&text, &names.comparing));
    // `contrastive_weight: 0.1`
    (compares || has_key(&names.comparing)).then_some("the loss combines the samples of")
}

/// Texts of an entry that name a model, each with the entry for messages.
pub(super) fn names_of_models(entry: &ConfigEntry) -> Vec<(String, String)> {
    let keys = &Names::get().keys;
    let is_within = entry.tables().any(|table| keys.sections.has(table));
    let names_a_model = keys.naming.has(entry.name()) || is_within && keys.naming_within.has(entry.name());
    let first = match &entry.value {
        Value::List(nodes) => nodes.first().map(|node| &node.value),
        other => Some(other),
    };
    let text = match (names_a_model && !is_beside_training(entry), first) {
        (true, Some(Value::Text(text))) => text,
        // `is_llama_config: true`
        (true, Some(Value::Flag(true))) => &entry.key,
        _ => return Vec::new(),
    };
    // The class of a path such as `torchvision.models.resnet18`.
    let last = text.rsplit('/').next().unwrap_or(text);
    let class = last.rsplit_once('.').map(|(_, class)| class).filter(|class| class.starts_with(char::is_alphabetic));
    let class = class.unwrap_or(last);
    vec![(normal(class), format!("`{} = {text}`", entry.shown))]
}

/// Tables with one of the dimensions.
pub(crate) fn sections<'e>(entries: &'e [ConfigEntry], names: &KindNames, dims: &[&str]) -> HashSet<&'e [String]> {
    let has_size =
        |entry: &&ConfigEntry| dims.iter().filter_map(|dim| names.keys_of(dim)).any(|keys| keys.has(entry.name()));
    entries.iter().filter(has_size).filter_map(ConfigEntry::parent).collect()
}

/// A table of another module with a width or depth, beside the one that is named after the kind.
fn of_other_module<'e>(entries: &'e [ConfigEntry], evidence: &Evidence) -> Option<&'e ConfigEntry> {
    let [deep, wide] = ["layers", "d_model"].map(|dim| sections(entries, evidence.names, &[dim]));
    let by = entries.iter().find(|it| evidence.by == format!("`{}`", it.shown))?;
    let is_section = deep.contains(&*by.path) || wide.contains(&*by.path);
    let section = if is_section { &by.path } else { by.parent()? };
    // Beside a key of the model the table has both.
    let is_other = |it: &&ConfigEntry| match [&deep, &wide].map(|tables| tables.contains(&*it.path)) {
        [true, true] => true,
        [is_deep, is_wide] => is_section && (is_deep || is_wide),
    };
    let is_apart = |table: &&ConfigEntry| !table.path.starts_with(section) && !section.starts_with(&table.path);
    entries.iter().filter(is_apart).find(|it| is_other(it) && !is_beside_training(it))
}

/// Evidence of a table that is named after the kind, with dimensions of the kind in it.
fn of_section(names: &'static KindNames, entries: &[ConfigEntry]) -> Option<Evidence> {
    let tables = entries.iter().filter(|entry| matches!(entry.value, Value::Table(_)));
    let mut named = tables.filter(|entry| names.words.iter().any(|word| contains_word(entry.name(), word)));
    named.find_map(|table| {
        let inner =
            entries.iter().filter(|entry| entry.path.len() > table.path.len() && entry.path.starts_with(&table.path));
        let layout = Names::get().layout(table.name());
        (dims_of(names, inner) >= MIN_DIMS).then(|| Evidence { names, by: format!("`{}`", table.shown), layout })
    })
}

/// Evidence of a key that only models of the kind have, beside other dimensions; with their number.
fn of_keys(names: &'static KindNames, entries: &[ConfigEntry]) -> Option<(Evidence, usize)> {
    let entry = entries.iter().find(|entry| names.distinctive.has(entry.name()))?;
    let dims = dims_of(names, entries.iter());
    let of_llama = entries.iter().any(|entry| Names::get().keys.of_llama.has(entry.name()));
    let layout = Names::get().layout("llama").filter(|_| of_llama && names.words.has("llama"));
    (dims >= MIN_DIMS).then(|| (Evidence { names, by: format!("`{}`", entry.shown), layout }, dims))
}

/// Number of the kind's dimensions that entries have.
fn dims_of<'e>(names: &KindNames, entries: impl Iterator<Item = &'e ConfigEntry>) -> usize {
    let mut found: Vec<usize> = Vec::new();
    for entry in entries {
        found.extend(names.dims.iter().position(|(_, keys)| keys.has(entry.name())));
    }
    found.sort_unstable();
    found.dedup();
    found.len()
}
