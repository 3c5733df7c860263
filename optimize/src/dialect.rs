//! Dialects: the keys that programs of one ecosystem read, a table each in `dialects/`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gpu_tuned_core::{Precision, Setting};
use serde::{Deserialize, Serialize};

use crate::document::{ConfigEntry, Value};
use crate::names::Words;
use crate::schema::Schema;
use crate::vocabulary::has_no_value;

/// The keys that programs of one ecosystem read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dialect {
    /// Name of the ecosystem.
    pub name: String,
    /// Address of the documentation.
    pub documentation: String,
    /// Sets of paths with bars between alternatives; a file with all of a set, and none with a `!` in front, is in the dialect.
    #[serde(default)]
    pub(crate) recognised: Vec<Words>,
    /// The framework that runs the training.
    #[serde(default)]
    pub framework: Framework,
    /// The family of models without a name of their own.
    #[serde(default)]
    pub(crate) family: String,
    /// True if keys are added only on request, as a program may not read them.
    #[serde(default)]
    pub adds_on_request: bool,
    /// Files of keys that dialects share.
    #[serde(default)]
    keys_of: Words,
    /// Files of the schema.
    #[serde(default)]
    schemas: Words,
    /// All keys of the framework.
    #[serde(skip)]
    pub(crate) schema: Option<Schema>,
    #[serde(rename = "key", default)]
    pub(crate) keys: Vec<Key>,
    /// Keys that the framework does not read, unless another key has this value.
    #[serde(default)]
    pub(crate) unread: Vec<(String, String)>,
    #[serde(rename = "default", default)]
    pub(crate) defaults: Vec<DefaultValue>,
}

/// The framework that runs a training, whose memory decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Framework {
    /// Burn.
    #[default]
    Burn,
    /// `PyTorch`.
    Pytorch,
}

impl Framework {
    /// The framework of this name on the command line.
    ///
    /// # Errors
    ///
    /// Another name, with those that there are.
    pub fn named(name: &str) -> Result<Self, String> {
        let mut all = [Self::Burn, Self::Pytorch].into_iter();
        all.find(|it| it.name().to_lowercase() == name).ok_or_else(|| "expected burn or pytorch".to_owned())
    }

    /// Name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Burn => "Burn",
            Self::Pytorch => "PyTorch",
        }
    }
}

macro_rules! tables {
    ($folder:literal: $($name:literal)+) => { [$(($name, include_str!(concat!($folder, $name, ".toml")))),+] };
}

/// The shipped dialects, the most specific first; the last is that of any other config.
pub(crate) static DIALECTS: LazyLock<Vec<Dialect>> = LazyLock::new(|| {
    let dialects = tables![
        "dialects/": "axolotl" "llama_factory" "torchtune" "litgpt" "megatron_lm" "nemo" "nanotron" "olmo" "composer"
        "ms_swift" "trl" "hugging_face" "gpt_neox" "deepspeed" "lightning" "nanogpt" "burn" "micro_batch" "plain"
    ];
    let keys = tables!["dialects/": "training_arguments" "sharding" "megatron_arguments" "lightning_classes"];
    let schemas = tables![
        "schemas/": "axolotl" "llama_factory" "torchtune" "litgpt" "nemo" "nanotron" "olmo" "composer" "hugging_face"
        "gpt_neox" "deepspeed" "lightning" "nanogpt" "lightning_trainer" "training_arguments" "fsdp_config" "deepspeed_keys"
    ];
    let read = |(_, text): &(&str, &str)| {
        let mut dialect: Dialect = toml::from_str(text).unwrap_or_else(|error| panic!("BUG: {error} in {text}"));
        for (_, text) in keys.iter().filter(|(name, _)| dialect.keys_of.has(name)) {
            let shared: BTreeMap<String, Vec<Key>> =
                toml::from_str(text).unwrap_or_else(|error| panic!("BUG: {error} in {text}"));
            dialect.keys.extend(shared.into_values().flatten());
        }
        let parts = dialect.schemas.iter().filter_map(|part| schemas.iter().find(|(name, _)| *name == part));
        let text: String = parts.flat_map(|(_, text)| [*text, "\n"]).collect();
        let schema = || toml::from_str(&text).unwrap_or_else(|error| panic!("BUG: {error} in {text}"));
        dialect.schema = Some(&text).filter(|text| !text.is_empty()).map(|_| schema());
        dialect
    };
    dialects.iter().map(read).collect()
});

