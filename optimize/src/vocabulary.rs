//! The closed vocabulary: keys that a framework's release does not read (`schemas/`), and keys of hand-written configs that touch
//! what is planned (`vocabulary.toml`).

use std::collections::{BTreeMap, HashSet};
use std::sync::LazyLock;

use gpu_tuned_core::suggest;
use serde::Deserialize;

use crate::dialect::{Dialect, Key, Role, ends, known as key_of_plain};
use crate::document::{ConfigEntry, Entry, Value};
use crate::error::MOST_MISTAKES;
use crate::matched::read_by;
use crate::model::{KeysOfModels, sections};
use crate::names::{Names, Words, normal};
use crate::schema::{Place, SchemaKeys};

#[derive(Deserialize)]
struct Vocabulary {
    #[serde(rename = "topic")]
    topics: Vec<Topic>,
    #[serde(rename = "switch")]
    switches: Vec<Switch>,
    /// Words by the names of their table and list.
    #[serde(flatten)]
    words: BTreeMap<String, BTreeMap<String, Words>>,
}

/// Something that changes the plan.
#[derive(Deserialize)]
struct Topic {
    name: String,
    words: Words,
    #[serde(default)]
    values: Words,
}

#[derive(Deserialize)]
struct Switch {
    names: Words,
    of: Words,
    off: Words,
}

static VOCABULARY: LazyLock<Vocabulary> =
    LazyLock::new(|| toml::from_str(include_str!("vocabulary.toml")).expect("BUG: the vocabulary is valid"));

pub(crate) fn words(table: &str, list: &str) -> &'static Words {
    &VOCABULARY.words[table][list]
}

/// A key that no table reads and that can change the plan.
pub(crate) struct UnknownKey<'e> {
    pub entry: &'e ConfigEntry,
    pub reason: String,
    /// True if its words touch nothing that is planned.
    pub can_be_left: bool,
}

/// Keys that no table reads and that can change the plan.
pub(crate) fn unknown<'e>(
    dialect: &'static Dialect,
    entries: &'e [ConfigEntry],
    read: &HashSet<*const ConfigEntry>,
) -> Vec<UnknownKey<'e>> {
    let is_read = |entry: &ConfigEntry| read.contains(&core::ptr::from_ref(entry));
    let tables_of = |entry: &'e ConfigEntry| (1..entry.path.len()).map(|end| &entry.path[..end]);
    let covered: HashSet<&[String]> = entries.iter().filter(|entry| is_read(entry)).flat_map(tables_of).collect();
    let keys = dialect.schema.as_ref().map(|schema| SchemaKeys::new(schema, entries));
    let is_planned = |entry: &ConfigEntry| is_read(entry) && is_planned(dialect, entry) || has_experts(entry);
    let on: Vec<_> = entries.iter().filter(|entry| is_planned(entry) && !has_no_value(&entry.value, true)).collect();
    let known = KnownKeys::new(entries);
    let is_rank = |entry: &&ConfigEntry| key_of_plain(&entry.path).is_some_and(|key| key.dim == "lora_rank");
    let has_rank = entries.iter().filter(is_rank).any(|entry| !has_no_value(&entry.value, false));
    // `<<: !include base.yaml`
    let is_merge = |entry: &ConfigEntry| entry.key == "<<" && !matches!(entry.value, Value::Text(_));
    let mut refused: HashSet<&[String]> = HashSet::new();
    let mut found = Vec::new();
    for entry in entries.iter().filter(|entry| !is_merge(entry) && !entry.key.is_empty() && !is_read(entry)) {
        let is_table = matches!(entry.value, Value::Table(_));
        let place = keys.as_ref().map_or(Place::Open, |keys| keys.place(entry));
        let is_covered = is_table && covered.contains(entry.path.as_slice());
        if is_covered && matches!(place, Place::Open | Place::Changes(_))
            || tables_of(entry).any(|table| refused.contains(table))
        {
            continue;
        }
        let touched = || topic(entry).or_else(|| adapts(entry, has_rank)).map(|topic| format!("touches {topic}"));
        let reason = match place {
            Place::Changes(topic) => {
                let text = entry.value.bare().map_or_else(String::new, |text| format!(": `{text}` is not modelled"));
                Some((format!("changes {topic}{text}"), false))
            }
            Place::Unknown(schema) if entry.value != Value::Null => {
                let is_of_others = || key_of_plain(&entry.path).map(|_| "other programs read it".to_owned());
                let touched = touched().or_else(is_of_others);
                let can_be_left = touched.is_none();
                let touched = touched.map_or_else(String::new, |touched| format!(", and {touched}"));
                let near = schema.suggest(entry.name());
                Some((format!("is no key of {}{touched}{near}", schema.release), can_be_left))
            }
            Place::Open if let Some(topic) = touched() => Some((format!("is not known, and {topic}"), false)),
            _ if let Some(other) = switched_off(dialect, entry, &on) => {
                Some((format!("turns off what `{}` sets: delete what is not used", other.shown), false))
            }
            Place::Open if (dialect.schema.is_none() || known.is_of_model(entry)) && !known.has(entry) => {
                let of_models = known.of_models.0.iter().flat_map(|(names, _)| names.split('|'));
                let all = read_by(dialect).flat_map(|key| key.names.iter()).chain(of_models);
                let near = suggest(entry.name(), all.filter(|name| *name != entry.name()));
                Some((format!("is not known{near}"), true))
            }
            _ => None,
        };
        let Some((reason, can_be_left)) = reason else { continue };
        if is_table {
            refused.insert(&entry.path);
        }
        found.push(UnknownKey { entry, reason, can_be_left });
        if found.len() >= MOST_MISTAKES {
            break;
        }
    }
    found
}

