//! Values that ranks compare as they join.

use std::hash::{DefaultHasher, Hash, Hasher};

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_ranks::{JoinError, Terms};

use super::RanksError;
use crate::saved::SavedRun;
use crate::tuned::Tuned;

/// Prefix of the terms of config fields.
const FIELD: &str = "config field ";
/// Longest text that ranks exchange as it is.
const LONGEST: usize = 200;
/// Characters of a longer text that an error shows.
const SHOWN: usize = 80;

/// Values with which ranks may train together, and their devices, which differ on a host.
pub(super) fn terms<C: Tuned>(config: &C, saved: Option<&SavedRun>, gpu: Option<&GpuReading>) -> Terms {
    let terms = Terms::default()
        .same("gpu-tuned", env!("CARGO_PKG_VERSION"))
        .same("config", C::BUILT.config)
        .same("feature cuda", cfg!(feature = "cuda").to_string());
    let fields = config.compared().into_iter();
    let terms = fields.fold(terms, |terms, (name, text)| {
        let name = name.trim_start_matches("r#");
        terms.same(format!("{FIELD}{name}"), shortened(&sorted(&text)))
    });
    let terms = terms
        .same("model", json(&config.workload()))
        .same("goal", json(&config.asked()))
        .same("saved run", saved.map_or_else(|| "none".to_owned(), |saved| shortened(&saved.identity())));
    match gpu.and_then(|gpu| gpu.uuid.clone().or_else(|| Some(gpu.pci_address?.to_string()))) {
        Some(gpu) => terms.distinct_on_host("GPU", gpu),
        None => terms,
    }
}

/// The error of a join, with the config field that differs.
pub(super) fn error(error: JoinError) -> RanksError {
    match error {
        JoinError::Term { rank, host, term, value, expected } if term.starts_with(FIELD) => {
            RanksError::Field { field: term[FIELD.len()..].to_owned(), rank, host, value, expected }
        }
        other => other.into(),
    }
}

/// The value as text; empty for one without.
fn json(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// A text, or the beginning and a hash of a long one.
fn shortened(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let beginning: String = text.chars().take(SHOWN).collect();
    format!("{beginning}… ({} bytes, hash {:016x})", text.len(), hasher.finish())
}

/// The parts of a `Debug` text, sorted if it may be that of a hash map, which has another order in each process.
fn sorted(text: &str) -> String {
    if !text.contains('{') {
        return text.to_owned();
    }
    let mut parts: Vec<_> = text.split(['{', '}', '[', ']', '(', ')', ',']).map(str::trim).collect();
    parts.sort_unstable();
    parts.retain(|part| !part.is_empty());
    parts.join(", ")
}

#[cfg(test)]
mod tests {
    use std::collections::{HashMap, HashSet};

    use super::{LONGEST, shortened, sorted};

    #[test]
    fn hash_maps_have_one_text() {
        #[derive(Debug)]
        #[expect(dead_code, reason = "the text is compared")]
        struct Config {
            text: &'static str,
            weights: HashMap<u32, Vec<Option<f32>>>,
            names: HashSet<String>,
        }
        let config = |keys: &mut dyn Iterator<Item = u32>| {
            let keys: Vec<_> = keys.collect();
            let weights = keys.iter().map(|key| (*key, vec![None, Some(*key as f32)])).collect();
            let names = keys.iter().map(|key| format!("{key}, \"}}{{")).collect();
            sorted(&format!("{:?}", Config { text: "a }, { \\\"", weights, names }))
        };
        let first = config(&mut (0..20));
        assert_eq!(first, config(&mut (0..20).rev()));
        assert_ne!(first, config(&mut (0..21)));
    }

    #[test]
    fn other_texts_keep_their_order() {
        for text in ["[2, 1]", "Some(\"b, a\")", "a}", ""] {
            assert_eq!(sorted(text), text);
        }
        assert_ne!(sorted("A { a: 1, b: 2 }"), sorted("A { a: 2, b: 1 }"));
    }

    #[test]
    fn long_texts_are_compared_by_their_hash() {
        let long = |end: &str| shortened(&format!("{}{end}", "ä".repeat(LONGEST)));
        assert_eq!(long("a"), long("a"));
        assert_ne!(long("a"), long("b"));
        assert!(long("a").starts_with("ää") && long("a").len() < LONGEST, "{}", long("a"));
    }
}
