//! A config file as a tree whose keys and values know their places: JSON, TOML and YAML alike.

mod edit;
mod json;
mod toml;
mod yaml;

use std::ops::Range;
use std::path::Path;

use gpu_tuned_core::source::{FileError, Source};

pub(super) use edit::{Edit, Insertion, applied};

/// How a config is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Format {
    Json,
    Toml,
    Yaml,
}

impl Format {
    /// By the name's extension.
    pub(super) fn of(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" | "jsonc" | "json5" => Some(Self::Json),
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }

    /// The tree of a text.
    pub(super) fn parse(self, source: Source<'_>) -> Result<Node, FileError> {
        let root = match self {
            Self::Json => json::parse(source),
            Self::Toml => toml::parse(source),
            Self::Yaml => yaml::parse(source),
        }?;
        match root.value {
            Value::Table(_) => Ok(root),
            _ => Err(source.error(&root.span, "a config is a table of keys and values")),
        }
    }
}

/// A value and where it stands, in bytes.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    pub value: Value,
    pub span: Range<usize>,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Flag(bool),
    /// A number as it is written, without separators.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

/// A key and its value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Entry {
    pub key: String,
    pub key_span: Range<usize>,
    pub node: Node,
}

impl Value {
    /// What it is, for messages.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Flag(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// Whether it stands for what is elsewhere, as `${data.batch_size}` does.
    pub(super) fn is_reference(&self) -> bool {
        matches!(self, Self::Text(text) if text.starts_with("${") || text.starts_with("{{"))
    }

    /// The whole number that it is, if it is one and not negative.
    pub(super) fn count(&self) -> Option<u64> {
        match self {
            Self::Number(digits) => digits.parse().ok(),
            _ => None,
        }
    }
}

/// Files hold no more tables and lists in each other than this.
const DEEPEST: usize = 100;

/// The entries, unless a key is there twice.
fn table(entries: Vec<Entry>, source: Source<'_>) -> Result<Value, FileError> {
    for (index, entry) in entries.iter().enumerate() {
        // YAML may have tables as keys, which are nobody's settings.
        let is_name = !entry.key.is_empty();
        if is_name && entries[..index].iter().any(|other| other.key == entry.key) {
            return Err(source.error(&entry.key_span, format!("`{}` is given twice", entry.key)));
        }
    }
    Ok(Value::Table(entries))
}

#[cfg(test)]
mod tests;
