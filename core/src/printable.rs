//! Foreign text that is printed: names in files, keys of configs, names of devices.

use std::borrow::Cow;

/// Replaces control and bidirectional characters, and line breaks of Unicode, one for one. The mark below a line must stay below its character, and
/// content of a file must not affect the terminal.
pub(crate) fn printable(character: char) -> char {
    match character {
        '\t' => ' ',
        other if is_harmful(other) => char::REPLACEMENT_CHARACTER,
        other => other,
    }
}

fn is_harmful(character: char) -> bool {
    character.is_control() || matches!(character, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Beginning of a line that is a command to GitHub.
const AT_BEGINNING: &str = "::";
/// End of all styles.
const RESET: &str = "\u{1b}[0m";
/// Commands that GitHub, Azure and `TeamCity` find anywhere in a line.
const ANYWHERE: [&str; 3] = ["##[", "##vso[", "##teamcity["];

/// Replaces what could affect a terminal or a CI system: all control characters but tabs, line breaks, and the sequences of
/// weights and of colours that are visible on any background. Styles end with the text. A line that CI systems take for a command loses its styles, and gets a replacement character within the
/// command.
///
/// Every text of the command for people goes through this function as a whole, whatever it is made of.
pub fn for_terminal(text: &str) -> Cow<'_, str> {
    cleaned(text, true)
}

/// Replaces what [`for_terminal`] replaces, and sequences of colours: for pages, tables and figures that programs read.
pub fn for_file(text: &str) -> Cow<'_, str> {
    cleaned(text, false)
}

/// Escapes the same characters in a JSON document, whose values stay the same.
pub fn for_json(document: &str) -> Cow<'_, str> {
    // A string of JSON has no line break, so no line begins with a command.
    let has_command = ANYWHERE.iter().any(|command| document.contains(command));
    let is_escaped = |it: char| it != '\n' && is_harmful(it) || it == '#' && has_command;
    if !document.contains(is_escaped) {
        return Cow::Borrowed(document);
    }
    let escape = |it| if is_escaped(it) { format!("\\u{:04x}", u32::from(it)) } else { it.to_string() };
    Cow::Owned(document.chars().map(escape).collect())
}

fn cleaned(text: &str, has_styles: bool) -> Cow<'_, str> {
    let is_harmless = |it: char| matches!(it, '\n' | '\t') || !is_harmful(it);
    if text.chars().all(is_harmless) && !text.lines().any(is_command) {
        return Cow::Borrowed(text);
    }
    let (mut safe, mut style) = (String::with_capacity(text.len()), RESET);
    for line in text.split_inclusive('\n') {
        let mut rest = line;
        // With styles and without: a program may remove them before a CI system reads the line.
        let (mut shown, mut plain) = (String::with_capacity(line.len()), String::with_capacity(line.len()));
        while let Some(character) = rest.chars().next() {
            let length = style_length(rest).filter(|_| has_styles).unwrap_or(character.len_utf8());
            let (whole, behind) = rest.split_at(length);
            rest = behind;
            if length > character.len_utf8() {
                (shown, style) = (shown + whole, whole);
                continue;
            }
            let kept = match character {
                '\n' | '\t' => character,
                '\r' if behind.starts_with('\n') => character,
                other => printable(other),
            };
            shown.push(kept);
            plain.push(kept);
        }
        if is_command(&plain) {
            safe.extend(plain.trim_start().starts_with(AT_BEGINNING).then_some('\u{fffd}'));
            safe.push_str(&plain.replace('#', "#\u{fffd}"));
        } else {
            safe.push_str(&shown);
        }
    }
    if ![RESET, "\u{1b}[m"].contains(&style) {
        safe.push_str(RESET);
    }
    Cow::Owned(safe)
}

fn is_command(line: &str) -> bool {
    line.trim_start().starts_with(AT_BEGINNING) || ANYWHERE.iter().any(|command| line.contains(command))
}

/// Length of the sequence for a colour or a weight that the text begins with: `ESC [ digits m`.
fn style_length(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\u{1b}[")?;
    let end = parameters.find(|letter: char| !letter.is_ascii_digit() && letter != ';')?;
    let is_style = parameters[end..].starts_with('m') && is_visible(&parameters[..end]);
    is_style.then_some("\u{1b}[".len() + end + 1)
}

/// Returns true for weights, and for colours but black, white and those of the background.
fn is_visible(style: &str) -> bool {
    let is_bright = |colour: &str| matches!(colour.parse(), Ok(9..=14));
    let is_plain = |number: &str| matches!(number.parse(), Ok(0..=4 | 22..=24 | 31..=36 | 39 | 91..=96));
    style.is_empty() || style.strip_prefix("38;5;").map_or_else(|| style.split(';').all(is_plain), is_bright)
}

#[cfg(test)]
mod tests;
