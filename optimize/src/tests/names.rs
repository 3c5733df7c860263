//! Names of models, dimensions and keys.

use gpu_tuned_core::dims::named;
use gpu_tuned_core::suggest_key;
use gpu_tuned_core::workload::{ModelKind, Optimizer};

use crate::names::{Names, contains_word, normal, optimizer_in};

#[test]
fn every_kind_and_dimension_exists() {
    for names in &Names::get().kinds {
        let kind = ModelKind::named(&names.name).unwrap_or_else(|| panic!("no kind {}", names.name));
        for (dim, _) in names.dims.iter().filter(|(dim, _)| !dim.starts_with('{')) {
            assert!(named(kind.dims, dim).is_some(), "{}: no dimension {dim}", names.name);
        }
        for (dim, value, _) in &names.assumed {
            let dim = named(kind.dims, dim).unwrap_or_else(|| panic!("{}: no dimension {dim}", names.name));
            let is_other = value.as_str().is_some_and(|other| named(kind.dims, other).is_some());
            assert!(is_other || dim.kind.read(value).is_some(), "{}: {} = {value}", names.name, dim.name);
        }
    }
    for layout in &Names::get().layout {
        // A family of a dialect has a name of its own.
        for word in layout.words.iter().filter(|word| !word.ends_with("_trainer")) {
            let of_kinds = Names::get().kinds.iter().flat_map(|kind| kind.words.iter());
            assert!(of_kinds.into_iter().any(|kind| contains_word(word, kind)), "{word}: no word of a kind");
        }
        let given = layout.given.iter().flat_map(|(_, values)| values);
        let dims = layout.dims.iter().map(|(dim, value)| (dim, value));
        for (dim, value) in dims.chain(given) {
            let mut kinds = ModelKind::ALL.iter().filter_map(|kind| named(kind.dims, dim));
            assert!(kinds.any(|dim| dim.kind.read(value).is_some()), "{dim} = {value}");
        }
    }
}

#[test]
fn suggested_keys_have_the_same_meaning_as_in_configs() {
    for names in &Names::get().kinds {
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
                let agrees = given.is_none_or(|given| given.starts_with('…') || given.starts_with(&value.to_string()));
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

#[test]
fn spellings_of_a_name_have_one_normal_form() {
    for (key, name) in [
        ("batchSize", "batch_size"),
        ("batch-size", "batch_size"),
        ("BATCH_SIZE", "batch_size"),
        ("IMS_PER_BATCH", "ims_per_batch"),
        ("numGPUs", "num_gpus"),
        ("fp16", "fp16"),
    ] {
        assert_eq!(normal(key), name);
    }
}
