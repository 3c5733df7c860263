//! Dimensions that the training's config gives: lengths, adapters, packed weights.

use gpu_tuned_core::dims::{DimValue, Schema as _, named};
use gpu_tuned_core::source::FileError;
use gpu_tuned_core::workload::{ModelKind, Training};

use super::dims::{Dims, Origin};
use super::read::value;
use crate::config::Config;
use crate::dialect::{Key, Role};
use crate::document::Value;
use crate::error::MOST_MISTAKES;
use crate::matched::{MatchedKey, Meaning};
use crate::names::Names;

/// Adds the dimensions that the training's config gives: lengths, adapters, packed weights. Returns its mistakes.
pub(super) fn add_training(config: &Config, kind: &'static ModelKind, dims: &mut Dims) -> Vec<FileError> {
    let (source, mut mistakes) = (config.file.source(), Vec::new());
    let is_adapted = match config.with_role(Role::Adapter).next().map(|key| (key, key.meaning(source.text))) {
        Some((_, Meaning::Known(word))) => word == "on",
        Some((key, Meaning::Unknown)) if !key.is_left => return vec![key.unknown(source)],
        _ => config.dialect.default_of(Role::Adapter, "").is_none_or(|default| default == "on"),
    };
    let find = |row: &Key| {
        let dim = named(kind.dims, &row.dim).or_else(|| named(Training::DIMS, &row.dim));
        dim.filter(|dim| dim.name != "lora_targets" && (is_adapted || dim.name != "lora_rank"))
    };
    for key in config.with_role(Role::Dim).filter(|key| !key.is_left && !key.is_open()) {
        if mistakes.len() >= MOST_MISTAKES {
            break;
        }
        let Some(dim) = find(key.row) else { continue };
        let read = match key.meaning(source.text) {
            _ if key.row.words.is_empty() => {
                value(dim, &key.entry).map_err(|message| source.error(&key.entry.place(), message))
            }
            Meaning::Known(word) => Ok(dim.kind.read(&toml::Value::String(word.to_owned()))),
            Meaning::Open => Ok(None),
            Meaning::Unknown => Err(key.unknown(source)),
        };
        let shown = &key.entry.shown;
        match (read, dims.get(dim.name)) {
            (Ok(Some(value)), Some(other)) if value != *other && dims.origin(dim.name) != Some(&Origin::Option) => {
                let message = format!(
                    "`{shown}` and another key both look like the training's {0}; choose with --dim {0}=…",
                    dim.name
                );
                mistakes.push(source.error(&key.entry.key_span, message));
            }
            (Ok(Some(value)), _) => dims.add(dim.name, value, Origin::Key(shown.clone())),
            (Ok(None), _) => {}
            (Err(mistake), _) => mistakes.push(mistake),
        }
    }
    for row in config.dialect.rows(Role::Dim) {
        let number = || row.default.as_ref()?.parse().ok().map(toml::Value::Integer);
        if let Some((dim, value)) = find(row).and_then(|dim| Some((dim, dim.kind.read(&number()?)?))) {
            dims.add(dim.name, value, Origin::Assumed(format!("the default of {}", config.dialect.name)));
        }
    }
    mistakes.extend(targets(config, dims).err());
    mistakes
}

/// Adds the matrices that have adapters.
fn targets(config: &Config, dims: &mut Dims) -> Result<(), FileError> {
    let source = config.file.source();
    let text = |value: &Value| value.bare().unwrap_or_default();
    let words = |key: &MatchedKey| match (&key.entry.value, key.meaning(source.text)) {
        (_, Meaning::Known(words)) => words.split(' ').map(str::to_owned).collect(),
        _ if !key.row.words.is_empty() => Vec::new(),
        (Value::List(nodes), _) => nodes.iter().map(|node| text(&node.value)).collect(),
        (value, _) => text(value).split([',', '|']).map(|word| word.trim().to_owned()).collect::<Vec<_>>(),
    };
    let keys = config.with_role(Role::Dim).filter(|key| key.row.dim == "lora_targets");
    let all: Vec<_> = keys.map(|key| (key, words(key))).filter(|(_, words)| !words.concat().is_empty()).collect();
    let default = config.dialect.default_of(Role::Dim, "lora_targets").and_then(|word| Names::get().matrices(word));
    if !dims.has("lora_rank") || dims.has("lora_targets") || all.is_empty() && default.is_none() {
        return Ok(());
    }
    let mut matrices: Vec<&str> = default.filter(|_| all.is_empty()).into_iter().collect();
    for (key, word) in all.iter().flat_map(|(key, words)| words.iter().map(move |word| (key, word))) {
        let remedy = "name the matrices with adapters: --dim 'lora_targets=[\"query\", \"value\"]'";
        let message = || format!("`{}`: no matrix is known as `{word}`; {remedy}", key.entry.shown);
        let found = Names::get().matrices(word);
        matrices.push(found.ok_or_else(|| source.error(&key.entry.place(), message()))?);
    }
    let mut matrices: Vec<_> = matrices.iter().flat_map(|words| words.split(' ')).map(str::to_owned).collect();
    matrices.sort_unstable();
    matrices.dedup();
    let from = all.iter().map(|(key, _)| key.entry.shown.as_str()).collect::<Vec<_>>().join(", ");
    let origin = if from.is_empty() {
        Origin::Assumed(format!("the default of {}", config.dialect.name))
    } else {
        Origin::Key(from)
    };
    dims.add("lora_targets", DimValue::ChoiceList(matrices), origin);
    Ok(())
}
