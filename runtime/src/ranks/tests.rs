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
