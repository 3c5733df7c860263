//! Config files as trees whose keys and values have byte ranges, JSON, TOML and YAML alike, and their entries by path.

#[cfg(test)]
mod tests;
mod yaml;

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_tuned_core::regular_file;
use gpu_tuned_core::source::{FileError, Source};
use jsonc_parser::ast::{ObjectProp, ObjectPropName, Value as JsonValue};
use jsonc_parser::common::Ranged as _;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};
use toml_edit::{Document, Item, TableLike, Value as TomlValue};

use crate::error::OptimizeError;
use crate::names::{Names, normal};

/// Bytes of the largest config that is read. Its entries need far more memory than its text.
const LARGEST: u64 = 8 << 20;
/// Deepest nesting of tables and lists.
const MAX_DEPTH: usize = 100;
/// Key of a YAML table's tag.
pub(crate) const TAG: &str = "_tag_";
/// The byte-order mark that some editors put before UTF-8.
const BYTE_ORDER_MARK: &str = "\u{feff}";
/// Starts of placeholders.
const PLACEHOLDERS: [&str; 5] = ["${", "{{", "<", "$(", "@"];

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
            Self::Json => (parse_json(source)?, Aliases::new()),
            Self::Toml => (parse_toml(source)?, Aliases::new()),
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

    pub(crate) const fn is_scalar(&self) -> bool {
        !matches!(self, Self::Table(_) | Self::List(_))
    }

    /// The path of normal names in a placeholder such as `${data.batch_size}` or `!ref <batch_size>`.
    pub(crate) fn reference(&self) -> Option<String> {
        let Self::Text(text) = self else { return None };
        let is_reference = PLACEHOLDERS.iter().any(|start| text.starts_with(start));
        let inner = || text.trim_start_matches(['$', '{', '<', '(', '@']).trim_end_matches(['}', '>', ')']).trim();
        is_reference.then(|| normal_path(inner()))
    }

    /// Words of all placeholders of a text as paths of normal names: `mul`, `2`, `data.batch_size` of `${mul:2,${data.batch_size}}`.
    pub(crate) fn references(&self) -> impl Iterator<Item = String> + '_ {
        let text = match self {
            Self::Text(text) if PLACEHOLDERS.iter().any(|start| text.contains(start)) => text.as_str(),
            _ => "",
        };
        let inner = text.split(['{', '<', '(', '@']).skip(1).filter_map(|rest| rest.split(['}', '>', ')']).next());
        let words =
            inner.flat_map(|inner| inner.split(|letter: char| !letter.is_alphanumeric() && !"._".contains(letter)));
        self.reference().into_iter().chain(words.map(normal_path))
    }

    /// The value as a whole number that is not negative.
    pub(crate) fn count(&self) -> Option<u64> {
        match self {
            // YAML 1.1 reads `010` as 8, and YAML 1.2 as 10.
            Self::Number(digits) if digits.len() > 1 && digits.starts_with('0') => None,
            // `per_device_batch_size: 12.0`
            Self::Number(digits) => digits.strip_suffix(".0").unwrap_or(digits).parse().ok(),
            _ => None,
        }
    }

    /// The texts of a list and of the lists in it, without numbers beside them; the value itself, if it is single.
    pub(crate) fn texts(&self) -> Vec<String> {
        match self {
            Self::List(nodes) => {
                let parts = nodes.iter().filter(|node| !matches!(node.value, Self::Number(_)));
                parts.flat_map(|node| node.value.texts()).collect()
            }
            one => one.bare().into_iter().collect(),
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

fn normal_path(path: &str) -> String {
    path.split('.').map(normal).collect::<Vec<_>>().join(".")
}

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
        Self { path: path.to_owned(), name: path.display().to_string(), text: text.to_owned(), format, mark }
    }

    pub(crate) fn edited(&self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self.clone() }
    }

    /// The entries of the file: every table before its content, without tables of evaluation.
    ///
    /// # Errors
    ///
    /// Mistakes of syntax, with their place.
    pub fn entries(&self) -> Result<Vec<ConfigEntry>, OptimizeError> {
        let (root, aliases) = self.format.parse(self.source()).map_err(|mistake| self.mistakes(vec![mistake]))?;
        let mut evaluations = Vec::new();
        find_evaluations(&root, &mut evaluations);
        evaluations.sort_by_key(|span| span.start);
        let mut walk = Walk { text: &self.text, aliases, evaluations, all: Vec::new() };
        walk.node(&root, &[], "", Sharing::None);
        Ok(walk.all)
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

    pub(crate) fn mistakes(&self, mistakes: Vec<FileError>) -> OptimizeError {
        let text: Arc<str> = self.text.as_str().into();
        OptimizeError::Mistakes(mistakes.into_iter().map(|mistake| (mistake, Arc::clone(&text))).collect())
    }
}

