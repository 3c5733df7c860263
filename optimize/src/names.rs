//! Names that training configs use for models, their dimensions and optimizers (`names.toml`), and words in names.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gpu_tuned_core::workload::Optimizer;
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Names {
    #[serde(rename = "kind")]
    pub(crate) kinds: Vec<KindNames>,
    pub(crate) keys: ModelKeys,
    pub(crate) layout: Vec<Family>,
    /// Keys of settings that only trainings have.
    pub(crate) training: Words,
    /// Words of optimizers with another state than that of the optimizer in their name.
    other_optimizers: Words,
    /// Keys of `PyTorch` programs.
    pub(crate) of_pytorch: Words,
    /// Tables whose settings are not those of training, by name and by the first or last word of the name.
    not_training: Words,
    not_training_word: Words,
    /// Keys of models that no kind describes, some with the value that a kind has.
    pub(crate) unmodelled: Words,
    /// Keys of norms, and words of those of whole micro-batches.
    pub(crate) norms: Words,
    pub(crate) of_batches: Words,
    pub(crate) losses: Words,
    /// Words of losses and models that compare the samples of a micro-batch.
    pub(crate) comparing: Words,
    /// Words of models that no kind describes.
    pub(crate) unmodelled_words: Words,
    /// Keys of layers, and their words that no kind describes.
    pub(crate) layers: Words,
    pub(crate) unmodelled_layers: Words,
    /// Keys of feed-forward layers, and their words that no kind describes: `linear` is an ordinary one.
    pub(crate) feed_forward: Words,
    pub(crate) unmodelled_feed_forward: Words,
    /// Words of keys of mixtures of experts.
    pub(crate) mixture: Words,
    /// Families whose loss Liger's kernels chunk.
    pub(crate) liger: Words,
    /// Families whose published weights are in fp32.
    pub(crate) saved_f32: Words,
    /// Families whose default attention is eager.
    pub(crate) without_sdpa: Words,
    /// Names of matrices by the planner's names.
    matrices: BTreeMap<String, Words>,
}

/// Words that a table separates by spaces.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "String")]
pub struct Words(Vec<String>);

#[derive(Debug, Deserialize)]
pub(crate) struct KindNames {
    /// The kind, as workloads name it.
    pub name: String,
    /// Parts of names of such models.
    #[serde(default)]
    pub(crate) words: Words,
    /// Keys that only such models have.
    #[serde(default)]
    pub(crate) distinctive: Words,
    /// Dimensions with their keys. A dimension in braces is a part of another one.
    #[serde(default)]
    pub(crate) dims: Vec<(String, Words)>,
    /// Dimensions without a key, each with a value or another dimension, and the reason.
    #[serde(default)]
    pub(crate) assumed: Vec<(String, toml::Value, String)>,
}

/// Keys that name a model.
#[derive(Debug, Deserialize)]
pub(crate) struct ModelKeys {
    pub naming: Words,
    /// Keys that name a model within a section of the model.
    pub naming_within: Words,
    pub sections: Words,
    /// Keys of the model whose weights are loaded.
    pub loading: Words,
    /// Tables beside the model.
    pub parts: Words,
    pub of_llama: Words,
    /// Keys of the multiple to which the vocabulary is padded.
    pub multiple: Words,
}

/// A family with the word by which it is named.
pub(crate) type Layout = Option<(&'static Family, &'static str)>;

/// Dimensions that every model with a word in its name has.
#[derive(Debug, Deserialize)]
pub(crate) struct Family {
    pub words: Words,
    pub dims: Vec<(String, toml::Value)>,
    /// Keys of dimensions, in place of those of the kind.
    #[serde(default)]
    pub keys: Vec<(String, Words)>,
    /// Dimensions that follow from keys with these values, each `key=value`.
    #[serde(default)]
    pub given: Vec<(Words, BTreeMap<String, toml::Value>)>,
    /// Widths of feed-forward layers without a key, by other keys with these values, the first that fits: the width of the model
    /// times a number, by a number, and its multiple.
    #[serde(default)]
    pub widths: Vec<(Words, [u64; 3])>,
    /// Multiple to which the vocabulary is padded without a key.
    #[serde(default)]
    pub multiple: Option<u64>,
    /// Pairs of keys whose values are equal, or another model is meant.
    #[serde(default)]
    pub same: Vec<(String, String)>,
    /// Matrices with adapters by names that mean others elsewhere; with an empty name those that PEFT adapts by default.
    #[serde(default)]
    pub adapters: Vec<(String, String)>,
    /// Keys that make it another model, unless they are off.
    #[serde(default)]
    pub unmodelled: Words,
}

