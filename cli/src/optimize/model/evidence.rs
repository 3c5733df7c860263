//! Which kind of model a config is of, by what it says.

use super::names::{KINDS, NAMING, NAMING_WITHIN, Names, SECTIONS};
use crate::optimize::keys::normal;
use crate::optimize::leaf::Leaf;
use crate::optimize::text::Value;

/// The kind, and what tells it.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub names: &'static Names,
    /// The word or key that tells it.
    pub by: String,
    /// The word of the kind, where a name has one.
    pub word: Option<&'static str>,
}

/// What the file says of the kind: a single one, or those that it could be.
pub(super) fn weigh(leaves: &[Leaf<'_>]) -> Result<Evidence, Vec<Evidence>> {
    let mut named: Vec<Evidence> = Vec::new();
    for leaf in leaves {
        for (text, by) in texts(leaf) {
            for names in KINDS {
                let word = names.words.iter().find(|word| contains(&text, word));
                if let Some(word) = word.filter(|_| named.iter().all(|one| one.names.kind != names.kind)) {
                    named.push(Evidence { names, by: by.clone(), word: Some(word) });
                }
            }
        }
    }
    if named.is_empty() {
        named = KINDS
            .iter()
            .filter_map(|names| {
                let leaf = leaves.iter().find(|leaf| names.telling.contains(&leaf.name()))?;
                Some(Evidence { names, by: format!("`{}`", leaf.shown), word: None })
            })
            .collect();
    }
    match named.len() {
        1 => Ok(named.remove(0)),
        _ => Err(named),
    }
}

/// What of an entry may name a model, and how to say where that was.
fn texts(leaf: &Leaf<'_>) -> Vec<(String, String)> {
    let mut texts = vec![(leaf.name().to_owned(), format!("`{}`", leaf.shown))];
    let is_within = leaf.path.iter().rev().skip(1).any(|table| SECTIONS.contains(&table.as_str()));
    let names = NAMING.contains(&leaf.name()) || is_within && NAMING_WITHIN.contains(&leaf.name());
    let first = match &leaf.entry.node.value {
        Value::List(nodes) => nodes.first().map(|node| &node.value),
        other => Some(other),
    };
    if let (true, Some(Value::Text(text))) = (names, first) {
        // Of a class's path the class.
        let class = text.rsplit(['.', '/']).next().unwrap_or(text);
        texts.push((normal(class), format!("`{} = {text}`", leaf.shown)));
    }
    texts
}

/// Whether a name has a word: short ones begin a part of it, long ones may be anywhere.
fn contains(name: &str, word: &str) -> bool {
    let squashed: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    if word.len() > 3 {
        return squashed.contains(word);
    }
    squashed.starts_with(word)
        || name.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|part| part.starts_with(word))
}
