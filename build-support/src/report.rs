use std::io::{self, Write};

use crate::BuildError;

impl BuildError {
    /// Prints the error as rustc would: `error:` with the message, the place with its line, and help.
    ///
    /// # Errors
    ///
    /// When `out` cannot be written.
    pub fn report(&self, out: &mut impl Write) -> io::Result<()> {
        match self {
            Self::File { text, mistakes } => {
                mistakes.iter().try_for_each(|mistake| write!(out, "{}", mistake.render(text)))?;
            }
            Self::UnknownTargets { unknown } => {
                unknown.iter().try_for_each(|message| writeln!(out, "error: GPU_TUNED_TARGET: {message}"))?;
            }
            Self::Printed { table } => writeln!(out, "{table}\nerror: {self}")?,
            _ => writeln!(out, "error: {self}")?,
        }
        self.help().map_or(Ok(()), |help| writeln!(out, "  = help: {help}"))
    }
}
