//! YAML: one document. Aliases of numbers, texts and flags are resolved; other aliases are null.

use std::collections::HashMap;
use std::ops::Range;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::{Entry, FileError, MAX_DEPTH, Node, Source, Value, table};

pub(super) fn parse(source: Source<'_>) -> Result<Node, FileError> {
    let mut tree = Tree::new(source);
    for event in Parser::new_from_str(source.text) {
        let (event, span) = event.map_err(|error| {
            let at = tree.byte(error.marker().index());
            source.error(&(at..at), error.info())
        })?;
        let span = tree.bytes(span);
        tree.take(event, span)?;
    }
    tree.root.ok_or_else(|| source.error(&(0..0), "the file is empty"))
}

/// The tree while events are read.
struct Tree<'t> {
    source: Source<'t>,
    /// Byte offset of each character, and of the end.
    starts: Vec<usize>,
    open: Vec<Open>,
    /// Anchored scalars.
    anchored: HashMap<usize, Value>,
    root: Option<Node>,
}

/// A table or list whose end was not read yet.
struct Open {
    start: usize,
    /// A key without its value yet.
    key: Option<(String, Range<usize>)>,
    content: Content,
}

enum Content {
    List(Vec<Node>),
    Table(Vec<Entry>),
}

impl<'t> Tree<'t> {
    fn new(source: Source<'t>) -> Self {
        let starts = source.text.char_indices().map(|(byte, _)| byte).chain([source.text.len()]).collect();
        Self { source, starts, open: Vec::new(), anchored: HashMap::new(), root: None }
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
        match event {
            Event::Scalar(text, style, anchor, _) => {
                let value = if style == ScalarStyle::Plain { plain(&text) } else { Value::Text(text.into_owned()) };
                if anchor > 0 {
                    self.anchored.insert(anchor, value.clone());
                }
                self.put(Node { value, span });
                Ok(())
            }
            Event::Alias(anchor) => {
                let value = self.anchored.get(&anchor).cloned().unwrap_or(Value::Null);
                self.put(Node { value, span });
                Ok(())
            }
            Event::SequenceStart(..) => self.open(span.start, Content::List(Vec::new())),
            Event::MappingStart(..) => self.open(span.start, Content::Table(Vec::new())),
            Event::SequenceEnd | Event::MappingEnd => self.close(span.end),
            Event::DocumentStart(_) if self.root.is_some() => {
                Err(self.source.error(&span, "a config is one document, and here begins another"))
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, start: usize, content: Content) -> Result<(), FileError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(self.source.error(&(start..start), format!("more than {MAX_DEPTH} tables in each other")));
        }
        self.open.push(Open { start, key: None, content });
        Ok(())
    }

    fn close(&mut self, end: usize) -> Result<(), FileError> {
        let Some(Open { start, content, .. }) = self.open.pop() else { return Ok(()) };
        let value = match content {
            Content::List(nodes) => Value::List(nodes),
            Content::Table(entries) => table(entries, self.source)?,
        };
        self.put(Node { value, span: start..end.max(start) });
        Ok(())
    }

    fn put(&mut self, node: Node) {
        let Some(open) = self.open.last_mut() else {
            self.root = Some(node);
            return;
        };
        match (&mut open.content, open.key.take()) {
            (Content::List(nodes), _) => nodes.push(node),
            (Content::Table(entries), Some((key, key_span))) => entries.push(Entry { key, key_span, node }),
            (Content::Table(_), None) => open.key = Some((key(&node.value), node.span)),
        }
    }
}

/// A key as text; tables have none.
fn key(value: &Value) -> String {
    match value {
        Value::Text(text) | Value::Number(text) => text.clone(),
        Value::Flag(flag) => flag.to_string(),
        Value::Null | Value::List(_) | Value::Table(_) => String::new(),
    }
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