/// The keys that hand-written configs can have: those that are read, and harmless ones.
pub(crate) struct KnownKeys<'e> {
    of_models: KeysOfModels,
    /// Tables with the depth or width of a model.
    sections: HashSet<&'e [String]>,
    /// Paths that values refer to.
    referred: Vec<String>,
}

impl<'e> KnownKeys<'e> {
    pub(crate) fn new(entries: &'e [ConfigEntry]) -> Self {
        let kind = Names::get().kind("transformer").expect("BUG: there are transformers");
        Self {
            of_models: KeysOfModels::new(entries),
            sections: sections(entries, kind, &["layers", "d_model"]),
            referred: entries.iter().flat_map(|entry| entry.value.references()).collect(),
        }
    }

    /// Returns true for a key in a table with dimensions of a model.
    pub(crate) fn is_of_model(&self, entry: &ConfigEntry) -> bool {
        entry.parent().is_some_and(|table| self.sections.contains(table))
    }

    pub(crate) fn has(&self, entry: &ConfigEntry) -> bool {
        !can_be_a_dimension(entry)
            || entry.key == "<<"
            || self.referred.iter().any(|names| ends(&entry.path, names))
            || is_beside_training(entry)
            || entry.tables().any(|table| has_word(words("tables", "beside"), table))
            || self.has_name(&entry.path, Some(entry))
    }

    fn has_name(&self, path: &[String], value: Option<&ConfigEntry>) -> bool {
        let Some((name, tables)) = path.split_last() else { return true };
        let lists = || [("beside", "words"), ("harmless", "words"), ("harmless", "places")];
        if words("beside", "of_tables").has(name) {
            return self.has_name(tables, None);
        }
        let is_listed = || [("beside", "names"), ("harmless", "keys"), ("methods", "keys")];
        self.of_models.has(path, value)
            || key_of_plain(path).is_some()
            || is_listed().iter().any(|(table, list)| words(table, list).has(name))
            || lists().iter().any(|(table, list)| has_word(words(table, list), name))
            || VOCABULARY.topics.iter().any(|topic| has_word(&topic.words, name))
            || VOCABULARY.switches.iter().any(|switch| switch.names.has(name))
            || value.is_none() && has_word(&Names::get().mixture, name)
            || has_word(&Names::get().of_batches, name)
            || has_word(&Names::get().comparing, name)
    }
}

/// Returns true for a count above 1, a list and a switch that is on. The report lists other values without effect.
fn can_be_a_dimension(entry: &ConfigEntry) -> bool {
    match &entry.value {
        Value::Number(_) => entry.value.count().is_some_and(|count| count > 1),
        Value::Flag(is_on) => *is_on,
        Value::List(_) => !Names::get().is_of_evaluation(entry.name()),
        Value::Null | Value::Text(_) | Value::Table(_) => false,
    }
}

fn has_word(words: &Words, name: &str) -> bool {
    words.iter().any(|word| fits(name, word))
}

