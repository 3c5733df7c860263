//! Effects of changes on other parts of a config.

use std::collections::{BTreeMap, HashSet};

use crate::change::{Change, ChangeState};
use crate::config::Config;
use crate::dialect::{Role, Spelling, ends};
use crate::document::Value;
use crate::entry::ConfigEntry;
use crate::matched::MatchedKey;

/// Most keys of a note.
const MOST_LISTED: usize = 8;

/// Notes on tables that are merged into one other: a changed key of each, by the place of the alias.
pub(crate) fn merges<'a>(text: &'a str, merged: &'a BTreeMap<usize, String>) -> impl Iterator<Item = String> + 'a {
    let line = |at: usize| text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1;
    merged
        .iter()
        .map(move |(at, key)| format!("the table of `{key}` is merged in line {}, and changes there, too", line(*at)))
}

/// A note on values that refer to changed keys.
pub(crate) fn references(entries: &[ConfigEntry], values: &[(String, Value)], changes: &[Change]) -> Option<String> {
    let is_changed = |change: &&Change| change.state == ChangeState::Changed;
    let keys: HashSet<_> = changes.iter().filter(is_changed).map(|change| change.key.as_str()).collect();
    let changed: Vec<_> = entries.iter().filter(|entry| keys.contains(entry.shown.as_str())).collect();
    let is_meant = |names: &str| !names.is_empty() && changed.iter().any(|entry| ends(&entry.path, names));
    let follows = |(path, value): &&(String, Value)| {
        !keys.contains(path.as_str()) && value.references().any(|names| is_meant(names.trim_start_matches('.')))
    };
    let mut following = values.iter().filter(follows).map(|(path, _)| format!("`{path}`"));
    let listed = following.by_ref().take(MOST_LISTED).collect::<Vec<_>>().join(", ");
    let more = following.count();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    (!listed.is_empty()).then(|| format!("values that refer to changed keys change with them: {listed}{more}"))
}

/// Notes on keys that count micro-batches, whose size changes.
pub(crate) fn micro_batches(config: &Config, from: u64, to: u64) -> impl Iterator<Item = String> + '_ {
    let note = move |key: &MatchedKey| {
        let shown = &key.entry.shown;
        let sizes = format!("{to} samples in place of {from}");
        match &key.entry.value {
            Value::Flag(true) if key.spelling == Spelling::Flag => Some(format!(
                "`{shown}` scales the learning rate by the micro-batch, which has {sizes}: set the rate by hand"
            )),
            value => {
                let count = value.count().filter(|count| *count > 0)?;
                let same = (count as f64 * from as f64 / to as f64 * 10.0).round() / 10.0;
                Some(format!(
                    "`{shown}` counts micro-batches, which have {sizes}: {same} have as many samples as the {count}"
                ))
            }
        }
    };
    let keys = config.with_role(Role::MicroBatches).filter(move |key| from != to && !key.is_left);
    keys.filter_map(note)
}
