//! Edits of a text that leave the rest unchanged.

use std::ops::Range;

use super::Format;

/// A byte range and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub span: Range<usize>,
    pub text: String,
}

/// Keys to add beside another key of the same table.
#[derive(Clone, Debug)]
pub(crate) struct Insertion {
    /// Range of the neighbour's key.
    pub beside_key: Range<usize>,
    /// Range of the neighbour's value, which is on one line.
    pub beside_value: Range<usize>,
    /// True if the table is in braces, as JSON's always are.
    pub in_braces: bool,
    /// Keys with their values.
    pub added: Vec<(String, String)>,
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

impl Insertion {
    /// Edits that add the keys behind their neighbour: on lines of their own where the neighbour is on one.
    pub(crate) fn edits(&self, format: Format, text: &str) -> Vec<Edit> {
        let Self { beside_key, beside_value, .. } = self;
        let line_start = text[..beside_key.start].rfind('\n').map_or(0, |newline| newline + 1);
        let before = &text[line_start..beside_key.start];
        let new_line = if text[..beside_value.end].contains("\r\n") { "\r\n" } else { "\n" };
        let at = |place: usize, text: String| Edit { span: place..place, text };
        let entries: Vec<String> = self.added.iter().map(|(key, value)| self.entry(key, value, format, text)).collect();
        let in_line = || vec![at(beside_value.end, format!(", {}", entries.join(", ")))];
        let lines = |indent: &str, between: &str| {
            entries.iter().map(|entry| format!("{new_line}{indent}{entry}")).collect::<Vec<_>>().join(between)
        };
        let line_end = line_end(text, beside_value.end);
        let rest = &text[beside_value.end..line_end];
        let own_line = own_line(format, before).filter(|_| !self.in_braces || format == Format::Json);
        match (format, own_line) {
            (Format::Json, Some(indent)) => {
                let (comma, comment) = match rest.trim_start().strip_prefix(',') {
                    Some(comment) => (true, comment),
                    None => (false, rest),
                };
                if !is_comment(comment) {
                    return in_line();
                }
                let (own, neighbours) = if comma { (",", "") } else { ("", ",") };
                vec![at(beside_value.end, neighbours.to_owned()), at(line_end, lines(&indent, ",") + own)]
            }
            (Format::Toml | Format::Yaml, Some(indent)) => vec![at(line_end, lines(&indent, ""))],
            (_, None) => in_line(),
        }
    }

    /// A key and its value in the neighbour's spelling.
    fn entry(&self, key: &str, value: &str, format: Format, text: &str) -> String {
        let Self { beside_key, beside_value, .. } = self;
        let neighbour = &text[beside_key.clone()];
        let quote = neighbour.chars().next().filter(|first| ['"', '\''].contains(first));
        let key = quote.map_or_else(|| key.to_owned(), |quote| format!("{quote}{key}{quote}"));
        let between = text.get(beside_key.end..beside_value.start).unwrap_or_default();
        let is_usual = between.trim() == if format == Format::Toml { "=" } else { ":" } && !between.contains('\n');
        let between = match (is_usual, format) {
            // Aligned values: the new one gets the usual space.
            (true, Format::Toml) => {
                between.split_once('=').map_or(" = ", |(before, _)| if before.is_empty() { "=" } else { " = " })
            }
            (true, Format::Json) => between.trim_start(),
            (true, Format::Yaml) | (false, Format::Json | Format::Yaml) => ": ",
            (false, Format::Toml) => " = ",
        };
        format!("{key}{between}{value}")
    }
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

/// End of the line around an offset, without its line break.
fn line_end(text: &str, place: usize) -> usize {
    let end = text[place..].find('\n').map_or(text.len(), |newline| place + newline);
    end - usize::from(text[place..end].ends_with('\r'))
}

/// Returns true if the rest of a line is empty or a comment.
fn is_comment(rest: &str) -> bool {
    let rest = rest.trim();
    let is_whole = |block: &str| block.find("*/").is_some_and(|end| end + 2 == block.len());
    rest.is_empty() || rest.starts_with("//") || rest.strip_prefix("/*").is_some_and(is_whole)
}
