//! Names and values in the spelling of existing ones.

use crate::document::{Format, Value};
use crate::edit::{like, spelled};

#[test]
fn names_follow_their_siblings() {
    for (sibling, becomes) in [
        ("batch_size", "num_workers"),
        ("batch-size", "num-workers"),
        ("BATCH_SIZE", "NUM_WORKERS"),
        ("batchSize", "numWorkers"),
        ("bs", "num_workers"),
    ] {
        assert_eq!(like("num_workers", sibling), becomes);
    }
}

#[test]
fn words_keep_the_quotes_of_the_format() {
    let text = |text: &str| Value::Text(text.to_owned());
    for (format, now, raw, word, becomes) in [
        (Format::Json, text("bf16"), "\"bf16\"", "fp16", "\"fp16\""),
        (Format::Json, Value::Number("32".to_owned()), "32", "bf16", "\"bf16\""),
        (Format::Json, Value::Null, "null", "4", "4"),
        (Format::Toml, text("no"), "'''no'''", "bf16", "'''bf16'''"),
        (Format::Toml, text("no"), "'no'", "bf16", "'bf16'"),
        (Format::Toml, text(""), "''", "bf16", "'bf16'"),
        (Format::Yaml, text("bf16"), "bf16", "no", "'no'"),
        (Format::Yaml, text("bf16"), "bf16", "32", "'32'"),
        (Format::Yaml, Value::Flag(true), "Yes", "false", "No"),
    ] {
        assert_eq!(spelled(&now, raw, word, format), becomes, "{raw} in {format:?}");
    }
}
