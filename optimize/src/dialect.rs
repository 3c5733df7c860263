//! Dialects: the keys that programs of one ecosystem read, a table each in `dialects/`.

use core::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::path::Path;
use std::sync::LazyLock;

use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::{Precision, Setting};
use serde::Deserialize;
use toml::Spanned;

use crate::entry::ConfigEntry;
use crate::error::OptimizeError;
use crate::names::Words;

/// Setting that a key configures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Samples of a micro-batch on one device.
    Batch,
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
    /// A switch without a counterpart in Burn.
    NoCounterpart,
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

    /// Returns true for a factor of the samples of an optimizer step.
    pub(crate) const fn is_of_step(self) -> bool {
        matches!(self, Self::Batch | Self::GlobalBatch | Self::Accumulation)
    }
}

/// Spelling of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Spelling {
    #[default]
    Count,
    /// A count for each loader worker.
    CountPerWorker,
    /// A count that the devices share.
    CountOverRanks,
    /// Samples of a step, to which whole batches are rounded.
    Nominal,
    Flag,
    /// A flag for one precision.
    FlagFor(Precision),
    /// A flag for mixed precision of any format, fp16 by default.
    AmpSwitch,
    /// A key that is there if a precision is on.
    Present(Precision),
    /// A word of a vocabulary.
    Words,
    /// The index of a device, or several with commas.
    Devices,
    /// Any value.
    Any,
}

/// Words of an ecosystem, each with its meaning. The first word of a meaning is written.
pub(crate) type Vocabulary = Vec<(String, String)>;

/// Keys of a setting with one spelling.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Key {
    pub role: Role,
    #[serde(default)]
    pub spelling: Spelling,
    /// Ends of paths, in lower case with underscores; with a dot in front, the whole path.
    names: Words,
    #[serde(default)]
    pub words: Vec<Vocabulary>,
    /// The dimension or feature.
    #[serde(default)]
    pub dim: String,
    /// The path that is added where the file has none of the names.
    pub add: Option<String>,
    /// Meaning without the key.
    pub default: Option<String>,
    /// True if other keys of the file set the same value.
    #[serde(default)]
    pub mirror: bool,
}

impl Key {
    pub(crate) fn lists(&self, word: &str) -> bool {
        self.words.iter().flatten().any(|(_, known)| known == word)
    }
}

/// The framework that trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Framework {
    /// Any.
    #[default]
    Any,
    /// Burn.
    Burn,
    /// PyTorch.
    Pytorch,
    /// Another one.
    Other,
}

/// The keys that programs of one ecosystem read.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dialect {
    /// Name of the ecosystem.
    pub name: String,
    /// Address of the documentation.
    pub documentation: String,
    /// Sets of paths; a file with all of a set, and none with a `!` in front, is in the dialect.
    #[serde(default)]
    recognised: Vec<Words>,
    /// The framework that trains.
    #[serde(default)]
    pub framework: Framework,
    /// True if keys are added only on request, as a program may not read them.
    #[serde(default)]
    pub(crate) adds_on_request: bool,
    #[serde(rename = "key", default)]
    pub(crate) keys: Vec<Key>,
}

/// A kind of file that is no training config.
#[derive(Deserialize)]
pub(crate) struct OtherFile {
    pub name: String,
    recognised: Vec<Words>,
}

macro_rules! dialects {
    ($($name:literal)+) => { [$(include_str!(concat!("dialects/", $name, ".toml"))),+] };
}

/// The shipped dialects, the most specific first; the last is that of any other config.
pub(crate) static DIALECTS: LazyLock<Vec<Dialect>> = LazyLock::new(|| {
    let all = dialects![
        "axolotl" "llama_factory" "torchtune" "litgpt" "ultralytics" "nemo" "composer" "accelerate" "hugging_face"
        "deepspeed" "lightning" "openmmlab" "espnet" "keras" "nanogpt" "burn" "plain"
    ];
    all.iter().map(|text| toml::from_str(text).unwrap_or_else(|error| panic!("BUG: {error} in {text}"))).collect()
});

static OTHERS: LazyLock<HashMap<String, Vec<OtherFile>>> =
    LazyLock::new(|| toml::from_str(include_str!("dialects/others.toml")).expect("BUG: the table of files is valid"));

/// Normal name of a key: in lower case, with underscores between words.
pub(crate) fn normal(key: &str) -> String {
    let mut normal = String::with_capacity(key.len() + 4);
    let mut follows_small = false;
    for letter in key.chars() {
        if letter.is_uppercase() && follows_small {
            normal.push('_');
        }
        follows_small = letter.is_lowercase() || letter.is_ascii_digit();
        match letter {
            '-' | ' ' => normal.push('_'),
            _ => normal.extend(letter.to_lowercase()),
        }
    }
    normal
}