/// A key that is read, in a section that another key turns off: `lora.rank` beside `lora.enabled: false` or `enable_lora: false`.
fn switched_off<'e>(dialect: &'static Dialect, entry: &ConfigEntry, on: &[&'e ConfigEntry]) -> Option<&'e ConfigEntry> {
    let value = entry.value.bare().filter(|_| !is_beside_training(entry))?.to_ascii_lowercase();
    let (name, tables) = entry.path.split_last()?;
    let mut others = on.iter().filter(|other| !core::ptr::eq(**other, entry));
    if value == "false" && ["enabled", "enable", "use", "active"].contains(&name.as_str()) && !tables.is_empty() {
        return others.find(|other| other.path.starts_with(tables)).copied();
    }
    let own = ["use_", "enable_"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let own = own.strip_suffix("_enabled").unwrap_or(own);
    let is_switch = |switch: &&Switch| dialect.is_plain() && switch.names.has(own) && switch.off.has(&value);
    let switch = VOCABULARY.switches.iter().find(is_switch)?;
    others.find(|other| switch.of.iter().any(|word| other.path.iter().any(|name| fits(name, word)))).copied()
}

/// Returns true for the number of a model's experts.
fn has_experts(entry: &ConfigEntry) -> bool {
    let keys = Names::get().kind("transformer").and_then(|kind| kind.keys_of("experts"));
    keys.is_some_and(|keys| keys.has(entry.name()))
}

/// Returns true for a key that the plan depends on.
fn is_planned(dialect: &'static Dialect, entry: &ConfigEntry) -> bool {
    let has_name = |key: &&Key| key.names.iter().any(|names| ends(&entry.path, names));
    read_by(dialect).filter(has_name).any(is_of_plan)
}

fn is_of_plan(key: &Key) -> bool {
    let beside = [Role::Workers, Role::Prefetch, Role::EvalBatch, Role::ModelFile, Role::Samples, Role::MicroBatches];
    !beside.contains(&key.role)
}

/// Names of methods of training.
fn methods(entry: &ConfigEntry) -> impl Iterator<Item = String> {
    let is_method = words("methods", "keys").has(entry.name()) && !is_beside_training(entry);
    let texts = if is_method { entry.value.texts() } else { Vec::new() };
    texts.into_iter().map(|text| text.to_ascii_lowercase())
}

/// What a method trains in place of all weights, such as `method: freeze`, unless the file has the rank of its adapters.
fn adapts(entry: &ConfigEntry, has_rank: bool) -> Option<&'static str> {
    let is_it = |topic: &&Topic| ["adapters or frozen weights", "quantisation"].contains(&topic.name.as_str());
    let of = |text: String| VOCABULARY.topics.iter().filter(is_it).find(|topic| has_word(&topic.words, &text));
    let other = methods(entry).filter(|text| !(has_rank && text == "lora"));
    other.filter_map(of).map(|topic| topic.name.as_str()).next()
}

/// What the key touches; `None` for a harmless key, or one that is off.
fn topic(entry: &ConfigEntry) -> Option<&'static str> {
    let name = entry.name();
    if methods(entry).any(|text| has_word(words("methods", "words"), &text)) {
        return Some("the task");
    }
    let is_of_files =
        entry.path.len() == 1 && words("tables", "files").has(name) || name == "defaults" && !is_beside_training(entry);
    if is_of_files && names_files(&entry.value) {
        return Some("settings in other files");
    }
    if let Some(place) = other_settings(entry) {
        return Some(place);
    }
    let word_of = |topic: &'static Topic| Some((topic, topic.words.iter().find(|word| fits(name, word))?));
    let (topic, word) = VOCABULARY.topics.iter().find_map(word_of)?;
    let is_about_task = ["the task", "the loss"].contains(&topic.name.as_str());
    let can_be_a_file = ["parallelism", "quantisation"].contains(&topic.name.as_str());
    let is_harmless = || {
        let places = words("harmless", "places").iter().filter(|_| !can_be_a_file);
        words("harmless", "words").iter().chain(places).any(|word| fits(name, word))
    };
    let is_listed = words("harmless", "keys").has(name) && !word.starts_with('=');
    let is_off = is_off(entry, topic.name == "parallelism");
    let text = if let Value::Text(text) = &entry.value { text.to_ascii_lowercase() } else { String::new() };
    let is_value = |value: &str| value.strip_prefix('=').map_or(text.contains(value), |own| text == own);
    let is_of_samples = topic.name == "the batch" || words("off", "counted").has(word);
    let passes = is_listed
        || is_off
        || topic.values.iter().any(is_value)
        || is_named_by_models(name)
        || is_beside_training(entry) && !(is_of_samples && is_of_batches(entry))
        || !is_about_task && !word.starts_with('=') && is_harmless();
    (!passes).then_some(topic.name.as_str())
}

/// Returns true for a key of a model's dimension.
pub(crate) fn is_named_by_models(name: &str) -> bool {
    Names::get().kinds.iter().flat_map(|kind| &kind.dims).any(|(_, keys)| keys.has(name))
}

/// Returns true for a text, and for a list with more than Hydra's name of the file itself.
fn names_files(value: &Value) -> bool {
    match value {
        Value::Text(_) => true,
        Value::List(nodes) => nodes.iter().any(|node| node.value != Value::Text("_self_".to_owned())),
        _ => false,
    }
}

