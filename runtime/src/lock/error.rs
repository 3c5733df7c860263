use core::fmt;
use std::io;
use std::path::PathBuf;

use gpu_tuned_core::source::FileError;
use thiserror::Error;

/// Why a `gpu-tuned.lock` could not be read or updated. The file is as it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LockError {
    /// The file is there and cannot be read.
    #[error("cannot read `{}`: {cause}; allow reading it, or move it away", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
    /// The file has mistakes: a merge left both sides in it, it was cut short, written by a newer release, or edited.
    #[error("{}", Marked(mistakes, text))]
    Damaged {
        /// Every mistake with its place; the last says what to do.
        mistakes: Vec<FileError>,
        /// The file's text.
        text: String,
    },
    /// Figures that no lock may hold.
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
        /// What is wrong, with places in what would have been written.
        mistakes: Vec<FileError>,
    },
    /// The file, or one beside it, cannot be written: most often a read-only or full disk.
    #[error("cannot write `{}`: {cause}; make room, or allow writing in its directory", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        cause: io::Error,
    },
}

/// Mistakes, each with the line that it is in.
struct Marked<'e>(&'e [FileError], &'e str);

/// Characters of a line that are shown.
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
