//! YAML: one document. Aliases of numbers, texts and flags are resolved; those of tables and lists are texts with their name.

use std::collections::HashMap;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::{Aliases, Entry, FileError, MAX_DEPTH, Node, Source, TAG, Value};

pub(super) fn parse(source: Source<'_>) -> Result<(Node, Aliases), FileError> {
    if let Some((at, _)) =
        source.text.char_indices().find(|(_, letter)| matches!(letter, '\u{85}' | '\u{2028}' | '\u{2029}'))
    {
        let message = "readers disagree on whether this character (NEL, LS or PS) ends a line: replace it";
        return Err(source.error(&(at..at), message));
    }
    parse_text(source, source.text).or_else(|error| match on_one_line(source.text) {
        Some(joined) => parse_text(source, &joined).map_err(|_| error),
        None => Err(error),
    })
}

/// Parses a text whose characters are at the offsets of the source.
fn parse_text(source: Source<'_>, text: &str) -> Result<(Node, Aliases), FileError> {
    let mut tree = Tree::new(source);
    for event in Parser::new_from_str(text) {
        let (event, span) = event.map_err(|error| {
            let at = tree.byte(error.marker().index());
            source.error(&(at..at), error.info())
        })?;
        let span = tree.bytes(span);
        tree.take(event, span)?;
    }
    let root = tree.root.ok_or_else(|| source.error(&(0..0), "the file is empty"))?;
    Ok((root, tree.aliases))
}

/// The text with spaces in place of line breaks and comments in brackets: the parser refuses brackets that are not indented, and
/// Python's readers do not. `None` if brackets do not match.
fn on_one_line(text: &str) -> Option<String> {
    let mut joined = String::with_capacity(text.len());
    let (mut depth, mut before, mut is_comment) = (0_usize, '\n', false);
    let mut at = 0;
    while let Some(letter) = text[at..].chars().next() {
        is_comment &= letter != '\n';
        let starts_token = before.is_whitespace() || "[{,:".contains(before);
        let start = at;
        at += letter.len_utf8();
        match letter {
            _ if is_comment => {}
            '"' | '\'' if starts_token => {
                at = quoted_end(text, start, letter).unwrap_or(text.len());
                joined.push_str(&text[start..at]);
                before = letter;
                continue;
            }
            '#' if before.is_whitespace() => is_comment = true,
            '[' | '{' if starts_token || depth > 0 => depth += 1,
            ']' | '}' if depth > 0 => depth -= 1,
            _ => {}
        }
        let is_blank = depth > 0 && (is_comment || matches!(letter, '\n' | '\r'));
        joined.push(if is_blank { ' ' } else { letter });
        before = letter;
    }
    (depth == 0).then_some(joined)
}

/// End of a quoted text that starts at an offset.
fn quoted_end(text: &str, start: usize, quote: char) -> Option<usize> {
    let mut letters = text.get(start..)?.char_indices().skip(1).peekable();
    while let Some((at, letter)) = letters.next() {
        let next = letters.peek().map(|(_, next)| *next);
        match letter {
            '\\' if quote == '"' => drop(letters.next()),
            _ if letter != quote => {}
            '\'' if next == Some('\'') => drop(letters.next()),
            _ => return Some(start + at + letter.len_utf8()),
        }
    }
    None
}

/// The tree while events are read.
struct Tree<'t> {
    source: Source<'t>,
    /// Byte offset of each character, and of the end.
    starts: Vec<usize>,
    open: Vec<Open>,
    /// Starts of anchored values, with the value of scalars.
    anchored: HashMap<usize, (usize, Value)>,
    aliases: Aliases,
    root: Option<Node>,
}

/// A table or list whose end was not read yet.
struct Open {
    start: usize,
    /// A key without its value yet.
    key: Option<(String, Range<usize>)>,
    /// The table or list so far.
    value: Value,
}

impl<'t> Tree<'t> {
    fn new(source: Source<'t>) -> Self {
        let starts = source.text.char_indices().map(|(byte, _)| byte).chain([source.text.len()]).collect();
        Self { source, starts, open: Vec::new(), anchored: HashMap::new(), aliases: Aliases::new(), root: None }
    }

    fn byte(&self, character: usize) -> usize {
        self.starts.get(character).copied().unwrap_or(self.source.text.len())
    }

    /// Byte range of a value, without its anchor and tag.
    fn bytes(&self, span: Span) -> Range<usize> {
        let (mut start, end) = (self.byte(span.start.index()), self.byte(span.end.index()));
        while let Some(rest) = self.source.text.get(start..end).filter(|rest| rest.starts_with(['&', '!'])) {
            let property = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let gap = rest[property..].find(|letter: char| !letter.is_whitespace()).unwrap_or(rest.len() - property);
            start += property + gap;
        }
        start..end
    }

