//! Dimensions that are made of several keys: stages of blocks, levels, layers.

use gpu_tuned_core::dims::DimValue;

use super::names::Names;
use super::read::Reader;
use super::{Dims, Origin};

/// Adds what the kind is made of.
pub(super) fn compose(names: &'static Names, reader: &mut Reader<'_, '_>, dims: &mut Dims) {
    let mut counts = |part: &str| {
        let (_, aliases) = names.dims.iter().find(|(dim, _)| *dim == part)?;
        reader.counts(aliases, part)
    };
    match names.kind {
        "convnet" if !dims.has("stages") => {
            let (Some(widths), Some(blocks)) = (counts("{widths}"), counts("{blocks}")) else { return };
            let origin = keys(&[&widths.1, &blocks.1]);
            let is_residual = blocks.1.to_lowercase().contains("res");
            if let Some(stages) = stages(&widths.0, &blocks.0) {
                dims.put("stages", DimValue::Stages(stages), origin);
                if is_residual {
                    dims.put("block", DimValue::Choice("basic".to_owned()), Origin::Key(blocks.1));
                }
            }
        }
        "unet" if !dims.has("widths") => {
            let Some((widths, key)) = counts("{widths}") else { return };
            match (widths.as_slice(), counts("{blocks}")) {
                ([first], Some((levels, levels_key))) => {
                    let doubled = (0..levels[0].min(16)).map(|level| first << level).collect();
                    dims.put("widths", DimValue::Counts(doubled), keys(&[&key, &levels_key]));
                }
                ([_], None) => {}
                _ => dims.put("widths", DimValue::Counts(widths), keys(&[&key])),
            }
        }
        "mlp" if !dims.has("widths") => {
            let (inputs, hidden, outputs) = (counts("{inputs}"), counts("{widths}"), counts("{outputs}"));
            let (Some(inputs), Some(hidden)) = (inputs, hidden) else { return };
            let layers = counts("{blocks}").filter(|_| hidden.0.len() == 1);
            let repeated = layers.as_ref().map_or(1, |(layers, _)| layers[0].min(1024) as usize);
            let (result, result_key) = outputs.unwrap_or_else(|| (vec![1], String::new()));
            let inner = hidden.0.iter().copied().cycle().take(hidden.0.len() * repeated);
            let widths = inputs.0.iter().copied().take(1).chain(inner).chain(result.into_iter().take(1)).collect();
            let layers_key = layers.map_or_else(String::new, |(_, key)| key);
            dims.put("widths", DimValue::Counts(widths), keys(&[&inputs.1, &hidden.1, &layers_key, &result_key]));
        }
        _ => {}
    }
}

/// Keys that a dimension is made of.
fn keys(all: &[&str]) -> Origin {
    Origin::Key(all.iter().copied().filter(|key| !key.is_empty()).collect::<Vec<_>>().join(", "))
}

/// `[channels, blocks]` of each stage: lists of one length, or one number for all stages of the other.
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
