use super::{SYNONYMS, suggest, suggest_key};
use crate::dims::Schema as _;
use crate::workload::{ModelKind, Training};

#[test]
fn only_a_near_miss_is_suggested() {
    let known = ["rtx4090", "h200"];
    assert_eq!(suggest("rtx4900", known), "; did you mean `rtx4090`?");
    assert_eq!(suggest("RTX4900", known), "; did you mean `rtx4090`?");
    assert_eq!(suggest("AdamW", ["adam", "adamw"]), "; did you mean `adamw`?");
    assert_eq!(suggest("voodoo2", known), "");
}

#[test]
fn names_of_other_libraries_suggest_the_key_that_the_model_has() {
    let keys = |kind| ModelKind::named(kind).expect("a kind").dims.iter().map(|dim| dim.name).collect::<Vec<_>>();
    for (kind, word, key) in [
        ("transformer", "hidden_size", "d_model"),
        ("recurrent", "hidden_size", "hidden"),
        ("transformer", "vocab_size", "vocab"),
        ("transformer", "seq_len", "seq"),
        ("encoder_decoder", "num_heads", "heads"),
        ("vit", "patch_size", "patch"),
        ("unet", "layers_per_block", "blocks"),
        // A typing error of a key.
        ("transformer", "layer", "layers"),
    ] {
        assert_eq!(suggest_key(word, &keys(kind)), format!("; did you mean `{key}`?"), "{kind}: {word}");
    }
    assert_eq!(suggest_key("hidden_size", &keys("unet")), "");
}

#[test]
fn every_key_with_synonyms_exists() {
    let of_goal = ["global_batch", "world_size"];
    for (key, _) in SYNONYMS {
        let mut dims = ModelKind::ALL.iter().flat_map(|kind| kind.dims).chain(Training::DIMS);
        assert!(of_goal.contains(key) || dims.any(|dim| dim.name == *key), "{key}");
    }
}
