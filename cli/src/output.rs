//! Output of commands: answers, tables, wrapped text and JSON.

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;

use anstream::AutoStream;
use anstream::adapter::strip_str;
use anstyle::{AnsiColor, Style};
use gpu_tuned_core::printable::{for_json, for_terminal};
use serde::Serialize;

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

/// Version of the documents. A key that is renamed, removed or given another meaning raises it; a new key does not.
pub(crate) const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
struct Document<'a, T> {
    schema_version: u32,
    command: &'a str,
    #[serde(flatten)]
    body: T,
    notes: &'a [String],
}

/// Formats the result of a command as indented JSON.
pub(crate) fn document(command: &str, body: &impl Serialize, notes: &[String]) -> String {
    let document = Document { schema_version: SCHEMA_VERSION, command, body, notes };
    let text = serde_json::to_string_pretty(&document).expect("BUG: reports are always JSON");
    for_json(&with_units(&text, command)).into_owned()
}

/// Units of keys whose Rust types, not their names, have one: objects, suffix, keys. An object has the key under which it
/// occurs; the outermost one has the command's name.
const UNITS: [(&str, &str, &str); 9] = [
    (
        "memory",
        "_bytes",
        "weights frozen_weights weight_copies gradients accumulated_gradients optimizer_state exchange activations scratch \
         inputs allocator cuda_graph kernels context margin available headroom expected found",
    ),
    ("explain", "_bytes", "needed budget"),
    (
        "device limits reading",
        "_bytes",
        "memory_total memory_available memory_reserved memory_free available headroom context training \
         largest_allocation l2_cache",
    ),
    ("sample", "_bytes", "activations checkpointed_activations scratch largest_tensor logits input"),
    ("precisions considered does_not_fit", "_bytes", "memory missing"),
    (
        "parameter unpin checkpointing keys take_gpu free_gpu raise_limit larger_gpu",
        "_bytes",
        "most free total limit needed without_headroom",
    ),
    ("device", "_tflops", "rates"),
    ("filling too_small larger", "_share", "utilization of_peak"),
    ("slower", "_share", "by"),
];

/// Adds units to the keys of indented JSON, in which each key is on a line of its own.
fn with_units<'t>(text: &'t str, outermost: &'t str) -> String {
    let has = |words: &str, word: &str| words.split(' ').any(|one| one == word);
    // Keys under which the open objects and arrays occur.
    let mut open: Vec<&str> = Vec::new();
    let mut lines = String::with_capacity(text.len());
    for line in text.lines() {
        if line.trim_start().starts_with(['}', ']']) {
            open.pop();
        }
        let object = open.last().copied().unwrap_or(outermost);
        let key = line.trim_start().strip_prefix('"').and_then(|rest| Some(rest.split_once("\": ")?.0));
        let unit =
            UNITS.iter().find(|(objects, _, keys)| key.is_some_and(|key| has(objects, object) && has(keys, key)));
        let (_, suffix, _) = unit.unwrap_or(&("", "", ""));
        lines += &line.replacen("\": ", &format!("{suffix}\": "), 1);
        lines.push('\n');
        if line.ends_with(['{', '[']) {
            open.push(key.unwrap_or(object));
        }
    }
    lines
}

pub(crate) const PLAIN: Style = Style::new();
pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const FAINT: Style = Style::new().dimmed();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default();
pub(crate) const MARKED: Style = AnsiColor::Yellow.on_default();

/// Longest cell, in characters. Longer ones make a table unreadable, and `format!` panics at widths above 65,535.
const MAX_CELL: usize = 200;
/// Minimum column width for wrapped text.
const MIN_WIDTH: usize = 24;

pub(crate) fn styled(style: Style, text: impl core::fmt::Display) -> String {
    format!("{style}{text}{style:#}")
}

/// Replaces line breaks, which names of others can have.
pub(crate) fn one_line(text: &str) -> String {
    text.replace('\n', "\u{fffd}")
}

/// Rows of aligned cells. Text after the last cell is wrapped at the width of the terminal, unless the cells are wider.
pub(crate) struct Table {
    /// Headings; true for columns of numbers, which are right-aligned.
    columns: Vec<(String, bool)>,
    rows: Vec<Row>,
    indent: usize,
}

struct Row {
    style: Style,
    cells: Vec<String>,
    rest: String,
}

impl Table {
    /// A table with these headings; empty ones are not printed. Headings of numbers begin with `>`.
    pub(crate) fn new(indent: usize, headings: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        let column = |heading: &str| (heading.trim_start_matches('>').to_owned(), heading.starts_with('>'));
        let columns = headings.into_iter().map(|heading| column(heading.as_ref())).collect();
        Self { columns, rows: Vec::new(), indent }
    }

    /// Adds a row, which may have fewer cells than columns. Long cells are cut, and line breaks in them are replaced.
    pub(crate) fn row(&mut self, style: Style, cells: impl Into<Vec<String>>, rest: impl Into<String>) {
        let cut = |cell: String| match cell.char_indices().nth(MAX_CELL) {
            Some((end, _)) => format!("{}…", &cell[..end]),
            None => cell,
        };
        let cells = cells.into().into_iter().map(|cell| cut(one_line(&cell))).collect();
        self.rows.push(Row { style, cells, rest: rest.into() });
    }

