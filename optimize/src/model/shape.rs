//! Dimensions that combine several keys: stages of blocks, levels, layers.

use gpu_tuned_core::dims::DimValue;

use super::dims::{Dims, Origin};
use super::read::Reader;
use crate::names::KindNames;

/// Adds the dimensions that the kind combines from several keys.
pub(super) fn compose(names: &KindNames, reader: &mut Reader<'_>, dims: &mut Dims) {
    let mut counts = |part: &str| reader.counts(names, part);
    match names.name.as_str() {
        "convnet" if !dims.has("stages") => {
            let (Some(widths), Some(blocks)) = (counts("{widths}"), counts("{blocks}")) else { return };
            if let Some(stages) = stages(&widths.0, &blocks.0) {
                dims.add("stages", DimValue::Stages(stages), keys(&[&widths.1, &blocks.1]));
                if blocks.1.to_lowercase().contains("res") {
                    dims.add("block", DimValue::Choice("basic".to_owned()), Origin::Key(blocks.1));
                }
            }
        }
        "unet" if !dims.has("widths") => {
            let Some((widths, key)) = counts("{widths}") else { return };
            match (widths.as_slice(), counts("{blocks}")) {
                ([first], Some((levels, levels_key))) => {
                    let doubled = (0..levels[0].min(16)).map(|level| first << level).collect();
                    dims.add("widths", DimValue::Counts(doubled), keys(&[&key, &levels_key]));
                }
                ([_], None) => {}
                _ => dims.add("widths", DimValue::Counts(widths), keys(&[&key])),
            }
        }
        "mlp" if !dims.has("widths") => {
            let (inputs, hidden, outputs) = (counts("{inputs}"), counts("{widths}"), counts("{outputs}"));
            let (Some(inputs), Some(hidden)) = (inputs, hidden) else { return };
            let layers = counts("{blocks}").filter(|_| hidden.0.len() == 1);
            let repeated = layers.as_ref().map_or(1, |(layers, _)| layers[0].min(1024) as usize);
            let outputs = outputs.unwrap_or_else(|| (vec![1], String::new()));
            let inner = hidden.0.iter().copied().cycle().take(hidden.0.len() * repeated);
            let widths = inputs.0.iter().copied().take(1).chain(inner).chain(outputs.0.into_iter().take(1)).collect();
            let layers_key = layers.map_or_else(String::new, |(_, key)| key);
            dims.add("widths", DimValue::Counts(widths), keys(&[&inputs.1, &hidden.1, &layers_key, &outputs.1]));
        }
        _ => {}
    }
}

/// The keys that a dimension combines.
fn keys(all: &[&str]) -> Origin {
    Origin::Key(all.iter().copied().filter(|key| !key.is_empty()).collect::<Vec<_>>().join(", "))
}

/// `[channels, blocks]` of each stage: from lists of one length, or one number for all stages of the other list.
fn stages(widths: &[u64], blocks: &[u64]) -> Option<Vec<[u64; 2]>> {
    match (widths, blocks) {
        ([width], blocks) => Some(blocks.iter().map(|blocks| [*width, *blocks]).collect()),
        (widths, [blocks]) => Some(widths.iter().map(|width| [*width, *blocks]).collect()),
        (widths, blocks) if widths.len() == blocks.len() => {
            Some(widths.iter().zip(blocks).map(|(width, blocks)| [*width, *blocks]).collect())
        }
        _ => None,
    }
}
