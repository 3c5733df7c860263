//! Output of commands: answers, tables, wrapped text and JSON.

mod code;
mod document;
mod table;
mod verbosity;
mod wrap;

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write as _};

use anstream::AutoStream;
use gpu_tuned_core::printable::for_terminal;
use serde::Serialize;

pub(crate) use code::{Code, help, meanings};
pub(crate) use document::SCHEMA_VERSION;
use document::document;

pub(crate) use table::{BAD, BOLD, FAINT, GOOD, MARKED, PLAIN, Table, one_line, styled};
pub(crate) use verbosity::{Verbosity, detail, note, verbosity};
pub(crate) use wrap::{wrapped, wrapped_at};

pub(crate) struct Answer {
    pub text: String,
    pub form: Form,
    /// Remarks for people, on standard error. A JSON document has them, too.
    pub notes: Vec<String>,
    pub code: Code,
}

/// Readers of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// People: control characters are replaced.
    Text,
    /// Programs: pipes and files get every byte.
    Data,
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
        let form = if as_json { Form::Data } else { Form::Text };
        let text = if as_json { document(command, body, &notes) } else { text() };
        Self { text, form, notes, code }
    }

    /// Prints the answer. A closed pipe, as of `head`, is no error.
    pub(crate) fn print(&self) -> io::Result<Code> {
        self.notes.iter().for_each(|text| note(text));
        print(&self.text, self.form).map(|_| self.code)
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
pub(crate) fn print(text: &str, form: Form) -> io::Result<bool> {
    let is_whole = form == Form::Data && !io::stdout().is_terminal();
    let mut out = if is_whole { AutoStream::always_ansi(io::stdout()) } else { AutoStream::auto(io::stdout()) };
    let text = if is_whole { Cow::Borrowed(text) } else { for_terminal(text) };
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error),
    }
}

/// Prints a line on standard error, which may be closed.
pub(crate) fn say(text: &str) {
    let _ = writeln!(AutoStream::auto(io::stderr().lock()), "{}", for_terminal(text));
}

/// A section of an explanation: a bold heading and its body.
pub(crate) fn section(heading: &str, body: &str) -> String {
    format!("\n{}\n{body}", styled(BOLD, heading))
}

/// A figure, or `-` where there is none.
pub(crate) fn or_dash(figure: Option<impl ToString>) -> String {
    figure.map_or_else(|| "-".to_owned(), |figure| figure.to_string())
}
