//! Names that training configs use for models, their dimensions and optimizers: `names.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gpu_tuned_core::workload::Optimizer;
use serde::Deserialize;

use crate::key_names::contains_word;

#[derive(Debug, Deserialize)]
pub(crate) struct Names {
    kind: Vec<KindNames>,
    pub(crate) keys: ModelKeys,
    pub(crate) layout: Vec<Family>,
    /// Keys of settings that only trainings have.
    training: Words,
    /// Tables whose settings are not those of training, by name and by the first or last word of the name.
    not_training: Words,
    not_training_word: Words,
    /// Keys of models that no kind describes.
    pub(crate) unmodelled: Words,
    pub(crate) unmodelled_above_one: Words,
    /// Keys of norms, and words of those of whole micro-batches.
    pub(crate) norms: Words,
    pub(crate) of_batches: Words,
    /// Keys of losses.
    pub(crate) losses: Words,
    /// Words of losses and models that compare the samples of a micro-batch.
    pub(crate) comparing: Words,
    /// Words of models that no kind describes.
    pub(crate) unmodelled_words: Words,
    /// Words of keys of mixtures of experts.
    pub(crate) mixture: Words,
    /// Names of matrices by the planner's names.
    matrices: BTreeMap<String, Words>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(from = "String")]
pub(crate) struct Words(Vec<String>);

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
}

/// Keys that name a model.
#[derive(Debug, Deserialize)]
pub(crate) struct ModelKeys {
    pub naming: Words,
    /// Keys that name a model within a section of the model.
    pub naming_within: Words,
    pub sections: Words,
    /// Tables beside the model.
    pub parts: Words,
    pub of_llama: Words,
}

/// Dimensions that every model with a word in its name has.
#[derive(Debug, Deserialize)]
pub(crate) struct Family {
    pub words: Words,
    pub dims: Vec<(String, toml::Value)>,
    /// Keys of dimensions, in place of those of the kind.
    #[serde(default)]
    pub keys: Vec<(String, Words)>,
    /// Keys that make it another model.
    #[serde(default)]
    pub unmodelled: Words,
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self(text.split_whitespace().map(str::to_owned).collect())
    }
}

impl Words {
    pub(crate) fn has(&self, word: &str) -> bool {
        self.position(word).is_some()
    }

    pub(crate) fn position(&self, word: &str) -> Option<usize> {
        self.0.iter().position(|known| known == word)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl Names {
    pub(crate) fn get() -> &'static Self {
        static NAMES: LazyLock<Names> =
            LazyLock::new(|| toml::from_str(include_str!("names.toml")).expect("BUG: the table of names is valid"));
        &NAMES
    }

    /// Names of all kinds.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &KindNames> {
        self.kind.iter()
    }

    /// Returns true for the key of a setting or dimension that only trainings have.
    pub(crate) fn is_of_training(&self, key: &str) -> bool {
        self.training.has(key)
    }

    /// Returns true for a table whose settings are not those of training: `val_dataloader`, `dataloader_opts_valid`.
    pub(crate) fn is_of_evaluation(&self, table: &str) -> bool {
        let mut ends = [table.split('_').next(), table.rsplit('_').next()].into_iter().flatten();
        self.not_training.has(table) || ends.any(|word| self.not_training_word.has(word))
    }

    /// The planner's names of a matrix with adapters: one, or several with spaces.
    pub(crate) fn matrices(&self, name: &str) -> Option<&str> {
        let last = name.rsplit('.').next().unwrap_or(name);
        let has = |names: &Words| names.has(name) || names.has(last);
        self.matrices.iter().find(|(_, names)| has(names)).map(|(matrices, _)| matrices.as_str())
    }

    /// The family of models with a word in this name: that with the longest word.
    pub(crate) fn layout(&self, name: &str) -> Option<(&Family, &str)> {
        let words = self.layout.iter().flat_map(|layout| layout.words.iter().map(move |word| (layout, word)));
        words.filter(|(_, word)| contains_word(name, word)).max_by_key(|(_, word)| word.len())
    }

    /// Names of a kind of model.
    pub(crate) fn kind(&self, name: &str) -> Option<&KindNames> {
        self.kind.iter().find(|kind| kind.name == name)
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
    // `adamw` contains `adam`.
    Optimizer::ALL.into_iter().filter(|optimizer| text.contains(optimizer.name())).max_by_key(|it| it.name().len())
}

impl KindNames {
    pub(crate) fn keys_of(&self, dim: &str) -> Option<&Words> {
        self.dims.iter().find(|(name, _)| name == dim).map(|(_, keys)| keys)
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::dims::named;
    use gpu_tuned_core::suggest_key;
    use gpu_tuned_core::workload::{ModelKind, Optimizer};

    use super::{Names, optimizer_in};

    #[test]
    fn every_kind_and_dimension_exists() {
        for names in Names::get().kinds() {
            let kind = ModelKind::named(&names.name).unwrap_or_else(|| panic!("no kind {}", names.name));
            for (dim, _) in names.dims.iter().filter(|(dim, _)| !dim.starts_with('{')) {
                assert!(named(kind.dims, dim).is_some(), "{}: no dimension {dim}", names.name);
            }
        }
        for layout in &Names::get().layout {
            for (dim, value) in &layout.dims {
                let mut kinds = ModelKind::ALL.iter().filter_map(|kind| named(kind.dims, dim));
                assert!(kinds.any(|dim| dim.kind.read(value).is_some()), "{dim} = {value}");
            }
        }
    }

    #[test]
    fn suggested_keys_have_the_same_meaning_as_in_configs() {
        for names in Names::get().kinds() {
            let kind = ModelKind::named(&names.name).expect("a kind that exists");
            let known: Vec<_> = kind.dims.iter().map(|dim| dim.name).collect();
            for (dim, words) in names.dims.iter().filter(|(dim, _)| !dim.starts_with('{')) {
                for word in words.iter().filter(|word| !known.contains(word)) {
                    let suggested = suggest_key(word, &known);
                    let agrees = suggested.is_empty() || suggested.contains(&format!("`{dim}`"));
                    assert!(agrees, "{}: {word} is {dim}{suggested}", kind.name);
                }
            }
        }
    }

    #[test]
    fn layouts_agree_with_descriptions_of_models() {
        for layout in &Names::get().layout {
            for word in layout.words.iter() {
                let description = ModelKind::description_of(word).unwrap_or_default();
                for (dim, value) in &layout.dims {
                    let given = description.split_once(&format!("{dim} = ")).map(|(_, rest)| rest);
                    let agrees =
                        given.is_none_or(|given| given.starts_with('…') || given.starts_with(&value.to_string()));
                    assert!(agrees, "{word}: {dim} = {value}, but {description}");
                }
            }
        }
    }

    #[test]
    fn optimizers_are_found_by_their_names() {
        assert_eq!(optimizer_in("torch.optim.AdamW"), Some(Optimizer::AdamW));
        assert_eq!(optimizer_in("adam_8bit"), Some(Optimizer::Adam));
        assert_eq!(optimizer_in("lion"), None);
    }
}
