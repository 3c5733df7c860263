//! Errors of a build script, printed as rustc would.

use std::io::{self, Write};
use std::path::PathBuf;

use gpu_tuned_core::source::FileError;
use thiserror::Error;

/// Why a build script stops. [`report`](Self::report) prints it as rustc would.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A variable of cargo's is missing.
    #[error("`{variable}` is not set: gpu-tuned-build works in a build script that cargo runs")]
    OutsideCargo {
        /// The variable.
        variable: &'static str,
    },
    /// A variable's value is not Unicode.
    #[error("the value of `{variable}` is not Unicode")]
    NotUnicode {
        /// The variable.
        variable: &'static str,
    },
    /// A file cannot be read.
    #[error("cannot read `{}`: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// A file or folder below `OUT_DIR` cannot be written.
    #[error("cannot write `{}`: {cause}", path.display())]
    Write {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The directives cannot be written.
    #[error("cannot write to cargo: {cause}")]
    Stdout {
        /// The system's error.
        cause: io::Error,
    },
    /// A path that no directive can express.
    #[error("cargo cannot watch `{}`: a path has to be one line of Unicode", path.display())]
    Path {
        /// The path.
        path: PathBuf,
    },
    /// A file has mistakes.
    #[error("{}", mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    File {
        /// The file's text.
        text: String,
        /// All mistakes, in the file's order.
        mistakes: Vec<FileError>,
    },
    /// `GPU_TUNED_TARGET` names an unknown profile.
    #[error("GPU_TUNED_TARGET: {}", unknown.join("\n"))]
    UnknownTargets {
        /// A message for each name.
        unknown: Vec<String>,
    },
    /// `GPU_TUNED_TARGET` names nothing.
    #[error("GPU_TUNED_TARGET: `{value}` names no profile")]
    NoTarget {
        /// The value.
        value: String,
    },
    /// `GPU_TUNED_TARGET` puts `generic` or `native` beside other names.
    #[error("GPU_TUNED_TARGET: `{word}` has to stand alone")]
    NotAlone {
        /// `generic` or `native`.
        word: String,
    },
    /// Several profiles are selected where the build script allows one.
    #[error("several GPUs are selected, and build.rs asks for one: {}", targets.join(", "))]
    SeveralTargets {
        /// The selected profiles.
        targets: Vec<String>,
    },
    /// `native` is asked for, and this crate was built without it.
    #[error("`native` is selected, and gpu-tuned-build was compiled without its feature `native`")]
    NativeMissing,
    /// The resolved table was asked for.
    #[error("the build stops here because GPU_TUNED_PRINT is set")]
    Printed {
        /// The table.
        table: String,
    },
}

impl BuildError {
    /// Returns advice for errors whose message has none.
    fn help(&self) -> Option<&'static str> {
        match self {
            Self::Read { cause, .. } if cause.kind() == io::ErrorKind::NotFound => {
                Some("create the file, or remove what names it: a link, or `config-file` in Cargo.toml")
            }
            Self::Read { .. } => Some("put a file there that the build may read, or remove it"),
            Self::Write { .. } => Some("free disk space, or allow writing to the target folder"),
            Self::NativeMissing => Some(
                "in Cargo.toml, write `native = [\"gpu-tuned-build/native\"]` under [features], or add features = \
                 [\"native\"] to gpu-tuned-build under [build-dependencies]",
            ),
            Self::SeveralTargets { .. } => Some("enable one of them, or name one in GPU_TUNED_TARGET"),
            Self::NoTarget { .. } => {
                Some("name one or several profiles, such as `rtx4090,h200`, or unset the variable")
            }
            Self::NotAlone { .. } => Some("name one or several profiles, or `generic`, or `native`"),
            Self::Printed { .. } => Some("unset GPU_TUNED_PRINT to build"),
            _ => None,
        }
    }

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
