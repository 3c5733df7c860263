//! Identifies the kind of model by the names in a config.

use crate::dialect::{ends, known};
use crate::document::{ConfigEntry, Value};
use crate::error::OptimizeError;
use crate::names::{Family, KindNames, Names, Words, contains_word, normal};
use crate::vocabulary::{fits, has_no_value, is_beside_training};

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
    pub layout: Option<(&'static Family, &'static str)>,
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
    // `model: {n_layer: 12, kv_groups: 4}`
    let sizes = ["layers", "d_model"].map(|dim| evidence.names.keys_of(dim));
    let has_size = |entry: &ConfigEntry| sizes.iter().flatten().any(|keys| keys.has(entry.name()));
    let sections: Vec<_> = entries.iter().filter(|entry| has_size(entry)).filter_map(ConfigEntry::parent).collect();
    let referred: Vec<_> = entries.iter().flat_map(|entry| entry.value.references()).collect();
    let is_other_number = |entry: &ConfigEntry, family: &Family| {
        let (key, is_closed) = (entry.name(), family.closed.iter().next().is_some());
        is_closed
            && entry.value.count().is_some_and(|count| count > 1)
            && entry.parent().is_some_and(|table| !table.is_empty() && sections.contains(&table))
            && !of_dims.iter().any(|keys| keys.has(key))
            && known(&entry.path[entry.path.len() - 1..]).is_none()
            && !family.closed.iter().any(|word| fits(key, word))
            && !names.unmodelled.iter().any(|word| split(word).0 == key)
            && !referred.iter().any(|names| ends(&entry.path, names))
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
        let is_other = |family: &Family| {
            family.same.iter().any(|(one, other)| key == one && differs(other)) || is_other_number(entry, family)
        };
        if is_of_experts || is_of_layer || family.is_some_and(is_other) {
            return true;
        }
        let general = names.unmodelled.iter().map(split).find(|(name, _)| *name == key);
        let general = general.filter(|_| !of_dims.iter().any(|keys| keys.has(key)));
        let own = own.filter(|own| own.has(key)).map(|_| (key, "0"));
        let is_of_model = |(_, usual): (&str, &str)| is_given(entry, usual) && !has_meaning(entry);
        own.or(general).is_some_and(is_of_model) && !is_beside_training(entry)
    });
    let what = |entry: &ConfigEntry| match entry.value.bare() {
        Some(value) => format!("`{} = {value}`", entry.shown),
        None => format!("`{}`", entry.shown),
    };
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
    let Some(model_type) = published_type(entries).filter(|entry| !is_beside_training(entry)) else { return Ok(()) };
    let is_beside = |entry: &&ConfigEntry| model_type.parent() == entry.parent();
    let of = |name: &str| entries.iter().filter(is_beside).find(|entry| entry.name() == name);
    if let Some(packed) = of("quantization_config").filter(|entry| entry.value != Value::Null) {
        return Err(OptimizeError::NotModelled { what: what(packed) });
    }
    let family = model_type.value.bare().unwrap_or_default().to_lowercase().replace('-', "_");
    let is_known = names.layout.iter().any(|layout| layout.words.has(&family));
    if is_known { Ok(()) } else { Err(OptimizeError::NotModelled { what: what(model_type) }) }
}

/// Effect of the samples of a micro-batch beside the rounding, by the names of norm, loss and model.
pub(crate) fn use_of_micro_batch(entries: &[ConfigEntry]) -> Option<&'static str> {
    let names = Names::get();
    let texts = |keys: &'static Words| {
        let is_there = move |entry: &&ConfigEntry| {
            let is_within = entry.tables().any(|table| keys.has(table));
            keys.has(entry.name()) || is_within && names.keys.naming_within.has(entry.name())
        };
        entries.iter().filter(is_there).filter_map(|entry| entry.value.bare())
    };
    let has = |text: &str, words: &Words| words.iter().any(|word| contains_word(text, word));
    let models = entries.iter().flat_map(names_of_models).map(|(text, _)| text);
    let is_on = |entry: &ConfigEntry| names.norm_switches.has(entry.name()) && entry.value == Value::Flag(true);
    if entries.iter().any(is_on) || texts(&names.norms).any(|text| has(&text, &names.of_batches)) {
        return Some("the model computes statistics over");
    }
    let compares = models.chain(texts(&names.losses)).any(|text| has(&text, &names.comparing));
    // `contrastive_weight: 0.1`
    let turns_on = |entry: &ConfigEntry| {
        let is_word = names.comparing_keys.iter().any(|word| fits(entry.name(), word));
        is_word && !has_no_value(&entry.value, false) && !is_beside_training(entry)
    };
    (compares || entries.iter().any(turns_on)).then_some("the loss compares the samples of")
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

/// A table of another module beside the one that is named after the kind: with dimensions of the kind, or of Burn's modules.
fn of_other_module<'e>(entries: &'e [ConfigEntry], evidence: &Evidence) -> Option<&'e ConfigEntry> {
    let is_table = |entry: &&ConfigEntry| matches!(entry.value, Value::Table(_));
    let section = entries.iter().filter(is_table).find(|table| evidence.by == format!("`{}`", table.shown))?;
    let is_apart =
        |table: &&ConfigEntry| !table.path.starts_with(&section.path) && !section.path.starts_with(&table.path);
    let parts = |table: &ConfigEntry| {
        let is_part =
            |entry: &&ConfigEntry| entry.path.len() == table.path.len() + 1 && entry.path.starts_with(&table.path);
        entries.iter().filter(is_part).collect::<Vec<_>>()
    };
    // The width or the depth again: a table of the vocabulary belongs to the model.
    let sizes = |table: &ConfigEntry| {
        let dims = evidence.names.dims.iter().filter(|(dim, _)| ["layers", "d_model"].contains(&dim.as_str()));
        dims.filter(|(_, keys)| parts(table).iter().any(|entry| keys.has(entry.name()))).count()
    };
    let has_module = |table: &&ConfigEntry| {
        let parts = parts(table);
        let has = |name: &&str| parts.iter().any(|entry| entry.name() == *name);
        let of_burn = [["d_input", "d_output"], ["channels", "kernel_size"]];
        sizes(table) > 0 && sizes(section) > 0 || of_burn.iter().any(|names| names.iter().all(has))
    };
    let mut others = entries.iter().filter(is_table).filter(is_apart).filter(|table| !is_beside_training(table));
    others.find(has_module)
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
