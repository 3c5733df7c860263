//! Names that training configs and Burn programs use for models, their dimensions and optimizers: `names.toml`.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use gpu_tuned_core::workload::Optimizer;
use serde::Deserialize;

use crate::key_names::contains_word;

#[derive(Debug, Deserialize)]
pub(crate) struct Names {
    kind: Vec<KindNames>,
    pub(crate) keys: ModelKeys,
    pub(crate) layout: Vec<Layout>,
    mixture: Vec<Mixture>,
    burn: Vec<BurnConfig>,
    optimizers: Optimizers,
    /// Keys of settings that only trainings have.
    training: Words,
    /// Keys of models that no kind describes.
    pub(crate) unmodelled: Words,
    pub(crate) unmodelled_above_one: Words,
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
    burn: Words,
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
}

/// Dimensions that every model with a word in its name has.
#[derive(Debug, Deserialize)]
pub(crate) struct Layout {
    pub words: Words,
    pub dims: Vec<(String, toml::Value)>,
    /// Keys of dimensions, in place of those of the kind.
    #[serde(default)]
    pub keys: Vec<(String, Words)>,
    /// Keys that make it another model.
    #[serde(default)]
    pub unmodelled: Words,
}

/// Modules of Burn that together are no model of one kind.
#[derive(Debug, Deserialize)]
pub(crate) struct Mixture {
    /// Prefixes of modules, of which each part has at least one.
    pub parts: Vec<Words>,
    /// Prefixes of modules that identify the kind all the same.
    #[serde(default)]
    pub unless: Words,
    /// Description of such models.
    pub model: String,
    /// Name in the table of descriptions; `None` for models that no kind describes.
    pub like: Option<String>,
    /// Name of such models in a message.
    #[serde(default)]
    pub such: String,
}

#[derive(Debug, Deserialize)]
struct BurnConfig {
    words: Words,
    fields: Vec<(String, String)>,
}

#[derive(Debug, Deserialize)]
struct Optimizers {
    unplanned: Words,
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

    /// Kinds of models in the order in which programs are searched for their modules.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = &KindNames> {
        self.kind.iter()
    }

    pub(crate) fn mixtures(&self) -> impl Iterator<Item = &Mixture> {
        self.mixture.iter()
    }

    /// Returns true for the key of a setting or dimension that only trainings have.
    pub(crate) fn is_of_training(&self, key: &str) -> bool {
        self.training.has(key)
    }

    /// The planner's names of a matrix with adapters: one, or several with spaces.
    pub(crate) fn matrices(&self, name: &str) -> Option<&str> {
        let last = name.rsplit('.').next().unwrap_or(name);
        let has = |names: &Words| names.has(name) || names.has(last);
        self.matrices.iter().find(|(_, names)| has(names)).map(|(matrices, _)| matrices.as_str())
    }

    /// The family of models with a word in this name: that with the longest word.
    pub(crate) fn layout(&self, name: &str) -> Option<(&Layout, &str)> {
        let words = self.layout.iter().flat_map(|layout| layout.words.iter().map(move |word| (layout, word)));
        words.filter(|(_, word)| contains_word(name, word)).max_by_key(|(_, word)| word.len())
    }

    /// Names of the kind that workloads call so.
    pub(crate) fn kind(&self, name: &str) -> Option<&KindNames> {
        self.kind.iter().find(|kind| kind.name == name)
    }

    /// Arguments of the constructor of one of Burn's configs, each with the dimension that it is.
    pub(crate) fn burn_config(&self, name: &str) -> Option<&[(String, String)]> {
        self.burn.iter().find(|config| config.words.has(name)).map(|config| config.fields.as_slice())
    }

    /// The optimizer of a config of Burn such as `AdamWConfig`; `Some(None)` for one that the planner has no counterpart of.
    #[expect(clippy::option_option, reason = "known to Burn and known to the planner are two questions")]
    pub(crate) fn burn_optimizer(&self, config: &str) -> Option<Option<Optimizer>> {
        let name = config.strip_suffix("Config")?.to_ascii_lowercase();
        // Momentum is a field of `SgdConfig`.
        let mut planned = Optimizer::ALL.into_iter().filter(|it| *it != Optimizer::Momentum);
        let planned = planned.find(|optimizer| optimizer.name() == name);
        planned.map(Some).or_else(|| self.optimizers.unplanned.has(config).then_some(None))
    }
}

/// The optimizer that a name such as `torch.optim.AdamW` contains.
pub(crate) fn optimizer_in(text: &str) -> Option<Optimizer> {
    let text = text.to_ascii_lowercase();
    // `adamw` contains `adam`.
    Optimizer::ALL.into_iter().filter(|optimizer| text.contains(optimizer.name())).max_by_key(|it| it.name().len())
}

impl KindNames {
    /// Prefixes of the names that modules of the kind have in Burn programs.
    pub(crate) const fn burn_modules(&self) -> &Words {
        &self.burn
    }

    /// Names of a dimension in configs and programs, without its own.
    pub(crate) fn aliases(&self, dim: &str) -> impl Iterator<Item = &str> {
        self.keys_of(dim).into_iter().flat_map(Words::iter)
    }

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
    fn mixtures_are_described() {
        for mixture in Names::get().mixtures() {
            let Some(like) = &mixture.like else { continue };
            assert!(ModelKind::description_of(like).is_some(), "{like}");
            assert!(!mixture.such.is_empty(), "{like}");
        }
    }

    #[test]
    fn optimizers_are_found_by_their_names() {
        assert_eq!(optimizer_in("torch.optim.AdamW"), Some(Optimizer::AdamW));
        assert_eq!(optimizer_in("adam_8bit"), Some(Optimizer::Adam));
        assert_eq!(optimizer_in("lion"), None);
        assert_eq!(Names::get().burn_optimizer("AdamWConfig"), Some(Some(Optimizer::AdamW)));
        assert_eq!(Names::get().burn_optimizer("LionConfig"), Some(None));
        assert_eq!(Names::get().burn_optimizer("MomentumConfig"), None);
    }
}
