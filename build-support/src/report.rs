use std::io::{self, Write};

use gpu_tuned_core::source::FileError;

use crate::BuildError;

impl BuildError {
    /// Prints the error as rustc would: `error:` with the message, the place with its line, and help.
    ///
    /// # Errors
    ///
    /// When `out` cannot be written.
    pub fn report(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::File { text, mistakes } => mistakes.iter().try_for_each(|mistake| with_place(mistake, text, out))?,
            Self::UnknownTargets { unknown } => {
                unknown.iter().try_for_each(|message| writeln!(out, "error: GPU_TUNED_TARGET: {message}"))?;
            }
            Self::Printed { table } => writeln!(out, "{table}\nerror: {self}")?,
            _ => writeln!(out, "error: {self}")?,
        }
        self.help().map_or(Ok(()), |help| writeln!(out, "  = help: {help}"))
    }
}

fn with_place(mistake: &FileError, text: &str, out: &mut impl Write) -> io::Result<()> {
    let FileError { file, place, message } = mistake;
    let number = place.line.to_string();
    let margin = " ".repeat(number.len());
    writeln!(out, "error: {message}\n{margin}--> {file}:{place}")?;
    let Some(line) = text.lines().nth(place.line - 1) else { return Ok(()) };
    // One character, one column: the mark has to stand below its character.
    let line = line.replace('\t', " ");
    let before = " ".repeat(place.column - 1);
    writeln!(out, "{margin} |\n{number} | {}\n{margin} | {before}^\n", line.trim_end())
}