/// Looks up the key of hand-written configs at the end of a path of normal names.
pub(crate) fn known(path: &[String]) -> Option<&'static Key> {
    Dialect::plain().keys.iter().find(|key| key.names.iter().any(|name| ends(path, name)))
}

/// Returns true if a path ends in these names.
fn ends(path: &[String], names: &str) -> bool {
    let count = names.split('.').filter(|name| !name.is_empty()).count();
    let is_whole = !names.starts_with('.') || path.len() == count;
    is_whole && path.len() >= count && names.rsplit('.').zip(path.iter().rev()).all(|(name, own)| name == own)
}

/// The entries of a file by the names of their keys.
pub(crate) struct Index<'e>(HashMap<&'e str, Vec<&'e ConfigEntry>>);

impl<'e> Index<'e> {
    pub(crate) fn new(entries: &'e [ConfigEntry]) -> Self {
        let mut index: HashMap<&str, Vec<&ConfigEntry>> = HashMap::new();
        for entry in entries.iter().filter(|entry| !entry.key.is_empty()) {
            index.entry(entry.name()).or_default().push(entry);
        }
        Self(index)
    }

    /// The entries whose path ends in these names.
    pub(crate) fn find<'i>(&'i self, names: &'i str) -> impl Iterator<Item = &'e ConfigEntry> + 'i {
        let last = names.rsplit('.').next().unwrap_or(names);
        let entries = self.0.get(last).map_or(&[][..], Vec::as_slice);
        entries.iter().copied().filter(move |entry| ends(&entry.path, names))
    }

    fn has_all_of_one(&self, sets: &[Words]) -> bool {
        let has = |names: &str| self.find(names).next().is_some();
        let agrees = |names: &str| names.strip_prefix('!').map_or_else(|| has(names), |names| !has(names));
        sets.iter().any(|set| set.iter().all(agrees))
    }
}

