use core::fmt;
use core::ops::Range;

use thiserror::Error;

/// A mistake in a file, with its place. Prints as `FILE:LINE:COLUMN: message`.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{file}:{place}: {message}")]
pub struct FileError {
    /// The file, as the reader of the message would name it.
    pub file: String,
    /// Where in the file.
    pub place: Place,
    /// What is wrong, and what would be right.
    pub message: String,
}

impl FileError {
    /// The mistake as rustc would print it: the message, its place, and the line of `text` with a mark below the column.
    pub fn in_full(&self, text: &str) -> String {
        let Self { file, place, message } = self;
        let number = place.line.to_string();
        let margin = " ".repeat(number.len());
        let said = format!("error: {message}\n{margin}--> {file}:{place}\n");
        let Some(line) = text.lines().nth(place.line - 1) else { return said };
        // One character, one column: the mark has to stand below its character.
        let line = line.replace('\t', " ");
        let before = " ".repeat(place.column - 1);
        format!("{said}{margin} |\n{number} | {}\n{margin} | {before}^\n\n", line.trim_end())
    }
}

/// A place in a text; lines and columns count from 1, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The line.
    pub line: usize,
    /// The column.
    pub column: usize,
}

impl Place {
    /// The place of a byte offset in `text`; past its end, the end.
    pub fn of(offset: usize, text: &str) -> Self {
        let before = text.get(..offset).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        Self { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A file's name and text, for messages with a place.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The file, as the reader of a message would name it.
    pub file: &'a str,
    /// What is in it.
    pub text: &'a str,
}

impl Source<'_> {
    /// An error at a range of bytes.
    pub fn error(&self, span: &Range<usize>, message: impl Into<String>) -> FileError {
        FileError { file: self.file.to_owned(), place: Place::of(span.start, self.text), message: message.into() }
    }

    /// The parser's error, with its place in this file.
    pub fn toml_error(&self, error: &toml::de::Error) -> FileError {
        self.error(&error.span().unwrap_or(0..0), error.message().replace('\n', "; "))
    }
}

#[cfg(test)]
mod tests {
    use super::Place;

    #[test]
    fn columns_count_characters_not_bytes() {
        let text = "a = 1\nß = ä x\n";
        let x = text.find('x').expect("x is there");
        assert_eq!(Place::of(x, text).to_string(), "2:7");
        assert_eq!(Place::of(999, text).to_string(), "3:1");
    }
}