/// Setting that a key with this normal name configures in hand-written configs, whatever table it is in.
pub fn role(name: &str) -> Option<Role> {
    known(&[name.to_owned()]).map(|key| key.role)
}

/// Looks up the key of hand-written configs at the end of a path of normal names.
pub(crate) fn known(path: &[String]) -> Option<&'static Key> {
    Dialect::plain().keys.iter().find(|key| key.names.iter().any(|name| ends(path, name)))
}

/// Returns true if a path ends in these names; a star is any name.
pub(crate) fn ends(path: &[String], names: &str) -> bool {
    let count = || names.split('.').filter(|name| !name.is_empty()).count();
    let fits = || if names.starts_with('.') { path.len() == count() } else { path.len() >= count() };
    // Most paths differ in the last name.
    names.rsplit('.').zip(path.iter().rev()).all(|(name, own)| name == own || name == "*") && fits()
}

/// Returns true for a known word: the same one, a part, start or end of it (`*qlora*`, `ddp_*`, `*glu`), or a number that `<=5e8` allows.
pub(crate) fn is_word(known: &str, word: &str) -> bool {
    let number = |text: &str| text.parse::<f64>().ok();
    let allows = |most: &str| number(most).zip(number(word)).is_some_and(|(most, own)| own <= most);
    match (known.strip_prefix('*'), known.strip_suffix('*')) {
        (Some(rest), Some(_)) => word.contains(rest.trim_end_matches('*')),
        (Some(end), None) => word.ends_with(end),
        (None, Some(start)) => word.starts_with(start),
        (None, None) => word == known || known.strip_prefix("<=").is_some_and(allows),
    }
}

impl Dialect {
    pub(crate) fn plain() -> &'static Self {
        DIALECTS.last().expect("BUG: there is a dialect")
    }

    pub(crate) fn named(name: &str) -> Option<&'static Self> {
        DIALECTS.iter().find(|dialect| dialect.name == name)
    }

    /// Returns true for hand-written configs of no ecosystem.
    pub fn is_plain(&self) -> bool {
        core::ptr::eq(self, Self::plain())
    }

    /// The release whose keys and defaults are read, or the name of the ecosystem.
    pub fn release(&self) -> &str {
        self.schema.as_ref().map_or(&self.name, |schema| &schema.release)
    }

    pub(crate) fn rows(&self, role: Role) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(move |key| key.role == role)
    }

    /// Meaning of a setting without its key.
    pub(crate) fn default_of(&self, role: Role, dim: &str, entries: &[ConfigEntry]) -> Option<&str> {
        let is_it = |row: &&DefaultValue| row.role == role && row.dim == dim && row.beside.is_met(entries);
        self.defaults.iter().find(is_it).map(|row| row.value.as_str())
    }

    /// The path that is added for a role.
    pub(crate) fn addition(&self, role: Role) -> Option<&str> {
        self.rows(role).find_map(|key| key.add.as_deref())
    }

    /// First names of the keys of a role.
    pub(crate) fn usual(&self, role: Role, most: usize) -> String {
        let names: Vec<_> = self.rows(role).flat_map(|key| key.names.iter()).take(most).collect();
        names.join(", ").replace(" .", " ").trim_start_matches('.').to_owned()
    }
}

/// Setting that a key configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Samples of a micro-batch on one device.
    Batch,
    /// Tokens or seconds of a batch, which has no fixed samples.
    Unfixed,
    /// Samples of an optimizer step over all devices.
    GlobalBatch,
    /// Micro-batches of an optimizer step.
    Accumulation,
    /// Devices that train together.
    Ranks,
    /// Devices of each node, where `Nodes` is another factor.
    RanksOfNode,
    /// Machines that train together.
    Nodes,
    /// Threads that prepare batches.
    Workers,
    /// Batches that are prepared ahead.
    Prefetch,
    /// Precision of training.
    Precision,
    /// Format of 16 bits under automatic mixed precision.
    AmpFormat,
    /// Format of the weights.
    Weights,
    /// TF32 in products of fp32.
    Tf32,
    /// Activation checkpointing.
    Checkpointing,
    /// Samples of a batch of evaluation.
    EvalBatch,
    /// Samples of the training set.
    Samples,
    /// The optimizer's name.
    Optimizer,
    /// A switch for LoRA adapters.
    Adapter,
    /// A dimension of the model or its training.
    Dim,
    /// The file or name of the model.
    ModelFile,
    /// A method of which the planner models some values.
    Method,
    /// A feature that changes the memory of PyTorch.
    Feature,
    /// A number of micro-batches.
    MicroBatches,
}

