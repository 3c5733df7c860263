//! Config files as trees whose keys and values have byte ranges: JSON, TOML and YAML alike.

mod edit;
mod file;
mod json;
mod toml;
mod yaml;

use std::ops::Range;
use std::path::Path;

use gpu_tuned_core::source::{FileError, Source};

pub(crate) use edit::{Edit, Insertion, apply};
pub use file::ConfigText;

/// Syntax of a config file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Format {
    /// JSON, with or without comments.
    Json,
    /// TOML.
    Toml,
    /// YAML.
    Yaml,
}

impl Format {
    /// The format of a file, by its extension.
    pub fn from_path(path: &Path) -> Option<Self> {
        match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "json" | "jsonc" | "json5" => Some(Self::Json),
            "toml" => Some(Self::Toml),
            "yaml" | "yml" => Some(Self::Yaml),
            _ => None,
        }
    }

    /// Parses a text into a tree whose root is a table.
    pub(crate) fn parse(self, source: Source<'_>) -> Result<Node, FileError> {
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

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Node {
    pub value: Value,
    pub span: Range<usize>,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Flag(bool),
    /// A number as written, without separators.
    Number(String),
    Text(String),
    List(Vec<Node>),
    Table(Vec<Entry>),
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub key: String,
    pub key_span: Range<usize>,
    pub node: Node,
}

impl Value {
    /// The type's name in messages.
    pub(crate) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Flag(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Table(_) => "a table",
        }
    }

    /// Returns true if the value is neither a table nor a list.
    pub(crate) const fn is_scalar(&self) -> bool {
        !matches!(self, Self::Table(_) | Self::List(_))
    }

    /// Returns true if the value is a placeholder such as `${data.batch_size}`.
    pub(crate) fn is_reference(&self) -> bool {
        matches!(self, Self::Text(text) if text.starts_with("${") || text.starts_with("{{"))
    }

    /// The value as a whole number that is not negative.
    pub(crate) fn count(&self) -> Option<u64> {
        match self {
            Self::Number(digits) => digits.parse().ok(),
            _ => None,
        }
    }

    /// The value without quotes; `None` for null, lists and tables.
    pub(crate) fn bare(&self) -> Option<String> {
        match self {
            Self::Text(text) | Self::Number(text) => Some(text.clone()),
            Self::Flag(flag) => Some(flag.to_string()),
            Self::Null | Self::List(_) | Self::Table(_) => None,
        }
    }
}

/// Deepest nesting of tables and lists.
const MAX_DEPTH: usize = 100;

/// A table of these entries; a key that is there twice is an error.
fn table(entries: Vec<Entry>, source: Source<'_>) -> Result<Value, FileError> {
    for (index, entry) in entries.iter().enumerate() {
        // YAML allows tables as keys, which have no name.
        let is_name = !entry.key.is_empty();
        if is_name && entries[..index].iter().any(|other| other.key == entry.key) {
            return Err(source.error(&entry.key_span, format!("`{}` is given twice", entry.key)));
        }
    }
    Ok(Value::Table(entries))
}

#[cfg(test)]
mod tests;