/// An entry of a config with its path and its byte ranges.
#[derive(Clone, Debug)]
pub struct ConfigEntry {
    /// Names from the root on, in lower case with underscores.
    pub(crate) path: Vec<String>,
    /// The same path as the file spells it, with dots: `train.batchSize`.
    pub(crate) shown: String,
    /// The key as the file spells it.
    pub(crate) key: String,
    pub(crate) key_span: Range<usize>,
    pub(crate) value: Value,
    pub(crate) span: Range<usize>,
    /// True if the table of the entry is in braces.
    pub(crate) in_braces: bool,
    /// Byte ranges of aliases of the value.
    pub(crate) aliases: Vec<Range<usize>>,
    pub(crate) sharing: Sharing,
}

/// Use of an entry's table elsewhere in the file, by YAML aliases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Sharing {
    None,
    /// One other table has this one, at a byte of the file.
    Once(usize),
    /// Several tables have this one, or one of evaluation, so that a change would have effects elsewhere.
    Shared,
}

struct Walk<'t> {
    text: &'t str,
    aliases: Aliases,
    /// Byte ranges of the outermost tables of evaluation, in order.
    evaluations: Vec<Range<usize>>,
    all: Vec<ConfigEntry>,
}

fn find_evaluations(node: &Node, all: &mut Vec<Range<usize>>) {
    match &node.value {
        Value::Table(entries) => {
            for entry in entries {
                if !entry.node.value.is_scalar() && Names::get().is_of_evaluation(&normal(&entry.key)) {
                    all.push(entry.node.span.clone());
                } else {
                    find_evaluations(&entry.node, all);
                }
            }
        }
        Value::List(nodes) => nodes.iter().for_each(|node| find_evaluations(node, all)),
        _ => {}
    }
}

/// The name of an enum's variant in serde's form, such as `{"Norm": 1.0}`.
fn variant(value: &Value) -> Option<Value> {
    let Value::Table(entries) = value else { return None };
    let [entry] = entries.as_slice() else { return None };
    let is_name = entry.key.starts_with(char::is_uppercase)
        && entry.key.contains(char::is_lowercase)
        && entry.key.chars().all(char::is_alphanumeric);
    is_name.then(|| Value::Text(entry.key.clone()))
}

impl Walk<'_> {
    fn sharing(&self, node: &Node) -> Sharing {
        let is_evaluated = |alias: &Range<usize>| {
            let before = self.evaluations.partition_point(|span| span.start <= alias.start);
            self.evaluations[..before].last().is_some_and(|span| span.contains(&alias.start))
        };
        match self.aliases.get(&node.span.start).map(Vec::as_slice) {
            None | Some([]) => Sharing::None,
            Some([alias]) if !is_evaluated(alias) => Sharing::Once(alias.start),
            Some(_) => Sharing::Shared,
        }
    }

    fn node(&mut self, node: &Node, path: &[String], shown: &str, outer: Sharing) {
        let sharing = outer.max(self.sharing(node));
        match &node.value {
            Value::Table(entries) => {
                let in_braces = self.text.get(node.span.start..).is_some_and(|table| table.starts_with('{'));
                for entry in entries {
                    let name = normal(&entry.key);
                    let is_beside = !entry.node.value.is_scalar() && Names::get().is_of_evaluation(&name);
                    let has_switch =
                        |value: &Value| matches!(value, Value::Table(all) if all.iter().any(|it| it.key == "enabled"));
                    let is_table = matches!(entry.node.value, Value::Table(_));
                    // Such as DeepSpeed's `autotuning`. Lists such as `test_datasets` turn evaluation on.
                    if is_beside && is_table && !has_switch(&entry.node.value) {
                        continue;
                    }
                    let path = [path, &[name]].concat();
                    // A tag is shown as the key of its table.
                    let tagged = self.all.last().filter(|_| entry.key == TAG).map(|table| table.key_span.clone());
                    let shown = match (shown, &tagged) {
                        (shown, Some(_)) => shown.to_owned(),
                        ("", None) => entry.key.clone(),
                        (shown, None) => format!("{shown}.{}", entry.key),
                    };
                    self.all.push(ConfigEntry {
                        path: path.clone(),
                        shown: shown.clone(),
                        key: entry.key.clone(),
                        key_span: tagged.unwrap_or_else(|| entry.key_span.clone()),
                        value: variant(&entry.node.value).unwrap_or_else(|| entry.node.value.clone()),
                        span: entry.node.span.clone(),
                        in_braces,
                        aliases: self.aliases.get(&entry.node.span.start).cloned().unwrap_or_default(),
                        sharing,
                    });
                    if !is_beside {
                        self.node(&entry.node, &path, &shown, sharing);
                    }
                }
            }
            Value::List(nodes) => {
                for (index, inner) in nodes.iter().enumerate() {
                    self.node(inner, path, &format!("{shown}[{index}]"), sharing);
                }
            }
            _ => {}
        }
    }
}