    fn take(&mut self, event: Event<'_>, span: Range<usize>) -> Result<(), FileError> {
        let node = match event {
            Event::Scalar(text, style, anchor, tag) => {
                // The parser's range of a quoted text includes a comment behind it.
                let quote = match style {
                    ScalarStyle::DoubleQuoted => Some('"'),
                    ScalarStyle::SingleQuoted => Some('\''),
                    _ => None,
                };
                let end = quote.and_then(|quote| quoted_end(self.source.text, span.start, quote));
                let span = span.start..end.unwrap_or(span.end);
                let value = match class(tag.as_deref()).filter(|_| text.is_empty()) {
                    Some(class) => Value::Text(class),
                    None if is_resolved(style, tag.as_deref()) => plain(&text),
                    // The settings of another file.
                    None if tag.is_some_and(|tag| tag.suffix == "include") => Value::Text(format!("!include {text}")),
                    None => Value::Text(text.into_owned()),
                };
                self.anchored.insert(anchor, (span.start, value.clone()));
                Node { value, span }
            }
            Event::Alias(anchor) => {
                let (start, value) = self.anchored.get(&anchor).cloned().unwrap_or((usize::MAX, Value::Null));
                let name = || Value::Text(self.source.text.get(span.clone()).unwrap_or_default().to_owned());
                let value = if value.is_scalar() { value } else { name() };
                self.aliases.entry(start).or_default().push(span.clone());
                Node { value, span }
            }
            Event::SequenceStart(anchor, _) => return self.open(span.start, anchor, Value::List(Vec::new())),
            Event::MappingStart(anchor, tag) => {
                let at = span.start..span.start;
                let entry = |class| Entry {
                    key: TAG.to_owned(),
                    key_span: at.clone(),
                    node: Node { value: Value::Text(class), span: at.clone() },
                };
                let entries = class(tag.as_deref()).map(entry).into_iter().collect();
                return self.open(span.start, anchor, Value::Table(entries));
            }
            Event::SequenceEnd | Event::MappingEnd => {
                let Some(Open { start, value, .. }) = self.open.pop() else { return Ok(()) };
                Node { value, span: start..span.end.max(start) }
            }
            Event::DocumentStart(_) if self.root.is_some() => {
                return Err(self.source.error(&span, "a config is one document, and here begins another"));
            }
            _ => return Ok(()),
        };
        match self.open.last_mut() {
            None => self.root = Some(node),
            Some(Open { value: Value::List(nodes), .. }) => nodes.push(node),
            Some(Open { value, key, .. }) => match (value, key.take()) {
                (Value::Table(entries), Some((key, key_span))) => entries.push(Entry { key, key_span, node }),
                // Tables are no keys.
                _ => *key = Some((node.value.bare().unwrap_or_default(), node.span)),
            },
        }
        Ok(())
    }

    fn open(&mut self, start: usize, anchor: usize, value: Value) -> Result<(), FileError> {
        self.anchored.insert(anchor, (start, Value::List(Vec::new())));
        if self.open.len() >= MAX_DEPTH {
            return Err(self.source.error(&(start..start), format!("more than {MAX_DEPTH} tables in each other")));
        }
        self.open.push(Open { start, key: None, value });
        Ok(())
    }
}

/// The class of a tag such as `!name:torch.optim.Adam`.
fn class(tag: Option<&Tag>) -> Option<String> {
    let (kind, class) = tag.filter(|tag| tag.handle == "!")?.suffix.split_once(':')?;
    ["name", "new"].contains(&kind).then(|| class.to_owned())
}

/// Returns true if a scalar's type follows from its text: without a tag where it is unquoted, and with a tag such as `!!int`.
fn is_resolved(style: ScalarStyle, tag: Option<&Tag>) -> bool {
    tag.map_or(style == ScalarStyle::Plain, |tag| tag.is_yaml_core_schema() && tag.suffix != "str")
}

/// Value of an unquoted text, with the flags of YAML 1.1 that Python's readers accept.
fn plain(text: &str) -> Value {
    let digits = text.replace('_', "");
    let is_number = digits.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first))
        && digits.contains(|letter: char| letter.is_ascii_digit())
        && digits.parse::<f64>().is_ok();
    match text {
        "" | "~" | "null" | "Null" | "NULL" => Value::Null,
        "true" | "True" | "TRUE" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" => Value::Flag(true),
        "false" | "False" | "FALSE" | "no" | "No" | "NO" | "off" | "Off" | "OFF" => Value::Flag(false),
        _ if is_number => Value::Number(digits.trim_start_matches('+').to_owned()),
        _ => Value::Text(text.to_owned()),
    }
}
