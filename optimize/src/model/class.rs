//! Values that the class of a `config.json` has for keys that the file leaves out (`model_types.toml`).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::LazyLock;

use super::read::meeting;
use crate::document::{ConfigEntry, ConfigText, Format, Value};
use crate::names::{Family, KindNames, Words};
use crate::vocabulary::is_beside_training;

static CLASSES: LazyLock<BTreeMap<String, Vec<ConfigEntry>>> = LazyLock::new(|| {
    let rows: BTreeMap<String, String> =
        toml::from_str(include_str!("../model_types.toml")).expect("BUG: the table of model types is valid");
    let read = |(name, row): (String, String)| {
        let entries = ConfigText::new(Path::new(&name), Format::Json, &row).entries();
        (name, entries.expect("BUG: the row is valid"))
    };
    rows.into_iter().map(read).collect()
});

/// Begins the origin of values that the file leaves out.
pub(super) const DEFAULT: &str = "the default of ";

/// Keys that some classes do not read.
const OPTIONAL: [&str; 3] = ["head_dim", "num_key_value_heads", "attention_bias"];

/// The entries of a `config.json` as its class reads them, without those that the class ignores; `None` for other files.
pub(super) fn as_read(entries: &[ConfigEntry], names: &KindNames, family: Option<&Family>) -> Option<Vec<ConfigEntry>> {
    let of_type = published_type(entries)?;
    let name = of_type.value.bare()?.to_lowercase().replace('-', "_");
    let class = CLASSES.get(&name)?;
    let mut all = entries.to_vec();
    let table = of_type.parent().unwrap_or_default();
    let has = |name: &str| class.iter().any(|entry| entry.name() == name);
    all.retain(|entry| entry.parent() != Some(table) || !OPTIONAL.contains(&entry.name()) || has(entry.name()));
    let dims = family.iter().flat_map(|family| &family.keys).chain(&names.dims);
    let keys: Vec<&Words> = dims.map(|(_, keys)| keys).collect();
    // `num_hidden_layers` in place of `n_layer`
    let is_other_name = |own: &str, name: &str| !has(own) && keys.iter().any(|keys| keys.has(own) && keys.has(name));
    let sets = |own: &str, name: &str| own == name || is_other_name(own, name);
    let is_given = |name: &str| entries.iter().any(|entry| entry.parent() == Some(table) && sets(entry.name(), name));
    let mut missing: Vec<_> = class.iter().filter(|entry| !is_given(entry.name())).cloned().collect();
    missing.extend(labels(entries));
    for entry in &mut missing {
        entry.path.splice(..0, table.iter().cloned());
        // The file has no place of the value.
        entry.shown = format!("{DEFAULT}{name}");
        entry.span = of_type.span.clone();
    }
    all.extend(missing);
    Some(all)
}

/// The number of labels of a classifier without `num_labels`: those that have a name, else two.
fn labels(entries: &[ConfigEntry]) -> Option<ConfigEntry> {
    let heads = "architectures=*classification|*questionanswering";
    meeting(entries, heads).filter(|_| !entries.iter().any(|entry| entry.name() == "num_labels"))?;
    let names = entries.iter().find_map(|entry| match &entry.value {
        Value::Table(all) if entry.name() == "id2label" => Some(all.len()),
        _ => None,
    });
    let row = format!(r#"{{"num_labels": {}}}"#, names.unwrap_or(2));
    ConfigText::new(Path::new("labels"), Format::Json, &row).entries().ok()?.pop()
}

/// The model type of a `config.json` of Hugging Face.
pub(super) fn published_type(entries: &[ConfigEntry]) -> Option<&ConfigEntry> {
    let of_published =
        ["architectures", "transformers_version", "initializer_range", "hidden_act", "num_hidden_layers"];
    let mut named = entries.iter().filter(|entry| entry.name() == "model_type" && !is_beside_training(entry));
    named.find(|named| {
        let is_beside = |entry: &ConfigEntry| named.parent() == entry.parent() && of_published.contains(&entry.name());
        entries.iter().any(is_beside)
    })
}