impl ConfigEntry {
    /// The normal name of the key.
    pub(crate) fn name(&self) -> &str {
        self.path.last().map_or("", String::as_str)
    }

    /// Normal names of the tables around the entry, innermost first.
    pub(crate) fn tables(&self) -> impl Iterator<Item = &str> {
        self.path.iter().rev().skip(1).map(String::as_str)
    }

    /// The value as the file spells it.
    pub(crate) fn raw<'t>(&self, text: &'t str) -> &'t str {
        text.get(self.span.clone()).unwrap_or_default()
    }

    /// Names of the entry's table from the root on.
    pub(crate) fn parent(&self) -> Option<&[String]> {
        self.path.split_last().map(|(_, table)| table)
    }

    /// The value as the file spells it, with its YAML tag.
    pub(crate) fn with_tag(&self, text: &str) -> String {
        let before = text.get(self.key_span.end..self.span.start).unwrap_or_default();
        let tag = before.split_whitespace().find(|word| word.starts_with('!'));
        tag.into_iter().chain([self.raw(text)]).collect::<Vec<_>>().join(" ")
    }

    /// Byte range of the value, or of the key where the value is empty.
    pub(crate) fn place(&self) -> Range<usize> {
        if self.span.is_empty() { self.key_span.clone() } else { self.span.clone() }
    }
}

/// Parses JSON with comments and trailing commas.
fn parse_json(source: Source<'_>) -> Result<Node, FileError> {
    let options = ParseOptions { allow_missing_commas: false, ..ParseOptions::default() };
    let parsed = parse_to_ast(source.text, &CollectOptions::default(), &options).map_err(|error| {
        let mut message = error.kind().to_string();
        message.get_mut(..1).into_iter().for_each(str::make_ascii_lowercase);
        source.error(&span(error.range()), message)
    })?;
    let root = parsed.value.ok_or_else(|| source.error(&(0..0), "the file is empty"))?;
    Ok(json_node(&root))
}

fn span(range: jsonc_parser::common::Range) -> Range<usize> {
    range.start..range.end
}

fn json_node(parsed: &JsonValue<'_>) -> Node {
    let value = match parsed {
        JsonValue::NullKeyword(_) => Value::Null,
        JsonValue::BooleanLit(flag) => Value::Flag(flag.value),
        JsonValue::NumberLit(number) => Value::Number(number.value.to_owned()),
        JsonValue::StringLit(text) => Value::Text(text.value.to_string()),
        JsonValue::Array(list) => Value::List(list.elements.iter().map(json_node).collect()),
        JsonValue::Object(object) => {
            let entry = |property: &ObjectProp<'_>| {
                let (key, range) = match &property.name {
                    ObjectPropName::String(name) => (name.value.to_string(), name.range),
                    ObjectPropName::Word(name) => (name.value.to_owned(), name.range),
                };
                Entry { key, key_span: span(range), node: json_node(&property.value) }
            };
            Value::Table(object.properties.iter().map(entry).collect())
        }
    };
    Node { value, span: span(parsed.range()) }
}

fn parse_toml(source: Source<'_>) -> Result<Node, FileError> {
    let document = Document::parse(source.text)
        .map_err(|error| source.error(&error.span().unwrap_or(0..0), error.message().replace('\n', "; ")))?;
    Ok(toml_item(document.as_item()))
}

fn toml_item(found: &Item) -> Node {
    let span = found.span().unwrap_or(0..0);
    let value = match found {
        Item::None => Value::Null,
        Item::Value(value) => return toml_value(value),
        Item::Table(inner) => toml_entries(inner),
        Item::ArrayOfTables(tables) => {
            let node =
                |inner: &toml_edit::Table| Node { value: toml_entries(inner), span: inner.span().unwrap_or(0..0) };
            Value::List(tables.iter().map(node).collect())
        }
    };
    Node { value, span }
}

fn toml_entries(found: &dyn TableLike) -> Value {
    let entry = |(name, inner): (&str, &Item)| {
        let key_span = found.key(name).and_then(toml_edit::Key::span).unwrap_or(0..0);
        Entry { key: name.to_owned(), key_span, node: toml_item(inner) }
    };
    Value::Table(found.iter().map(entry).collect())
}

fn toml_value(found: &TomlValue) -> Node {
    let span = found.span().unwrap_or(0..0);
    let value = match found {
        TomlValue::Boolean(flag) => Value::Flag(*flag.value()),
        TomlValue::Integer(number) => Value::Number(number.value().to_string()),
        TomlValue::Float(number) => Value::Number(format!("{:?}", number.value())),
        TomlValue::String(text) => Value::Text(text.value().clone()),
        TomlValue::Datetime(moment) => Value::Text(moment.value().to_string()),
        TomlValue::Array(list) => Value::List(list.iter().map(toml_value).collect()),
        TomlValue::InlineTable(inner) => toml_entries(inner),
    };
    Node { value, span }
}
