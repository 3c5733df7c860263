//! The precision that a config requests with one or several keys, and their values for another precision.

use gpu_tuned_core::Precision;
use gpu_tuned_core::source::FileError;

use crate::dialect::{DIALECTS, Role, Spelling, Vocabulary};
use crate::document::Value;
use crate::matched::{MatchedKey, MatchedKeys};

/// The precision that the keys request together; fp32 without any.
pub(crate) fn read(keys: &mut MatchedKeys<'_>) -> Precision {
    let source = keys.source;
    let all: Vec<MatchedKey> = keys.with_role(Role::Precision).cloned().collect();
    let mut requested: Vec<(Precision, &MatchedKey)> = Vec::new();
    for one in &all {
        let read = match one.spelling {
            Spelling::FlagFor(precision) => one.flag(source).map(|on| on.filter(|on| *on).map(|_| precision)),
            _ => match lookup(one, source.text) {
                Lookup::Known(precision, _) => Ok(Some(precision)),
                Lookup::Open => Ok(None),
                Lookup::Unknown => Err(unknown(one, keys)),
            },
        };
        let Some(precision) = keys.keep(read) else { continue };
        requested.push((precision, one));
    }
    // `amp_dtype` chooses the 16 bits of automatic mixed precision, and does not turn that on.
    let amp_dtype = requested.iter().find(|(_, one)| is_amp(one) && !is_switch(one)).map(|(precision, _)| *precision);
    let is_on = requested.iter().any(|(_, one)| is_switch(one));
    let has_switch = all.iter().any(|one| is_amp(one) && is_switch(one));
    requested.retain(|(_, one)| is_switch(one) || !is_amp(one) || !has_switch);
    if let Some(amp_dtype) = amp_dtype.filter(|_| is_on) {
        requested.iter_mut().filter(|(_, one)| is_amp(one)).for_each(|(precision, _)| *precision = amp_dtype);
    }
    requested.retain(|(precision, _)| *precision != Precision::F32);
    let Some((first, by)) = requested.first() else { return Precision::F32 };
    if let Some((other, second)) = requested.iter().find(|(other, _)| other != first) {
        let (one, two) = (&by.entry.shown, &second.entry.shown);
        let message = format!("`{one}` asks for {first} and `{two}` for {other}: keep one");
        keys.mistakes.push(source.error(&second.entry.key_span, message));
    }
    *first
}

/// Returns true if the key turns one precision on and off.
pub(crate) fn is_switch(key: &MatchedKey) -> bool {
    matches!(key.spelling, Spelling::FlagFor(_))
}

/// Returns true if the key belongs to automatic mixed precision.
pub(crate) fn is_amp(key: &MatchedKey) -> bool {
    key.entry.path.iter().any(|name| name.contains("amp") || name.contains("autocast"))
}

enum Lookup {
    /// A precision, with the vocabulary that lists the name.
    Known(Precision, &'static Vocabulary),
    /// No name: the config leaves the precision open.
    Open,
    /// A name that no vocabulary lists.
    Unknown,
}

fn lookup(key: &MatchedKey, text: &str) -> Lookup {
    if key.spelling != Spelling::Precision {
        return Lookup::Unknown;
    }
    let word = match &key.entry.value {
        Value::Null => return Lookup::Open,
        Value::Text(word) if word == "auto" => return Lookup::Open,
        Value::Text(word) | Value::Number(word) => word.as_str(),
        Value::Flag(_) => key.entry.raw(text),
        Value::List(_) | Value::Table(_) => return Lookup::Unknown,
    };
    let word = word.rsplit("torch.").next().unwrap_or(word).to_ascii_lowercase();
    // `precision: false`
    let word = if word == "false" || word == "none" { "no" } else { &word };
    let entry = |vocabulary: &'static Vocabulary| {
        let (precision, _) = vocabulary.iter().find(|(_, name)| *name == word)?;
        Some(Lookup::Known(*precision, vocabulary))
    };
    DIALECTS.vocabularies.iter().find_map(entry).unwrap_or(Lookup::Unknown)
}

fn unknown(key: &MatchedKey, keys: &MatchedKeys<'_>) -> FileError {
    let message = format!(
        "`{}` names no known precision: expected f32, mixed_bf16, mixed_f16, bf16_params, or a name of Lightning, \
         accelerate or torch; if another key is the precision, name it: --at precision=KEY",
        key.entry.shown
    );
    keys.source.error(&key.entry.place(), message)
}

/// The key's value for another precision, without quotes; `None` where there is no word for it, or nothing to change.
pub(crate) fn word(key: &MatchedKey, text: &str, wanted: Precision) -> Option<String> {
    if let Spelling::FlagFor(precision) = key.spelling {
        let is_for_any = |name: &String| ["amp", "autocast", "mixed"].iter().any(|word| name.contains(word));
        let on = if key.entry.path.iter().any(is_for_any) { wanted.is_mixed() } else { wanted == precision };
        return Some(on.to_string());
    }
    let Lookup::Known(now, vocabulary) = lookup(key, text) else { return None };
    let entry = vocabulary.iter().find(|(precision, _)| *precision == wanted).filter(|_| now != wanted);
    let prefix = if key.entry.raw(text).contains("torch.") { "torch." } else { "" };
    entry.map(|(_, name)| format!("{prefix}{name}"))
}
