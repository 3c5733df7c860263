//! Identifies the kind of model by the names in a config.

use crate::dialect::normal;
use crate::document::Value;
use crate::entry::ConfigEntry;
use crate::names::{KindNames, Names};

/// A kind of model with the reason for it.
#[derive(Clone, Debug)]
pub(super) struct Evidence {
    pub names: &'static KindNames,
    /// The option or key that identifies the kind.
    pub by: String,
    /// Word of the kind in the model's name.
    pub word: Option<&'static str>,
}

/// The only kind that the file can mean, or all candidates.
pub(super) fn identify(entries: &[ConfigEntry]) -> Result<Evidence, Vec<Evidence>> {
    let mut named: Vec<Evidence> = Vec::new();
    for entry in entries {
        for (text, by) in model_names(entry) {
            for names in Names::get().kinds() {
                let word = names.words.iter().find(|word| contains(&text, word));
                if let Some(word) = word.filter(|_| named.iter().all(|one| one.names.name != names.name)) {
                    named.push(Evidence { names, by: by.clone(), word: Some(word) });
                }
            }
        }
    }
    if named.is_empty() {
        let by_key = |names: &'static KindNames| {
            let entry = entries.iter().find(|entry| names.distinctive.has(entry.name()))?;
            Some(Evidence { names, by: format!("`{}`", entry.shown), word: None })
        };
        named = Names::get().kinds().filter_map(by_key).collect();
    }
    if named.len() == 1 { Ok(named.remove(0)) } else { Err(named) }
}

/// Texts of an entry that can name a model, each with the entry for messages.
fn model_names(entry: &ConfigEntry) -> Vec<(String, String)> {
    let keys = &Names::get().keys;
    let mut texts = vec![(entry.name().to_owned(), format!("`{}`", entry.shown))];
    let is_within = entry.tables().any(|table| keys.sections.has(table));
    let names_a_model = keys.naming.has(entry.name()) || is_within && keys.naming_within.has(entry.name());
    let first = match &entry.value {
        Value::List(nodes) => nodes.first().map(|node| &node.value),
        other => Some(other),
    };
    if let (true, Some(Value::Text(text))) = (names_a_model, first) {
        // The class of a path such as `torchvision.models.resnet18`.
        let class = text.rsplit(['.', '/']).next().unwrap_or(text);
        texts.push((normal(class), format!("`{} = {text}`", entry.shown)));
    }
    texts
}

/// Returns true if a name contains a word; words of up to three letters only at the start of a part.
fn contains(name: &str, word: &str) -> bool {
    let squashed: String = name.chars().filter(char::is_ascii_alphanumeric).collect();
    if word.len() > 3 {
        return squashed.contains(word);
    }
    squashed.starts_with(word)
        || name.split(|letter: char| !letter.is_ascii_alphanumeric()).any(|part| part.starts_with(word))
}
