use core::fmt;
use core::ops::Range;

use thiserror::Error;

use crate::printable::printable;

/// An error in a file, with its position. Prints as `FILE:LINE:COLUMN: message`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}:{place}: {}", single_line(file), shortened(message))]
pub struct FileError {
    /// Path of the file, as shown to users.
    pub file: String,
    /// Position in the file.
    pub place: Position,
    /// The error and its correction.
    pub message: String,
}

impl FileError {
    /// Renders the error in rustc's format: the message, the position, and the line of `text` with a mark below the
    /// column. A long line is cut around the column.
    pub fn render(&self, text: &str) -> String {
        let Self { file, place, message } = self;
        let number = place.line.to_string();
        let margin = " ".repeat(number.len());
        let report = format!("error: {}\n{margin}--> {}:{place}\n", shortened(message), single_line(file));
        let Some(line) = text.lines().nth(place.line - 1) else { return report };
        let (line, before) = excerpt(line.trim_end(), place.column - 1);
        let before = " ".repeat(before);
        format!("{report}{margin} |\n{number} | {line}\n{margin} | {before}^\n\n")
    }
}

/// Maximum number of characters shown of a line.
const EXCERPT: usize = 100;
/// Longest word of a message, in characters. A longer word is file content, not a path.
const LONGEST_WORD: usize = 400;
/// Longest message, in characters.
const LONGEST_MESSAGE: usize = 2000;

/// Cuts the line around the character at `at`; returns the number of characters before that one, too.
fn excerpt(line: &str, at: usize) -> (String, usize) {
    let length = line.chars().count();
    let begin = if length <= EXCERPT { 0 } else { at.min(length).saturating_sub(EXCERPT / 2).min(length - EXCERPT) };
    let part = line.chars().skip(begin).take(EXCERPT).map(printable);
    let (cut_before, cut_behind) = (begin > 0, begin + EXCERPT < length);
    let cut = |is_cut: bool| is_cut.then_some('…');
    let text = cut(cut_before).into_iter().chain(part).chain(cut(cut_behind)).collect();
    (text, at - begin.min(at) + usize::from(cut_before))
}

/// Replaces characters that could affect a terminal; keeps line breaks.
fn without_controls(text: &str) -> String {
    text.chars().map(|it| if it == '\n' { it } else { printable(it) }).collect()
}

/// Makes a file name printable; systems allow any character in one.
fn single_line(name: &str) -> String {
    name.chars().map(printable).collect()
}

/// Shortens file content quoted in a message.
fn shortened(message: &str) -> String {
    let word = |word: &str| match word.char_indices().nth(LONGEST_WORD) {
        Some((end, _)) => format!("{}…", &word[..end]),
        None => word.to_owned(),
    };
    let report: Vec<_> = message.split(' ').map(word).collect();
    let whole = report.join(" ");
    let (end, is_cut) = whole.char_indices().nth(LONGEST_MESSAGE).map_or((whole.len(), false), |(end, _)| (end, true));
    without_controls(&whole[..end]) + if is_cut { "…" } else { "" }
}

/// A position in a text; lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Position {
    /// The position of a byte offset in `text`, limited to its end.
    pub fn from_offset(offset: usize, text: &str) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// Decodes a file as UTF-8. `remedy` completes the error message.
///
/// # Errors
///
/// Returns the position of the first invalid byte, and the text with U+FFFD in place of invalid bytes.
pub fn utf8(file: &str, bytes: Vec<u8>, remedy: &str) -> Result<String, (FileError, String)> {
    String::from_utf8(bytes).map_err(|error| {
        let text = String::from_utf8_lossy(error.as_bytes()).into_owned();
        let begin = error.utf8_error().valid_up_to();
        (Source { file, text: &text }.error(&(begin..begin), format!("this is no UTF-8; {remedy}")), text)
    })
}

/// A file's name and text, for errors with a position.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// Path of the file, as shown to users.
    pub file: &'a str,
    /// Content of the file.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at a range of bytes.
    pub fn error(&self, span: &Range<usize>, message: impl Into<String>) -> FileError {
        FileError {
            file: self.file.to_owned(),
            place: Position::from_offset(span.start, self.text),
            message: message.into(),
        }
    }

    /// The parser's error, with its position in this file.
    pub fn toml_error(&self, error: &toml::de::Error) -> FileError {
        self.error(&error.span().unwrap_or(0..0), error.message().replace('\n', "; "))
    }
}

#[cfg(test)]
mod tests;
