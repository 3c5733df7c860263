//! Models whose dimensions are known by their names (`models.toml`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use gpu_tuned_core::workload::ModelKind;
use serde::Deserialize;

use crate::document::{ConfigEntry, ConfigText, Format, Value};
use crate::names::{KindNames, Words};

/// A well-known model.
#[derive(Deserialize)]
pub(super) struct Known {
    pub name: String,
    #[serde(default)]
    aliases: Words,
    /// Its `config.json`.
    config: Option<String>,
    /// Dimensions by the name of the kind, in place of a `config.json`; and the number of parameters.
    #[serde(flatten)]
    kinds: BTreeMap<String, toml::Value>,
}

static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let tables: BTreeMap<String, Vec<Known>> =
        toml::from_str(include_str!("../models.toml")).expect("BUG: the table of models is valid");
    tables.into_values().flatten().collect()
});

/// Words behind the names of models with the same dimensions.
const VARIANTS: [&str; 6] = ["instruct", "chat", "it", "hf", "base", "deduped"];

impl Known {
    /// Names of all models.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        KNOWN.iter().map(|model| model.name.as_str())
    }

    /// The model of this name, path, or class such as `torchtune.models.llama3.lora_llama3_8b`.
    pub(super) fn named(text: &str) -> Option<&'static Self> {
        let own = squashed(text);
        KNOWN
            .iter()
            .find(|model| [model.name.as_str()].into_iter().chain(model.aliases.iter()).any(|it| squashed(it) == own))
    }

    /// The config as a file, empty for a model that the table describes by its kind.
    pub(super) fn file(&self) -> ConfigText {
        ConfigText::new(Path::new(&self.name), Format::Json, self.config.as_deref().unwrap_or("{}"))
    }

    /// Kind and dimensions of a model without a config.
    pub(super) fn described(&self) -> Option<(&str, Vec<(String, String)>)> {
        let is_kind = |(name, _): &(&String, &toml::Value)| ModelKind::named(name).is_some();
        let (kind, dims) = self.kinds.iter().find(is_kind)?;
        let dims = dims.as_table()?.iter().map(|(name, value)| (name.clone(), value.to_string()));
        Some((kind, dims.collect()))
    }
}

/// Returns true for a name as the hub writes it, and for its part behind the owner. Other texts with a slash are paths.
pub(super) fn is_name(text: &str) -> bool {
    let is_owner = |owner: &str| KNOWN.iter().any(|model| model.name.split('/').next() == Some(owner));
    text.split_once('/').is_none_or(|(owner, name)| is_owner(owner) && !name.contains('/'))
}

/// The letters and digits of a model's name, without its folder and variant; a dot for a mark between digits: `opt-1.3b` is not `opt-13b`,
/// and `Llama-2-7b` is `llama2_7b`.
fn squashed(text: &str) -> String {
    let text = text.trim_end_matches('/').to_ascii_lowercase();
    let last = text.rsplit('/').next().unwrap_or(&text);
    let class = last.strip_prefix("torchtune.models.").and_then(|class| class.rsplit('.').next()).unwrap_or(last);
    let own = ["lora_", "qlora_"].iter().find_map(|adapter| class.strip_prefix(adapter)).unwrap_or(class);
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    let mut letters = String::new();
    for part in own.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|part| !part.is_empty()) {
        if is_digit(letters.chars().last()) && is_digit(part.chars().next()) {
            letters.push('.');
        }
        letters += part;
    }
    while let Some(rest) = VARIANTS.iter().find_map(|variant| letters.strip_suffix(variant)) {
        letters.truncate(rest.len());
    }
    letters
}

/// Returns true if the config changes dimensions of the model that it names.
pub(super) fn changes_dimensions(names: &KindNames, entries: &[ConfigEntry]) -> bool {
    let of_size = names.dims.iter().filter(|(dim, _)| {
        ["layers", "d_model", "heads", "kv_heads", "d_ff", "vocab", "experts"].contains(&dim.as_str())
    });
    let keys: Vec<_> = of_size.map(|(_, keys)| keys).collect();
    entries.iter().any(|entry| {
        keys.iter().any(|keys| keys.has(entry.name())) && !matches!(entry.value, Value::Null | Value::Table(_))
    })
}
