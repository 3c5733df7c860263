//! Edits of a text that leave the rest unchanged, in the spelling of what is there.

use std::ops::Range;

use crate::document::{ConfigEntry, Format, Value};

/// A byte range and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub span: Range<usize>,
    pub text: String,
}

/// Applies edits that do not overlap; edits at one offset keep their order.
pub(crate) fn apply(text: &str, mut edits: Vec<Edit>) -> String {
    edits.sort_by_key(|edit| edit.span.start);
    let mut changed = String::with_capacity(text.len());
    let mut at = 0;
    for Edit { span, text: new } in edits {
        changed.push_str(&text[at..span.start]);
        changed.push_str(&new);
        at = span.end;
    }
    changed + &text[at..]
}

/// Edits that add keys with their values behind an entry of the same table, whose value is on one line: on lines of their own
/// where the entry is on one.
pub(crate) fn insertion(beside: &ConfigEntry, added: &[(String, String)], format: Format, text: &str) -> Vec<Edit> {
    let (key, end) = (&beside.key_span, beside.span.end);
    let line_start = text[..key.start].rfind('\n').map_or(0, |newline| newline + 1);
    let before = &text[line_start..key.start];
    let new_line = if text[..end].contains("\r\n") { "\r\n" } else { "\n" };
    let at = |place: usize, text: String| Edit { span: place..place, text };
    let entries: Vec<String> = added.iter().map(|(key, value)| entry_like(beside, key, value, format, text)).collect();
    let in_line = || vec![at(end, format!(", {}", entries.join(", ")))];
    let lines = |indent: &str, between: &str| {
        entries.iter().map(|entry| format!("{new_line}{indent}{entry}")).collect::<Vec<_>>().join(between)
    };
    let line_end = text[end..].find('\n').map_or(text.len(), |newline| end + newline);
    let line_end = line_end - usize::from(text[end..line_end].ends_with('\r'));
    let rest = &text[end..line_end];
    let own_line = own_line(format, before).filter(|_| !beside.in_braces || format == Format::Json);
    match (format, own_line) {
        (Format::Json, Some(indent)) => {
            let (comment, own, neighbours) = match rest.trim_start().strip_prefix(',') {
                Some(comment) => (comment, ",", ""),
                None => (rest, "", ","),
            };
            if !is_comment(comment) {
                return in_line();
            }
            vec![at(end, neighbours.to_owned()), at(line_end, lines(&indent, ",") + own)]
        }
        (Format::Toml | Format::Yaml, Some(indent)) => vec![at(line_end, lines(&indent, ""))],
        (_, None) => in_line(),
    }
}

/// A key and its value in the spelling of an entry.
fn entry_like(beside: &ConfigEntry, key: &str, value: &str, format: Format, text: &str) -> String {
    let quote = text[beside.key_span.clone()].chars().next().filter(|first| ['"', '\''].contains(first));
    let key = quote.map_or_else(|| key.to_owned(), |quote| format!("{quote}{key}{quote}"));
    let between = text.get(beside.key_span.end..beside.span.start).unwrap_or_default();
    let is_usual = between.trim() == if format == Format::Toml { "=" } else { ":" } && !between.contains('\n');
    let between = match (is_usual, format) {
        // Aligned values: the new one gets the usual space.
        (true, Format::Toml) if between.starts_with('=') => "=",
        (true, Format::Json) => between.trim_start(),
        (_, Format::Toml) => " = ",
        _ => ": ",
    };
    format!("{key}{between}{value}")
}

/// Indentation of a line of the same table, when the key is the first of its line.
fn own_line(format: Format, before: &str) -> Option<String> {
    let is_blank = before.chars().all(char::is_whitespace);
    match format {
        Format::Json => is_blank.then(|| before.to_owned()),
        // `training.batch_size = 16`
        Format::Toml => (!before.contains(['{', '=', ','])).then(|| before.to_owned()),
        // `- batch_size: 16`
        Format::Yaml => {
            let blank = before.replace('-', " ");
            blank.chars().all(char::is_whitespace).then_some(blank)
        }
    }
}

/// Returns true if the rest of a line is empty or a comment.
fn is_comment(rest: &str) -> bool {
    let rest = rest.trim();
    let is_whole = |block: &str| block.find("*/").is_some_and(|end| end + 2 == block.len());
    rest.is_empty() || rest.starts_with("//") || rest.strip_prefix("/*").is_some_and(is_whole)
}

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
