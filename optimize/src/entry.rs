//! The entries of a config with their paths.

use std::ops::Range;

use crate::document::{Aliases, ConfigText, Node, TAG, Value};
use crate::error::OptimizeError;
use crate::key_names::normal;
use crate::names::Names;

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

impl ConfigText {
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
                    if !entry.node.value.is_scalar() && Names::get().is_of_evaluation(&name) {
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
                        value: entry.node.value.clone(),
                        span: entry.node.span.clone(),
                        in_braces,
                        aliases: self.aliases.get(&entry.node.span.start).cloned().unwrap_or_default(),
                        sharing,
                    });
                    self.node(&entry.node, &path, &shown, sharing);
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
