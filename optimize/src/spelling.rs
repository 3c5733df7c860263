//! Spelling of names and values beside existing ones.

use crate::document::{Format, Value};

/// A name in the style of its sibling: dashes, capitals, or camel case.
pub(crate) fn like(name: &str, sibling: &str) -> String {
    let has_small = sibling.chars().any(char::is_lowercase);
    let has_large = sibling.chars().any(char::is_uppercase);
    match (sibling.contains('-'), has_small, has_large) {
        (true, ..) => name.replace('_', "-"),
        (false, false, true) => name.to_uppercase(),
        (false, true, true) if !sibling.contains('_') => {
            let mut words = name.split('_');
            let first = words.next().unwrap_or_default().to_owned();
            words.fold(first, |mut joined, word| {
                let mut letters = word.chars();
                joined.extend(letters.next().map(|letter| letter.to_ascii_uppercase()));
                joined + letters.as_str()
            })
        }
        _ => name.to_owned(),
    }
}

/// A word in place of `raw`: in the same quotes, and as the same kind of flag.
pub(crate) fn spelled(now: &Value, raw: &str, word: &str, format: Format) -> String {
    let is_flag = word == "true" || word == "false";
    let word = match (is_flag, now) {
        (true, Value::Text(text)) => flag_like(text, word),
        (true, _) => flag_like(raw, word),
        _ => word.to_owned(),
    };
    let is_number = word.parse::<f64>().is_ok();
    let is_bare = is_flag || is_number;
    match (raw.chars().next(), now) {
        _ if word == "null" && format != Format::Toml => word,
        (Some(quote @ ('"' | '\'')), _) => {
            let end = raw.chars().rev().take_while(|last| *last == quote).count().min(3);
            let quotes: String = core::iter::repeat_n(quote, if end == 3 { 3 } else { 1 }).collect();
            format!("{quotes}{word}{quotes}")
        }
        // YAML reads `no` as a flag, and a number as one.
        (_, Value::Text(_)) if format == Format::Yaml && is_number => format!("'{word}'"),
        _ if is_bare => word,
        _ if format == Format::Yaml && !["no", "yes", "on", "off"].contains(&word.as_str()) => word,
        _ if format == Format::Yaml => format!("'{word}'"),
        _ => format!("\"{word}\""),
    }
}

/// `true` or `false` in the words of the present value.
fn flag_like(raw: &str, word: &str) -> String {
    const WORDS: &str = "true/false True/False TRUE/FALSE yes/no Yes/No YES/NO on/off On/Off 1/0";
    let pairs = WORDS.split(' ').filter_map(|pair| pair.split_once('/'));
    let (yes, no) = pairs.into_iter().find(|(yes, no)| *yes == raw || *no == raw).unwrap_or(("true", "false"));
    (if word == "true" { yes } else { no }).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{like, spelled};
    use crate::document::{Format, Value};

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
}
