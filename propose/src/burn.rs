//! Names of modules and configs of Burn: `burn.toml`.

use std::sync::LazyLock;

use gpu_tuned_core::workload::{ModelKind, Optimizer};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(super) struct BurnNames {
    modules: Vec<(String, Words)>,
    unplanned: Words,
    /// Parts of the names of losses that compare the samples of a batch.
    pub coupling: Words,
    pub mixture: Vec<Mixture>,
    pub weighted: Vec<Weighted>,
    config: Vec<Config>,
}

/// Words that the table separates by spaces.
#[derive(Debug, Default, Deserialize)]
#[serde(from = "String")]
pub(super) struct Words(Vec<String>);

/// Modules that together are no model of one kind.
#[derive(Debug, Deserialize)]
pub(super) struct Mixture {
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

/// Settings of a loss whose mean is over something else than samples.
#[derive(Debug, Deserialize)]
pub(super) struct Weighted {
    /// Types with the settings.
    pub builder: Words,
    pub settings: Words,
    /// Plural of what the mean is over.
    pub over: String,
    /// Sum of that, in the program's code.
    pub weight: String,
}

#[derive(Debug, Deserialize)]
struct Config {
    words: Words,
    fields: Vec<(String, String)>,
}

impl From<String> for Words {
    fn from(text: String) -> Self {
        Self(text.split_whitespace().map(str::to_owned).collect())
    }
}

impl Words {
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl BurnNames {
    pub(super) fn get() -> &'static Self {
        static NAMES: LazyLock<BurnNames> =
            LazyLock::new(|| toml::from_str(include_str!("burn.toml")).expect("BUG: the table of names is valid"));
        &NAMES
    }

    /// Kinds of models with the prefixes of their modules, in the order in which programs are searched for them.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&'static ModelKind, &Words)> {
        self.modules.iter().filter_map(|(kind, modules)| Some((ModelKind::named(kind)?, modules)))
    }

    /// Arguments of the constructor of a module's config, each with the dimension that it is.
    pub(super) fn config(&self, name: &str) -> Option<&[(String, String)]> {
        let is_meant = |config: &&Config| config.words.iter().any(|word| word == name);
        self.config.iter().find(is_meant).map(|config| config.fields.as_slice())
    }

    /// The optimizer of a config such as `AdamWConfig`; `Some(None)` for one that the planner has no counterpart of.
    #[expect(clippy::option_option, reason = "known to Burn and known to the planner are two questions")]
    pub(super) fn optimizer(&self, config: &str) -> Option<Option<Optimizer>> {
        let name = config.strip_suffix("Config")?.to_ascii_lowercase();
        // Momentum is a field of `SgdConfig`.
        let mut planned = Optimizer::ALL.into_iter().filter(|it| *it != Optimizer::Momentum);
        let planned = planned.find(|optimizer| optimizer.name() == name);
        let is_unplanned = || self.unplanned.iter().any(|word| word == config);
        planned.map(Some).or_else(|| is_unplanned().then_some(None))
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::dims::named;
    use gpu_tuned_core::workload::{ModelKind, Optimizer};

    use super::BurnNames;

    #[test]
    fn every_kind_exists_and_each_mixture_is_described() {
        let names = BurnNames::get();
        assert_eq!(names.kinds().count(), names.modules.len());
        for mixture in &names.mixture {
            let Some(like) = &mixture.like else { continue };
            assert!(ModelKind::description_of(like).is_some(), "{like}");
            assert!(!mixture.such.is_empty(), "{like}");
        }
    }

    #[test]
    fn arguments_of_configs_are_dimensions() {
        for (_, dim) in BurnNames::get().config.iter().flat_map(|config| &config.fields) {
            assert!(ModelKind::ALL.iter().any(|kind| named(kind.dims, dim).is_some()), "{dim}");
        }
    }

    #[test]
    fn optimizers_are_found_by_their_configs() {
        let names = BurnNames::get();
        assert_eq!(names.optimizer("AdamWConfig"), Some(Some(Optimizer::AdamW)));
        assert_eq!(names.optimizer("LionConfig"), Some(None));
        assert_eq!(names.optimizer("MomentumConfig"), None);
    }
}
