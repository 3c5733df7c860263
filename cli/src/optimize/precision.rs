//! The precision that a config asks for, by however many keys, and how they would say another one.

use gpu_tuned_core::Precision;

use super::found::{AllFound, Found};
use super::keys::{Role, Spelling, Vocabulary};
use super::text::Value;

/// What the keys say together; without any, f32.
pub(super) fn read(found: &mut AllFound<'_>) -> Precision {
    let source = found.source;
    let all: Vec<Found<'_>> = found.of(Role::Precision).cloned().collect();
    let mut said: Vec<(Precision, &Found<'_>)> = Vec::new();
    for one in &all {
        let read = match one.spelling {
            Spelling::FlagFor(precision) => one.flag(source).map(|on| on.filter(|on| *on).map(|_| precision)),
            _ => match named(one, source.text) {
                Named::Known(precision, _) => Ok(Some(precision)),
                Named::Open => Ok(None),
                Named::Unknown => Err(unknown(one, found)),
            },
        };
        let Some(precision) = found.kept(read) else { continue };
        said.push((precision, one));
    }
    let is_amp = |one: &Found<'_>| one.leaf.path.iter().any(|name| name.contains("amp") || name.contains("autocast"));
    // Which 16 bits automatic precision takes; it is not on because of that.
    let of_amp = said.iter().find(|(_, one)| is_amp(one) && !is_flag(one)).map(|(precision, _)| *precision);
    let is_on = said.iter().any(|(_, one)| is_flag(one));
    let has_switch = all.iter().any(|one| is_amp(one) && is_flag(one));
    said.retain(|(_, one)| is_flag(one) || !is_amp(one) || !has_switch);
    if let Some(of_amp) = of_amp.filter(|_| is_on) {
        said.iter_mut().filter(|(_, one)| is_amp(one)).for_each(|(precision, _)| *precision = of_amp);
    }
    said.retain(|(precision, _)| *precision != Precision::F32);
    let Some((first, by)) = said.first() else { return Precision::F32 };
    if let Some((other, second)) = said.iter().find(|(other, _)| other != first) {
        let message = format!("`{}` asks for {first} and `{}` for {other}: keep one", by.leaf.shown, second.leaf.shown);
        let mistake = source.error(&second.leaf.entry.key_span, message);
        found.mistakes.push(mistake);
    }
    *first
}

fn is_flag(one: &Found<'_>) -> bool {
    matches!(one.spelling, Spelling::FlagFor(_))
}

/// What a name says.
enum Named {
    /// A precision, in the words of a vocabulary.
    Known(Precision, Vocabulary),
    /// Nothing: it is left open.
    Open,
    /// No vocabulary has it.
    Unknown,
}

fn named(one: &Found<'_>, text: &str) -> Named {
    let Spelling::Precision(vocabularies) = one.spelling else { return Named::Unknown };
    let word = match &one.leaf.entry.node.value {
        Value::Null => return Named::Open,
        Value::Text(word) if word == "auto" => return Named::Open,
        Value::Text(word) | Value::Number(word) => word.as_str(),
        Value::Flag(_) => one.raw(text),
        Value::List(_) | Value::Table(_) => return Named::Unknown,
    };
    let word = word.rsplit("torch.").next().unwrap_or(word).to_ascii_lowercase();
    // `precision: false`
    let word = if word == "false" || word == "none" { "no" } else { &word };
    let entry = |vocabulary: &Vocabulary| {
        let (precision, _) = vocabulary.iter().find(|(_, name)| *name == word)?;
        Some(Named::Known(*precision, vocabulary))
    };
    vocabularies.iter().find_map(entry).unwrap_or(Named::Unknown)
}

fn unknown(one: &Found<'_>, found: &AllFound<'_>) -> gpu_tuned_core::source::FileError {
    let message = format!(
        "`{}` names no precision that is known: expected f32, mixed_bf16, mixed_f16 or bf16_params, or what Lightning, \
         accelerate or torch call them; where it is of something else, say --at precision=KEY",
        one.leaf.shown
    );
    found.source.error(&one.place(), message)
}

/// What a key would have as its value for another precision; `None` where it has no word for it, or is it already. The word
/// is without quotes.
pub(super) fn word(one: &Found<'_>, text: &str, asked: Precision) -> Option<String> {
    if let Spelling::FlagFor(precision) = one.spelling {
        let is_of_any = |name: &String| ["amp", "autocast", "mixed"].iter().any(|word| name.contains(word));
        let on = if one.leaf.path.iter().any(is_of_any) { asked.is_mixed() } else { asked == precision };
        return Some(on.to_string());
    }
    let Named::Known(now, vocabulary) = named(one, text) else { return None };
    let entry = vocabulary.iter().find(|(precision, _)| *precision == asked).filter(|_| now != asked);
    let prefix = if one.raw(text).contains("torch.") { "torch." } else { "" };
    entry.map(|(_, name)| format!("{prefix}{name}"))
}