impl Role {
    /// Roles that a user can assign to a key, by their names on the command line.
    pub(crate) const NAMED: [(&'static str, Self); 10] = [
        (Setting::BatchSize.name(), Self::Batch),
        ("global_batch", Self::GlobalBatch),
        (Setting::GradientAccumulation.name(), Self::Accumulation),
        (Setting::NumWorkers.name(), Self::Workers),
        (Setting::PrefetchDepth.name(), Self::Prefetch),
        (Setting::Precision.name(), Self::Precision),
        (Setting::AllowTf32.name(), Self::Tf32),
        (Setting::GradientCheckpointing.name(), Self::Checkpointing),
        (Setting::EvalBatchSize.name(), Self::EvalBatch),
        ("train_samples", Self::Samples),
    ];

    /// Name of the role on the command line.
    pub(crate) fn name(self) -> Option<&'static str> {
        Self::NAMED.iter().find(|(_, role)| *role == self).map(|(name, _)| *name)
    }

    /// Returns true for the precision, and for a format that decides on it.
    pub(crate) const fn is_of_precision(self) -> bool {
        matches!(self, Self::Precision | Self::AmpFormat | Self::Weights)
    }

    /// Returns true for a factor of the samples of an optimizer step.
    pub(crate) const fn is_of_step(self) -> bool {
        matches!(self, Self::Batch | Self::GlobalBatch | Self::Accumulation)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Spelling {
    #[default]
    Count,
    CountPerWorker,
    /// A count that the devices share.
    CountOverRanks,
    Flag,
    FlagFor(Precision),
    /// A flag for mixed precision of any format, fp16 by default.
    AmpSwitch,
    Words,
    Any,
}

/// Words of an ecosystem, each with its meaning: `?` is refused. The first word of a meaning is written.
pub(crate) type Vocabulary = Vec<(String, String)>;

/// Keys of a setting with one spelling.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Key {
    pub role: Role,
    #[serde(default)]
    pub spelling: Spelling,
    /// Ends of paths, in lower case with underscores; with a dot in front, the whole path.
    pub names: Words,
    #[serde(default)]
    pub words: Vec<Vocabulary>,
    /// Reason why other words are refused.
    #[serde(default)]
    pub why: String,
    /// The dimension or feature.
    #[serde(default)]
    pub dim: String,
    /// The path that is added where the file has none of the names.
    pub add: Option<String>,
    /// True if other keys of the file set the same value.
    #[serde(default)]
    pub mirror: bool,
    /// Conditions of which one has to be met, so that the keys have an effect.
    #[serde(default)]
    pub beside: Words,
}

/// Meaning of a setting without its key, as the framework documents it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct DefaultValue {
    pub role: Role,
    /// The dimension or feature.
    #[serde(default)]
    pub dim: String,
    pub value: String,
    /// Conditions of which one has to be met, and all with `!`, so that the default has an effect.
    #[serde(default)]
    pub beside: Words,
    /// Address of the documentation.
    pub source: String,
}

impl Words {
    /// Returns true if one of the conditions is met, or there is none: a key that is not off, a word of it (`plugins=*liger*`),
    /// or with `!` no value of it.
    pub(crate) fn is_met(&self, entries: &[ConfigEntry]) -> bool {
        let is_met = |condition: &str| {
            let (names, word) = condition.split_once('=').unwrap_or((condition, ""));
            let mut named = entries.iter().filter(|entry| ends(&entry.path, names.trim_start_matches('!')));
            let has_word = |text: &String| is_word(word, &text.to_lowercase());
            match (condition.starts_with('!'), word) {
                (true, _) => named.all(|entry| entry.value == Value::Null),
                (_, "") => named.any(|entry| !has_no_value(&entry.value, false)),
                _ => named.any(|entry| entry.value.texts().iter().any(has_word)),
            }
        };
        let (without, with): (Vec<_>, Vec<_>) = self.iter().partition(|condition| condition.starts_with('!'));
        without.into_iter().all(is_met) && (with.is_empty() || with.into_iter().any(is_met))
    }
}

impl Key {
    /// The word of the vocabulary with its meaning.
    pub(crate) fn known(&self, word: &str) -> Option<&(String, String)> {
        self.words.iter().flatten().find(|(_, known)| is_word(known, word))
    }

    /// The first word with a meaning.
    pub(crate) fn word_for(&self, meaning: &str) -> Option<&str> {
        self.words.iter().flatten().find(|(known, _)| known == meaning).map(|(_, word)| word.as_str())
    }
}
