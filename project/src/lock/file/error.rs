use core::fmt;
use std::io;
use std::path::PathBuf;

use gpu_tuned_core::source::FileError;
use thiserror::Error;

/// Error of reading or updating a `gpu-tuned.lock`. The file stays as it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// The file exists and cannot be read.
    #[error("cannot read `{}`: {cause}; allow reading it, or move it away", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The file has mistakes: it has both sides of a merge, was cut short, edited, or written by a newer release.
    #[error("{}", Marked(mistakes, text))]
    Damaged {
        /// Mistakes with their positions; the last one has the remedy.
        mistakes: Vec<FileError>,
        /// Text of the file.
        text: String,
    },
    /// Measurements out of range.
    #[error(
        "`{name}` is not written to `{}`: {}; measure again on a device that nothing else uses",
        path.display(),
        mistakes.iter().map(|mistake| mistake.message.as_str()).collect::<Vec<_>>().join(", ")
    )]
    Figures {
        /// The file.
        path: PathBuf,
        /// The workload.
        name: String,
        /// Mistakes with their positions in the new text.
        mistakes: Vec<FileError>,
    },
    /// The file, or one beside it, cannot be written: most often a read-only or full disk.
    #[error("cannot write `{}`: {cause}; free disk space, or make its folder and allow writing there", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
}

/// Displays mistakes, each with its line.
struct Marked<'e>(&'e [FileError], &'e str);

/// Maximum width of a line, in characters.
const SHOWN: usize = 120;

impl fmt::Display for Marked<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(mistakes, text) = self;
        for (index, mistake) in mistakes.iter().enumerate() {
            let end = if index == 0 { "" } else { "\n" };
            write!(f, "{end}{mistake}")?;
            let line = text.lines().nth(mistake.place.line.saturating_sub(1)).unwrap_or_default();
            let shown: String = line.chars().take(SHOWN).collect();
            write!(f, "\n{:>5} | {}", mistake.place.line, shown.trim_end())?;
        }
        Ok(())
    }
}
