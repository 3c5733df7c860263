//! The tables of dialects.

use crate::dialect::{DIALECTS, Role, ends, known};

#[test]
fn every_dialect_is_documented_and_without_mistakes() {
    for dialect in DIALECTS.iter() {
        assert_eq!(dialect.mistake(), None, "{}", dialect.name);
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
