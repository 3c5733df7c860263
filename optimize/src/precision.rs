//! The precision that a config requests with one or several keys, and their values for another precision.

use gpu_tuned_core::{Precision, Setting};

use crate::dialect::{Dialect, Key, Role, Spelling};
use crate::matched::{MatchedKey, MatchedKeys, Meaning};

/// The precision that the keys request together; fp32 without any.
pub(crate) fn read(keys: &mut MatchedKeys<'_>) -> Precision {
    let source = keys.source;
    let all: Vec<MatchedKey> = keys.all.iter().filter(|key| key.role.is_of_precision()).cloned().collect();
    let mut requested: Vec<(Precision, &MatchedKey)> = Vec::new();
    for key in &all {
        let flag = |precision| key.flag(source).map(|on| on.filter(|on| *on).map(|_| precision));
        let read = match key.spelling {
            Spelling::FlagFor(precision) => flag(precision),
            Spelling::AmpSwitch => flag(Precision::MixedF16),
            Spelling::Present(precision) => Ok(Some(precision)),
            _ => match key.meaning(source.text) {
                Meaning::Known(word) => Ok(word.parse().ok()),
                Meaning::Open => Ok(None),
                Meaning::Unknown if key.is_left => Ok(None),
                Meaning::Unknown => Err(key.unknown(source)),
            },
        };
        requested.extend(keys.keep(read).map(|precision| (precision, key)));
    }
    let format = requested.iter().find(|(_, key)| key.role == Role::AmpFormat).map(|(format, _)| *format);
    let has_switch = all.iter().any(|key| key.spelling == Spelling::AmpSwitch);
    for (precision, key) in &mut requested {
        if key.spelling == Spelling::AmpSwitch {
            *precision = format.filter(|format| format.is_mixed()).unwrap_or(*precision);
        }
    }
    // The format of automatic mixed precision does not turn that on.
    requested.retain(|(precision, key)| *precision != Precision::F32 && !(key.role == Role::AmpFormat && has_switch));
    let weights = requested.iter().find(|(_, key)| key.role == Role::Weights).map(|(precision, _)| *precision);
    if weights == Some(Precision::Bf16Params) {
        requested
            .iter_mut()
            .filter(|(it, _)| *it == Precision::MixedBf16)
            .for_each(|(it, _)| *it = Precision::Bf16Params);
    }
    let Some((first, by)) = requested.first() else { return Precision::F32 };
    if let Some((other, second)) = requested.iter().find(|(other, _)| other != first) {
        let (one, two) = (&by.entry.shown, &second.entry.shown);
        let message = format!("`{one}` asks for {first} and `{two}` for {other}: keep one");
        keys.mistakes.push(source.error(&second.entry.key_span, message));
    }
    *first
}

/// The path and word that are added for a precision, and whether the program reads them. Where the dialect has no key for the
/// precision, they are the planner's.
pub(crate) fn addition(
    dialect: &'static Dialect,
    wanted: Precision,
    add_keys: bool,
) -> Option<(&'static str, &'static str, bool)> {
    let rows = || dialect.rows(Role::Precision);
    if dialect.is_plain() || rows().next().is_none() {
        return Some((Setting::Precision.name(), wanted.name(), add_keys && dialect.adds_on_request));
    }
    let word = |row: &'static Key| match row.spelling {
        Spelling::FlagFor(precision) => Some("true").filter(|_| precision == wanted),
        Spelling::Words => row.word_for(wanted.name()),
        _ => None,
    };
    let (row, word) = rows().filter_map(|row| Some((row, word(row)?))).min_by_key(|(row, _)| row.add.is_none())?;
    let first = row.names.iter().next().unwrap_or_default().trim_start_matches('.');
    Some((row.add.as_deref().unwrap_or(first), word, row.add.is_some()))
}

/// The key's value for another precision, without quotes; `None` where there is no word for it, or nothing to change.
pub(crate) fn word(key: &MatchedKey, text: &str, wanted: Precision, has_weights: bool) -> Option<String> {
    match key.spelling {
        Spelling::FlagFor(precision) => {
            let is_pure = wanted == Precision::Bf16Params && has_weights && precision == Precision::MixedBf16;
            Some((wanted == precision || is_pure).to_string())
        }
        Spelling::AmpSwitch => Some(wanted.is_mixed().to_string()),
        Spelling::Present(_) => None,
        // The format has no effect while mixed precision is off.
        _ if key.role == Role::AmpFormat && !wanted.is_mixed() => None,
        _ => {
            let prefix = if key.entry.raw(text).contains("torch.") { "torch." } else { "" };
            key.word(text, wanted.name()).map(|word| format!("{prefix}{word}"))
        }
    }
}
