//! Output of commands: answers, tables, wrapped text and JSON.

mod code;
mod document;
mod table;
mod verbosity;
mod wrap;

use std::io::{self, Write as _};

use anstream::AutoStream;
use serde::Serialize;

pub(crate) use code::{Code, help, meanings};
pub(crate) use document::SCHEMA_VERSION;
use document::document;

pub(crate) use table::{BAD, BOLD, FAINT, GOOD, MARKED, PLAIN, Table, styled};
pub(crate) use verbosity::{Verbosity, detail, note, verbosity};
pub(crate) use wrap::{wrapped, wrapped_at};

pub(crate) struct Answer {
    pub text: String,
    /// Remarks for people, on standard error. A JSON document has them, too.
    pub notes: Vec<String>,
    pub code: Code,
}

impl Answer {
    /// The result of a command as text, or as a JSON document with the notes.
    pub(crate) fn new(
        (command, as_json): (&str, bool),
        body: &impl Serialize,
        text: impl FnOnce() -> String,
        notes: Vec<String>,
        code: Code,
    ) -> Self {
        let text = if as_json { document(command, body, &notes) } else { text() };
        Self { text, notes, code }
    }

    /// Prints the answer. A closed pipe, as of `head`, is no error.
    pub(crate) fn print(&self) -> io::Result<Code> {
        self.notes.iter().for_each(|text| note(text));
        print(&self.text).map(|_| self.code)
    }
}

/// Adds texts that are not among the others.
pub(crate) fn add_new(texts: &mut Vec<String>, more: impl IntoIterator<Item = String>) {
    for text in more {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
}

/// Prints and flushes a text. Returns false when the reader has closed the pipe.
pub(crate) fn print(text: &str) -> io::Result<bool> {
    let mut out = AutoStream::auto(io::stdout());
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Prints a line on standard error, which may be closed.
pub(crate) fn say(text: &str) {
    let _ = writeln!(AutoStream::auto(io::stderr().lock()), "{text}");
}

/// A section of an explanation: a bold heading and its body.
pub(crate) fn section(heading: &str, body: &str) -> String {
    format!("\n{}\n{body}", styled(BOLD, heading))
}

/// A figure, or `-` where there is none.
pub(crate) fn or_dash(figure: Option<impl ToString>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}