impl Family {
    pub(crate) fn adapters(&self, name: &str) -> Option<&str> {
        self.adapters.iter().find(|(own, _)| own == name).map(|(_, matrices)| matrices.as_str())
    }
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self(text.split_whitespace().map(str::to_owned).collect())
    }
}

impl Words {
    /// Returns true for one of the words.
    pub fn has(&self, word: &str) -> bool {
        self.0.iter().any(|known| known == word)
    }

    /// The words in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl Names {
    pub(crate) fn get() -> &'static Self {
        static NAMES: LazyLock<Names> =
            LazyLock::new(|| toml::from_str(include_str!("names.toml")).expect("BUG: the table of names is valid"));
        &NAMES
    }

    /// Returns true for a table whose settings are not those of training: `val_dataloader`, `dataloader_opts_valid`.
    pub(crate) fn is_of_evaluation(&self, table: &str) -> bool {
        let mut ends = [table.split('_').next(), table.rsplit('_').next()].into_iter().flatten();
        self.not_training.has(table) || ends.any(|word| self.not_training_word.has(word))
    }

    /// The planner's names of a matrix with adapters: one, or several with spaces.
    pub(crate) fn matrices(&self, layout: Layout, name: &str) -> Option<&str> {
        // `model.layers.0.self_attn.q_proj` is in one layer.
        if name.split('.').any(|part| part.parse::<u32>().is_ok()) {
            return None;
        }
        let last = name.rsplit('.').next().unwrap_or(name);
        let has = |names: &Words| names.has(name) || names.has(last);
        let found = || self.matrices.iter().find(|(_, names)| has(names)).map(|(matrices, _)| matrices.as_str());
        layout.and_then(|(family, _)| family.adapters(name)).or_else(found)
    }

    /// The family of models with a word in this name: that with the longest word.
    pub(crate) fn layout(&self, name: &str) -> Option<(&Family, &str)> {
        let words = self.layout.iter().flat_map(|layout| layout.words.iter().map(move |word| (layout, word)));
        words.filter(|(_, word)| contains_word(name, word)).max_by_key(|(_, word)| word.len())
    }

    pub(crate) fn kind(&self, name: &str) -> Option<&KindNames> {
        self.kinds.iter().find(|kind| kind.name == name)
    }
}

/// Names of a dimension in configs of this kind of model, without its own.
pub fn aliases(kind: &str, dim: &str) -> impl Iterator<Item = &'static str> {
    let names = Names::get().kind(kind);
    names.and_then(|names| names.keys_of(dim)).into_iter().flat_map(Words::iter)
}

/// The optimizer that a name such as `torch.optim.AdamW` contains.
pub(crate) fn optimizer_in(text: &str) -> Option<Optimizer> {
    let text = text.to_ascii_lowercase();
    if Names::get().other_optimizers.iter().any(|word| text.contains(word)) {
        return None;
    }
    // `adamw` contains `adam`.
    Optimizer::ALL.into_iter().filter(|optimizer| text.contains(optimizer.name())).max_by_key(|it| it.name().len())
}

impl KindNames {
    pub(crate) fn keys_of(&self, dim: &str) -> Option<&Words> {
        self.dims.iter().find(|(name, _)| name == dim).map(|(_, keys)| keys)
    }
}

/// Normal name of a key: in lower case, with underscores between words.
pub(crate) fn normal(key: &str) -> String {
    let mut normal = String::with_capacity(key.len() + 4);
    let mut follows_small = false;
    // `LOAD_IN_4BIT` is no camel case.
    let has_small = key.chars().any(char::is_lowercase);
    for letter in key.chars() {
        if letter.is_uppercase() && follows_small && has_small {
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

/// Returns true if a name contains a word; words of up to three letters only at the start of a part.
pub(crate) fn contains_word(name: &str, word: &str) -> bool {
    let has_start = |pair: &[u8]| pair.eq_ignore_ascii_case(&word.as_bytes()[..2]);
    if !name.as_bytes().windows(2).any(has_start) {
        return false;
    }
    let (name, word) = (name.to_ascii_lowercase(), word.replace('_', ""));
    let squashed: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    if word.len() > 3 {
        return squashed.contains(&word);
    }
    squashed.starts_with(&word)
        || name.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|part| part.starts_with(&word))
}