impl Dialect {
    /// The dialects of the user, `[[dialect]]` in a `gpu-tuned.toml`; none without the file. They stay in memory until the
    /// program ends.
    ///
    /// # Errors
    ///
    /// Mistakes of the tables, with their place.
    pub fn read_user(path: &Path) -> Result<Vec<&'static Self>, OptimizeError> {
        #[derive(Deserialize)]
        struct File {
            #[serde(default)]
            dialect: Vec<Spanned<Dialect>>,
        }
        let Ok(text) = std::fs::read_to_string(path) else { return Ok(Vec::new()) };
        let name = path.display().to_string();
        let source = Source { file: &name, text: &text };
        let refuse = |mistake: FileError| OptimizeError::Mistakes(vec![(mistake, text.clone())]);
        let file: File = toml::from_str(&text).map_err(|error| refuse(source.toml_error(&error)))?;
        let mistake = |one: &Spanned<Self>| Some(source.error(&one.span(), one.get_ref().mistake()?));
        if let Some(mistake) = file.dialect.iter().find_map(mistake) {
            return Err(refuse(mistake));
        }
        Ok(file.dialect.into_iter().map(|one| &*Box::leak(Box::new(one.into_inner()))).collect())
    }

    /// A word or name that no file can match.
    fn mistake(&self) -> Option<String> {
        let names =
            self.keys.iter().flat_map(|key| key.names.iter()).chain(self.recognised.iter().flat_map(Words::iter));
        let mut wrong = names.filter(|name| normal(name) != **name);
        if let Some(name) = wrong.next() {
            return Some(format!("`{name}` has to be in lower case with underscores: {}", normal(name)));
        }
        if self.recognised.is_empty() && self.name != "plain" {
            return Some("`recognised` is empty: give the paths that only such files have".to_owned());
        }
        self.keys.iter().filter(|key| matches!(key.role, Role::Precision | Role::AmpFormat | Role::Weights)).find_map(
            |key| {
                let meanings = key.words.iter().flatten().map(|(meaning, _)| meaning);
                let unknown =
                    meanings.filter(|meaning| !meaning.is_empty()).find(|it| it.parse::<Precision>().is_err());
                unknown.map(|meaning| {
                    format!("`{meaning}` is no precision: expected f32, mixed_bf16, mixed_f16 or bf16_params")
                })
            },
        )
    }

    pub(crate) fn plain() -> &'static Self {
        DIALECTS.last().expect("BUG: there is a dialect")
    }

    /// Returns true for hand-written configs of no ecosystem.
    pub fn is_plain(&self) -> bool {
        self.name == Self::plain().name
    }

    /// The dialect of a file: the first of the user's and the shipped ones.
    pub(crate) fn recognise(index: &Index<'_>, users: &[&'static Self]) -> &'static Self {
        let mut all = users.iter().copied().chain(DIALECTS.iter());
        all.find(|dialect| index.has_all_of_one(&dialect.recognised)).unwrap_or_else(Self::plain)
    }

    /// Keys of a role, in place of which none of another dialect counts.
    pub(crate) fn rows(&self, role: Role) -> impl Iterator<Item = &Key> {
        self.keys.iter().filter(move |key| key.role == role)
    }

    /// Meaning of a setting without its key.
    pub(crate) fn default_of(&self, role: Role, dim: &str) -> Option<&str> {
        self.rows(role).filter(|row| row.dim == dim).find_map(|row| row.default.as_deref())
    }

    /// The path that is added for a role.
    pub(crate) fn addition(&self, role: Role) -> Option<&str> {
        self.rows(role).find_map(|key| key.add.as_deref())
    }

    /// The keys that a file of the dialect is read by: its own, and those of hand-written configs for other settings.
    fn read_by(&'static self) -> impl Iterator<Item = &'static Key> {
        let is_own = |other: &Key| self.keys.iter().any(|key| key.role == other.role && key.dim == other.dim);
        let others = Self::plain()
            .keys
            .iter()
            .filter(move |other| !self.is_plain() && (other.role == Role::NoCounterpart || !is_own(other)));
        self.keys.iter().chain(others)
    }

    /// The entries of a file that are keys of the dialect, in their order. The name with more tables counts first.
    pub(crate) fn matches<'e>(&'static self, index: &Index<'e>) -> Vec<(&'static Key, &'e ConfigEntry)> {
        let (mut found, mut seen) = (Vec::new(), HashSet::new());
        let mut names: Vec<_> =
            self.read_by().flat_map(|key| key.names.iter().map(move |names| (key, names))).collect();
        let is_own = |key: &Key| self.keys.iter().any(|own| core::ptr::eq(own, key));
        names.sort_by_key(|(key, names)| (!is_own(key), Reverse(names.matches('.').count())));
        for (key, names) in names {
            let entries = index.find(names).filter(|entry| seen.insert(core::ptr::from_ref(*entry)));
            found.extend(entries.map(|entry| (key, entry)));
        }
        found.sort_by_key(|(_, entry)| entry.key_span.start);
        found
    }

    /// First names of the keys of a role.
    pub(crate) fn usual(&self, role: Role) -> String {
        let names: Vec<_> = self.rows(role).flat_map(|key| key.names.iter()).take(3).collect();
        names.join(", ")
    }
}

/// The kind of a file that is no training config.
pub(crate) fn other_file(index: &Index<'_>) -> Option<&'static str> {
    let other = OTHERS.values().flatten().find(|other| index.has_all_of_one(&other.recognised));
    other.map(|other| other.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::{DIALECTS, Role, ends, known, normal};

    #[test]
    fn every_dialect_is_documented_and_without_mistakes() {
        for dialect in DIALECTS.iter() {
            assert_eq!(dialect.mistake(), None, "{}", dialect.name);
            assert!(dialect.documentation.starts_with("https://"), "{}", dialect.name);
            let names: Vec<_> = dialect.keys.iter().flat_map(|key| key.names.iter()).collect();
            for (index, name) in names.iter().enumerate() {
                assert!(!names[..index].contains(name), "{}: {name} is there twice", dialect.name);
            }
        }
    }

    #[test]
    fn spellings_of_a_name_have_one_normal_form() {
        for (key, name) in [
            ("batchSize", "batch_size"),
            ("batch-size", "batch_size"),
            ("BATCH_SIZE", "batch_size"),
            ("IMS_PER_BATCH", "ims_per_batch"),
            ("numGPUs", "num_gpus"),
            ("fp16", "fp16"),
        ] {
            assert_eq!(normal(key), name);
        }
    }

    #[test]
    fn dotted_names_match_the_end_of_a_path() {
        let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(known(&path(&["deepspeed", "fp16", "enabled"])).map(|key| key.role), Some(Role::Precision));
        assert!(known(&path(&["logger", "enabled"])).is_none());
        assert_eq!(known(&path(&["train", "batch_size"])).map(|key| key.role), Some(Role::Batch));
        assert!(ends(&path(&["batch"]), ".batch") && !ends(&path(&["train", "batch"]), ".batch"));
    }
}