/// Place of settings that a text names: another file, by a key such as `_base_` or an ending, or the options of a command.
fn other_settings(entry: &ConfigEntry) -> Option<&'static str> {
    let text = entry.value.texts().join(" ").to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| fits(entry.name(), word));
    let is_file = ["yaml", "yml", "toml", "json"].contains(&text.rsplit_once('.').map_or("", |(_, ending)| ending));
    let is_named = has(&["config", "configs", "cfg", "args", "hparams", "settings", "base", "ds", "deepspeed"]);
    let is_other =
        || words("harmless", "words").iter().any(|word| fits(entry.name(), word)) || is_beside_training(entry);
    let is_reference = ["_base_", "__base__", "$ref"].contains(&entry.key.as_str()) || text.starts_with("!include ");
    if is_reference || is_file && is_named && !is_other() {
        return Some("settings in another file");
    }
    let mut options = text.split_whitespace().filter_map(|word| word.strip_prefix("--")?.split('=').next());
    let is_option = |option: &str| key_of_plain(&[normal(option)]).is_some_and(is_of_plan);
    (options.any(is_option) && !is_other()).then_some("settings in a command")
}

/// Returns true for a key of data, evaluation or logging.
pub(crate) fn is_beside_training(entry: &ConfigEntry) -> bool {
    let (known, except) = (words("tables", "words"), words("tables", "except"));
    let fits_one = |table: &str| known.iter().any(|word| fits(table, word)) && !except.has(table);
    entry.tables().any(|table| Names::get().is_of_evaluation(table) || fits_one(table))
}

/// Returns true for a key of the training's data.
fn is_of_batches(entry: &ConfigEntry) -> bool {
    let mut tables = entry.tables().filter(|table| !["init_args", "args", "params"].contains(table));
    tables.next().is_some_and(|table| words("tables", "of_batches").has(table))
}

/// Returns true if the word is between underscores of the name; with `=` in front, if it is the name.
pub(crate) fn fits(name: &str, word: &str) -> bool {
    if let Some(whole) = word.strip_prefix('=') {
        return name == whole;
    }
    let starts = name.match_indices(word).map(|(at, _)| at);
    let is_end = |at: usize| name.as_bytes().get(at).is_none_or(|letter| !letter.is_ascii_alphanumeric());
    let is_start = |at: usize| at == 0 || is_end(at - 1);
    starts.into_iter().any(|at| is_start(at) && is_end(at + word.len()))
}

/// Returns true for a value that turns a key off. One device in a dimension of parallelism is off, too, and one view of a sample. A key
/// such as `disable_lora` is off without a value only.
fn is_off(entry: &ConfigEntry, is_parallelism: bool) -> bool {
    let has = |words: &[&str]| words.iter().any(|word| fits(entry.name(), word));
    let is_one_of = |words: &Words| words.iter().any(|word| fits(entry.name(), word));
    if is_one_of(words("off", "trained")) {
        return entry.value == Value::Flag(true) || entry.value == Value::Null;
    }
    // One device, by its number or name.
    if ["gpu", "device"].contains(&entry.name()) {
        let is_list = matches!(&entry.value, Value::List(nodes) if nodes.len() > 1);
        return !is_list && entry.value.bare().is_none_or(|text| !text.contains(','));
    }
    // A number of 1 is the first stage, or true, but one shard of a number of shards.
    let counts = has(&["size", "degree", "num", "n", "dim"]);
    let is_switch = has(&["zero", "zero1", "fsdp", "sharded", "sharding"]) && !counts;
    let is_parallelism = is_parallelism && !is_switch;
    let is_empty = matches!(&entry.value, Value::Table(entries) if entries.is_empty());
    // `swa: {}` is on, with its defaults, and `quantization_config: {}` is off.
    let is_on = is_empty && !has(&["config", "kwargs", "args"]);
    let is_negated = entry.value != Value::Null && is_one_of(words("off", "negated"));
    has_no_value(&entry.value, is_parallelism || is_one_of(words("off", "counted"))) && !is_on && !is_negated
}

pub(crate) fn has_no_value(value: &Value, is_parallelism: bool) -> bool {
    match value {
        Value::Null => true,
        Value::Flag(flag) => !flag,
        Value::Text(text) => ["", "none", "no", "off", "null"].contains(&text.to_ascii_lowercase().as_str()),
        Value::Number(digits) if digits.trim_end_matches(".0") == "1" => is_parallelism,
        Value::Number(digits) => digits.trim_end_matches(".0") == "0",
        // One device, such as `gpu_ids: [3]`.
        Value::List(nodes) if let [one] = nodes.as_slice() => is_parallelism && one.value.count().is_some(),
        Value::List(nodes) => nodes.is_empty(),
        Value::Table(entries) => {
            let is_off = |entry: &Entry| has_no_value(&entry.node.value, is_parallelism);
            entries.iter().all(is_off)
                || entries.iter().any(|entry| ["enabled", "enable"].contains(&entry.key.as_str()) && is_off(entry))
        }
    }
}
