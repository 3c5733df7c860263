//! The tables of dialects.

use gpu_tuned_core::dims::Schema as _;
use gpu_tuned_core::workload::{ModelKind, Training};

use crate::dialect::{DIALECTS, Key, Role, ends, known};
use crate::names::{Words, normal};

/// Features that change the memory of PyTorch, or what a step allows.
const FEATURES: &str = "half_weights flash_attention prepared fused_cross_entropy zero_stage fsdp_units whole_step checkpointing_stays offload split_batches fused compiled distributed gradient_buffers no_sync";

/// Meanings and dimensions of a row are those of its role.
fn check(key: &Key) {
    let expected: &[&str] = match key.role {
        role if role.is_of_precision() => &["f32", "mixed_bf16", "mixed_f16", "bf16_params"],
        Role::Tf32 | Role::Checkpointing => &["true", "false", "stays", "offload"],
        Role::Adapter => &["on", "off"],
        _ => &[],
    };
    for (meaning, _) in key.words.iter().flatten().filter(|(it, _)| !["", "?"].contains(&it.as_str())) {
        assert!(expected.is_empty() || expected.contains(&meaning.as_str()), "{meaning}: {key:?}");
    }
    let mut dims = ModelKind::ALL.iter().flat_map(|kind| kind.dims.iter()).chain(Training::DIMS);
    match key.role {
        Role::Dim => assert!(dims.any(|dim| dim.name == key.dim), "{key:?}"),
        Role::Feature => assert!(FEATURES.split(' ').any(|name| name == key.dim), "{key:?}"),
        _ => {}
    }
}

#[test]
fn every_dialect_is_documented_and_without_mistakes() {
    for dialect in DIALECTS.iter() {
        let sets = dialect.recognised.iter().flat_map(Words::iter);
        for name in dialect.keys.iter().flat_map(|key| key.names.iter()).chain(sets) {
            assert_eq!(normal(name), *name, "{}", dialect.name);
        }
        assert!(dialect.is_plain() || !dialect.recognised.is_empty(), "{}", dialect.name);
        dialect.keys.iter().for_each(check);
        assert!(dialect.documentation.starts_with("https://"), "{}", dialect.name);
        let names: Vec<_> = dialect.keys.iter().flat_map(|key| key.names.iter()).collect();
        for (index, name) in names.iter().enumerate() {
            assert!(!names[..index].contains(name), "{}: {name} is there twice", dialect.name);
        }
    }
}

#[test]
fn the_documentation_lists_every_ecosystem() {
    let page = include_str!("../../../docs/optimize.md");
    let table = page.split("| ecosystem |").nth(1).and_then(|rest| rest.split("\n\n").next()).expect("a table");
    let all = DIALECTS.iter().filter(|dialect| !dialect.adds_on_request || dialect.name == "Burn");
    for dialect in all {
        assert!(table.contains(&dialect.name), "{}", dialect.name);
    }
}

#[test]
fn defaults_have_the_address_of_their_documentation() {
    let all: Vec<_> = DIALECTS.iter().flat_map(|dialect| &dialect.defaults).collect();
    assert!(all.len() > 10 && all.iter().all(|row| row.source.starts_with("https://")));
}

#[test]
fn dotted_names_match_the_end_of_a_path() {
    let path = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    assert_eq!(known(&path(&["deepspeed", "fp16", "enabled"])).map(|key| key.role), Some(Role::Precision));
    assert!(known(&path(&["logger", "enabled"])).is_none());
    assert_eq!(known(&path(&["train", "batch_size"])).map(|key| key.role), Some(Role::Batch));
    assert!(ends(&path(&["batch"]), ".batch") && !ends(&path(&["train", "batch"]), ".batch"));
}
