//! The entries of a config with their paths.

use std::ops::Range;

use crate::dialect::normal;
use crate::document::{ConfigText, Node, Value};
use crate::error::OptimizeError;

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
    /// Whether the table of the entry is in braces.
    pub(crate) in_braces: bool,
}

/// Tables whose settings are not those of training.
const NOT_OF_TRAINING: &str = "eval evaluate evaluation val valid validate validation test testing dev inference predict \
                               prediction generation export";

impl ConfigText {
    /// The entries of the file: every table before its content, without tables of evaluation.
    ///
    /// # Errors
    ///
    /// Mistakes of syntax, with their place.
    pub fn entries(&self) -> Result<Vec<ConfigEntry>, OptimizeError> {
        let root = self.format.parse(self.source()).map_err(|mistake| self.mistakes(vec![mistake]))?;
        let mut all = Vec::new();
        walk(&root, &[], "", &self.text, &mut all);
        Ok(all)
    }
}

fn walk(node: &Node, path: &[String], shown: &str, text: &str, all: &mut Vec<ConfigEntry>) {
    match &node.value {
        Value::Table(entries) => {
            let in_braces = text.get(node.span.start..).is_some_and(|table| table.starts_with('{'));
            for entry in entries {
                let name = normal(&entry.key);
                if !entry.node.value.is_scalar() && NOT_OF_TRAINING.split(' ').any(|table| table == name) {
                    continue;
                }
                let path = [path, &[name]].concat();
                let shown = if shown.is_empty() { entry.key.clone() } else { format!("{shown}.{}", entry.key) };
                all.push(ConfigEntry {
                    path: path.clone(),
                    shown: shown.clone(),
                    key: entry.key.clone(),
                    key_span: entry.key_span.clone(),
                    value: entry.node.value.clone(),
                    span: entry.node.span.clone(),
                    in_braces,
                });
                walk(&entry.node, &path, &shown, text, all);
            }
        }
        Value::List(nodes) => {
            for (index, inner) in nodes.iter().enumerate() {
                walk(inner, path, &format!("{shown}[{index}]"), text, all);
            }
        }
        _ => {}
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

    /// Byte range of the value, or of the key where the value is empty.
    pub(crate) fn place(&self) -> Range<usize> {
        if self.span.is_empty() { self.key_span.clone() } else { self.span.clone() }
    }
}
