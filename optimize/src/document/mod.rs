//! Config files as trees whose keys and values have byte ranges: JSON, TOML and YAML alike.

mod edit;
mod json;
mod toml;
mod yaml;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_tuned_core::regular_file;
use gpu_tuned_core::source::{FileError, Source};

use crate::dialect::Dialect;
use crate::error::OptimizeError;
use crate::key_names::normal;
pub(crate) use edit::{Edit, Insertion, apply};

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

    /// Parses a text into a tree whose root is a table, and the aliases of its values.
    pub(crate) fn parse(self, source: Source<'_>) -> Result<(Node, Aliases), FileError> {
        let (root, aliases) = match self {
            Self::Json => (json::parse(source)?, Aliases::new()),
            Self::Toml => (toml::parse(source)?, Aliases::new()),
            Self::Yaml => yaml::parse(source)?,
        };
        match root.value {
            Value::Table(_) => Ok((root, aliases)),
            _ => Err(source.error(&root.span, "a config is a table of keys and values")),
        }
    }
}

/// Byte ranges of aliases by the start of their value.
pub(crate) type Aliases = HashMap<usize, Vec<Range<usize>>>;

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

impl Node {
    /// Lists paths and values of everything but tables and lists with content.
    fn collect_leaves(self, path: &str, all: &mut Vec<(String, Value)>) {
        match self.value {
            Value::Table(entries) if !entries.is_empty() => {
                for Entry { key, node, .. } in entries {
                    let path = if path.is_empty() { key } else { format!("{path}.{key}") };
                    node.collect_leaves(&path, all);
                }
            }
            Value::List(nodes) if !nodes.is_empty() => {
                for (index, node) in nodes.into_iter().enumerate() {
                    node.collect_leaves(&format!("{path}[{index}]"), all);
                }
            }
            value => all.push((path.to_owned(), value)),
        }
    }
}

/// Path of the first value that differs.
pub(crate) fn first_difference<'l>(
    mut before: impl Iterator<Item = &'l (String, Value)>,
    mut after: impl Iterator<Item = &'l (String, Value)>,
) -> Option<&'l str> {
    loop {
        match (before.next(), after.next()) {
            (None, None) => return None,
            (before, after) if before == after => {}
            (before, after) => return before.or(after).map(|(path, _)| path.as_str()),
        }
    }
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

    /// The path of normal names in a placeholder such as `${data.batch_size}` or `!ref <batch_size>`.
    pub(crate) fn reference(&self) -> Option<String> {
        let Self::Text(text) = self else { return None };
        let is_reference = ["${", "{{", "<", "$(", "@"].iter().any(|start| text.starts_with(start));
        let inner = || text.trim_start_matches(['$', '{', '<', '(', '@']).trim_end_matches(['}', '>', ')']).trim();
        is_reference.then(|| inner().split('.').map(normal).collect::<Vec<_>>().join("."))
    }

    /// Words of all placeholders of a text as paths of normal names: `mul`, `2`, `data.batch_size` of `${mul:2,${data.batch_size}}`.
    pub(crate) fn references(&self) -> impl Iterator<Item = String> + '_ {
        let text = match self {
            Self::Text(text) if ["${", "{{", "<", "$(", "@"].iter().any(|start| text.contains(start)) => text.as_str(),
            _ => "",
        };
        let inner = text.split(['{', '<', '(', '@']).skip(1).filter_map(|rest| rest.split(['}', '>', ')']).next());
        let words =
            inner.flat_map(|inner| inner.split(|letter: char| !letter.is_alphanumeric() && !"._".contains(letter)));
        self.reference().into_iter().chain(words.map(|path| path.split('.').map(normal).collect::<Vec<_>>().join(".")))
    }

    /// Returns true if the value is a placeholder.
    pub(crate) fn is_reference(&self) -> bool {
        self.reference().is_some()
    }

    /// The value as a whole number that is not negative.
    pub(crate) fn count(&self) -> Option<u64> {
        match self {
            // YAML 1.1 reads `010` as 8, and YAML 1.2 as 10.
            Self::Number(digits) if digits.len() > 1 && digits.starts_with('0') => None,
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

/// Key of a YAML table's tag.
pub(crate) const TAG: &str = "_tag_";

/// Deepest nesting of tables and lists.
const MAX_DEPTH: usize = 100;

#[cfg(test)]
mod tests;

/// Bytes of the largest config that is read. Its entries need far more memory than its text.
const LARGEST: u64 = 8 << 20;

/// The byte-order mark that some editors put before UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// A config file with its text.
#[derive(Clone, Debug)]
pub struct ConfigText {
    /// Path of the file.
    pub path: PathBuf,
    /// The file's name in messages.
    pub name: String,
    /// The text without a byte-order mark.
    pub text: String,
    /// Syntax of the text.
    pub format: Format,
    /// The user's dialects, which are tried before the shipped ones.
    pub dialects: Vec<&'static Dialect>,
    mark: &'static str,
}

impl ConfigText {
    /// Reads a file.
    ///
    /// # Errors
    ///
    /// An unknown extension, a file of more than 8 MiB, and a file that cannot be read as UTF-8.
    pub fn read(path: &Path) -> Result<Self, OptimizeError> {
        let format = Format::from_path(path).ok_or_else(|| OptimizeError::Format { path: path.to_owned() })?;
        let refuse = |source| OptimizeError::Read { path: path.to_owned(), source };
        let text = regular_file::read_text(path, LARGEST).map_err(refuse)?;
        Ok(Self::new(path, format, &text))
    }

    /// A text that is in a file at this path.
    pub fn new(path: &Path, format: Format, text: &str) -> Self {
        let (mark, text) = text.strip_prefix(BYTE_ORDER_MARK).map_or(("", text), |text| (BYTE_ORDER_MARK, text));
        Self {
            path: path.to_owned(),
            name: path.display().to_string(),
            text: text.to_owned(),
            format,
            dialects: Vec::new(),
            mark,
        }
    }

    /// Another text of the same file.
    pub(crate) fn edited(&self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self.clone() }
    }

    /// Paths and values of everything in the file but tables and lists with content.
    pub(crate) fn leaves(&self) -> Result<Vec<(String, Value)>, OptimizeError> {
        let (root, _) = self.format.parse(self.source()).map_err(|mistake| self.mistakes(vec![mistake]))?;
        let mut all = Vec::new();
        root.collect_leaves("", &mut all);
        Ok(all)
    }

    /// A text as the file stores it, with the byte-order mark.
    pub fn with_mark(&self, text: &str) -> String {
        format!("{}{text}", self.mark)
    }

    pub(crate) fn source(&self) -> Source<'_> {
        Source { file: &self.name, text: &self.text }
    }

    /// Mistakes together with this text.
    pub(crate) fn mistakes(&self, mistakes: Vec<FileError>) -> OptimizeError {
        let text: Arc<str> = self.text.as_str().into();
        OptimizeError::Mistakes(mistakes.into_iter().map(|mistake| (mistake, Arc::clone(&text))).collect())
    }
}
