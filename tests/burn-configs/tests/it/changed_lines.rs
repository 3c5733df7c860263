//! Lines changed by annotating a config of Burn's examples.

use similar::{DiffOp, TextDiff};

const MOST: usize = 5;

/// Lines added, removed, or replaced one by another. Everything in the source counts, the import too; `build.rs` and
/// `gpu-tuned.toml` are not part of it.
fn changed_lines(before: &str, after: &str) -> usize {
    let diff = TextDiff::from_lines(before, after);
    let changed = diff.ops().iter().map(|op| match op {
        DiffOp::Equal { .. } => 0,
        DiffOp::Delete { old_len, .. } => *old_len,
        DiffOp::Insert { new_len, .. } => *new_len,
        DiffOp::Replace { old_len, new_len, .. } => *old_len.max(new_len),
    });
    changed.sum()
}

#[test]
fn a_config_of_burns_examples_takes_at_most_five_changed_lines() {
    for (name, before, after) in [
        ("guide", include_str!("../../before/guide.rs"), include_str!("../../src/guide.rs")),
        ("mnist", include_str!("../../before/mnist.rs"), include_str!("../../src/mnist.rs")),
        ("custom_loop", include_str!("../../before/custom_loop.rs"), include_str!("../../src/custom_loop.rs")),
        (
            "text_classification",
            include_str!("../../before/text_classification.rs"),
            include_str!("../../src/text_classification.rs"),
        ),
    ] {
        let changed = changed_lines(before, after);
        assert!((1..=MOST).contains(&changed), "{name}: {changed} lines");
    }
}

#[test]
fn every_kind_of_change_is_counted() {
    for (before, after, expected) in [
        ("a\nb\n", "a\nb\n", 0),
        ("a\nb\n", "a\nx\nb\n", 1),
        ("a\nb\n", "b\n", 1),
        ("a\nb\nc\n", "a\nx\nc\n", 1),
        ("a\nb\nc\n", "a\nx\ny\nc\n", 2),
    ] {
        assert_eq!(changed_lines(before, after), expected, "{before:?} to {after:?}");
    }
}
