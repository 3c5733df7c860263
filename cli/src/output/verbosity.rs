//! Amount of output on standard error.

use std::sync::OnceLock;

use super::say;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verbosity {
    Quiet,
    Normal,
    Verbose,
}

static VERBOSITY: OnceLock<Verbosity> = OnceLock::new();

impl Verbosity {
    /// Sets the verbosity of this process, once.
    pub(crate) fn set(self) {
        VERBOSITY.get_or_init(|| self);
    }

    /// The option of cargo for this verbosity.
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