    pub(crate) fn print(&self) -> String {
        let headings = self.columns.iter().map(|(heading, _)| heading.clone()).collect();
        let heading = Row { style: BOLD, cells: headings, rest: String::new() };
        let has_heading = self.columns.iter().any(|(heading, _)| !heading.is_empty());
        let rows = has_heading.then_some(&heading).into_iter().chain(&self.rows);
        let width = |column: usize| {
            let cells = rows.clone().filter_map(|row| row.cells.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or_default()
        };
        let widths: Vec<usize> = (0..self.columns.len()).map(width).collect();
        rows.map(|row| self.line(row, &widths)).collect()
    }

    /// The text after cells of this width.
    fn rest(&self, row: &Row, cells: usize) -> String {
        let begin = self.indent + cells;
        if begin + columns(&row.rest) <= WIDTH || begin > WIDTH {
            row.rest.clone()
        } else if begin + MIN_WIDTH <= WIDTH {
            wrapped(&row.rest, begin)
        } else {
            let below = self.indent + 4;
            format!("\n{:below$}{}", "", wrapped(&row.rest, below))
        }
    }

    fn line(&self, row: &Row, widths: &[usize]) -> String {
        let cells = row.cells.iter().zip(&self.columns).zip(widths);
        let aligned = cells.map(
            |((cell, (_, is_number)), width)| {
                if *is_number { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            },
        );
        let mut line = aligned.collect::<Vec<_>>().join("  ");
        let rest = if row.rest.is_empty() {
            line.truncate(line.trim_end().len());
            String::new()
        } else {
            line.push_str("  ");
            self.rest(row, columns(&line))
        };
        format!("{:indent$}{}{rest}\n", "", styled(row.style, line), indent = self.indent)
    }
}

const WIDTH: usize = 80;

/// Columns of a text; styles take none.
fn columns(text: &str) -> usize {
    strip_str(text).map(|part| part.chars().count()).sum()
}

/// Wraps a text at 80 columns. The first line begins at column `indent` without spaces, the others with them. Longer words
/// and text in backticks stay on one line: they may be commands.
pub(crate) fn wrapped(text: &str, indent: usize) -> String {
    wrapped_at(text, indent, WIDTH)
}

pub(crate) fn wrapped_at(text: &str, indent: usize, width: usize) -> String {
    let (mut lines, mut column) = (String::new(), indent);
    for word in words(text) {
        let length = columns(&word);
        if column > indent && column + 1 + length > width {
            lines.push('\n');
            lines.extend(core::iter::repeat_n(' ', indent));
            column = indent;
        } else if column > indent {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(&word);
        column += length;
    }
    lines
}

/// The words of a text; text in backticks is one word.
fn words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in text.split_whitespace() {
        match words.last_mut().filter(|_| is_open) {
            Some(last) => last.extend([" ", word]),
            None => words.push(word.to_owned()),
        }
        is_open ^= word.matches('`').count() % 2 == 1;
    }
    words
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

impl Verbosity {
    pub(crate) fn set(self) {
        VERBOSITY.get_or_init(|| self);
    }

    pub(crate) const fn of_cargo(self) -> Option<&'static str> {
        match self {
            Self::Quiet => Some("--quiet"),
            Self::Normal => None,
            Self::Verbose => Some("--verbose"),
        }
    }
}

pub(crate) fn verbosity() -> Verbosity {
    VERBOSITY.get().copied().unwrap_or(Verbosity::Normal)
}

/// Prints a remark for people, unless the command is quiet. A text of several lines is a report of its own.
pub(crate) fn note(text: &str) {
    let text = text.trim_end();
    if verbosity() != Verbosity::Quiet {
        say(&if text.contains('\n') { text.to_owned() } else { format!("note: {text}") });
    }
}

/// Prints a step of the command, if the command is verbose.
pub(crate) fn detail(text: impl FnOnce() -> String) {
    if verbosity() == Verbosity::Verbose {
        say(&format!("verbose: {}", text()));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Code {
    Ok = 0,
    No = 1,
    Input = 2,
    ProgramFailed = 3,
    Unjudged = 4,
}

/// Codes with their meanings: of all commands, then of each command below its name.
const TABLE: &str = include_str!("output/codes.txt");

/// Codes with their meanings in general.
pub(crate) fn meanings() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.lines().take_while(|line| !line.is_empty()).filter_map(|line| line.split_once("  "))
}

/// End of the help of a command; without a command, of the help of all.
pub(crate) fn help(command: Option<&str>) -> String {
    let blocks = || TABLE.split("\n\n");
    let lines = match command {
        None => blocks().next(),
        Some(name) => blocks().find_map(|block| block.strip_prefix(name)?.strip_prefix('\n')),
    };
    let heading = if command.is_none() { "Exit codes; each command lists its own:" } else { "Exit codes:" };
    lines.unwrap_or_default().lines().fold(heading.to_owned(), |text, line| text + "\n  " + line)
}
