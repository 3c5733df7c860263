//! Reading one file of a package, and remedies of files that cannot be read or written.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use gpu_tuned_core::regular_file;
use gpu_tuned_core::source::{FileError, Source, utf8};
use thiserror::Error;

/// Number of mistakes after which no more of a file are collected: each takes time and memory.
pub(crate) const MOST_MISTAKES: usize = 100;

/// A file that exists and cannot be used.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The system cannot read the file.
    #[error("cannot read `{}`: {cause}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        cause: io::Error,
    },
    /// The file has mistakes.
    #[error("{}", mistakes.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Mistakes {
        /// The file's text.
        text: String,
        /// The first mistakes, in the file's order.
        mistakes: Vec<FileError>,
    },
}

/// Reads and parses the file `name` in the folder `root`. Returns `None` if there is no such file. `remedy` is the advice
/// for a file that is not UTF-8.
///
/// # Errors
///
/// When the file cannot be read, is not UTF-8, or has mistakes.
pub fn read<T>(
    root: &Path,
    name: &Path,
    remedy: &str,
    parse: impl FnOnce(Source<'_>) -> Result<T, Vec<FileError>>,
) -> Result<Option<T>, ReadError> {
    let path = root.join(name);
    let bytes = match regular_file::read(&path, regular_file::LARGEST) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound && path.is_symlink() => {
            let cause = io::Error::new(ErrorKind::NotFound, "it is a link to a file that is not there");
            return Err(ReadError::Io { path, cause });
        }
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(ReadError::Io { path, cause }),
    };
    let name = name.display().to_string();
    let text =
        utf8(&name, bytes, remedy).map_err(|(mistake, text)| ReadError::Mistakes { text, mistakes: vec![mistake] })?;
    let parsed = parse(Source { file: &name, text: &text });
    parsed.map(Some).map_err(|mistakes| ReadError::Mistakes { text, mistakes })
}

const MARKERS: [&str; 4] = ["<<<<<<<", "|||||||", "=======", ">>>>>>>"];

/// Finds the first conflict marker of git; the message ends with `remedy`.
pub(crate) fn merge_marker(source: Source<'_>, remedy: &str) -> Option<FileError> {
    let mut offset = 0;
    for line in source.text.split_inclusive('\n') {
        if MARKERS.iter().any(|marker| is_marker(line, marker)) {
            return Some(source.error(&(offset..offset), format!("a merge left both sides here: {remedy}")));
        }
        offset += line.len();
    }
    None
}

/// Returns true for a marker alone or followed by a branch name.
fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker).is_some_and(|rest| rest.trim_end().is_empty() || rest.starts_with(' '))
}

/// Access to a file.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// The file is read.
    Read,
    /// The file is written.
    Write,
    /// The file is a program that is started.
    Run,
}

const PROGRAM: &str = "name a program with its arguments, such as `-- target/release/train`";

/// Kinds of errors with the remedy of a file to read, of one to write, and of a program.
const REMEDIES: [(ErrorKind, [&str; 3]); 11] = [
    (ErrorKind::NotFound, ["check the path", "make the folder, or name another file", PROGRAM]),
    (
        ErrorKind::PermissionDenied,
        [
            "allow reading it, or name another file",
            "allow writing it, or name another file",
            "make it executable, or name another program",
        ],
    ),
    (ErrorKind::InvalidData, ["save it as UTF-8", "", ""]),
    (ErrorKind::ReadOnlyFilesystem, ["", "make the file system writable, or name another file", ""]),
    (ErrorKind::StorageFull, ["", "free disk space, and run the command again", ""]),
    (ErrorKind::FileTooLarge, ["", "raise the limit of file sizes (`ulimit -f`), or name another file", ""]),
    (ErrorKind::IsADirectory, ["name a file, not a folder", "name a file, not a folder", PROGRAM]),
    (ErrorKind::AlreadyExists, ["", "name another, or remove it", ""]),
    (ErrorKind::NotADirectory, ["check the path", "name a folder, or remove the file", PROGRAM]),
    (ErrorKind::WouldBlock, ["", "", "end other processes, or raise their number (`ulimit -u`)"]),
    (ErrorKind::OutOfMemory, ["", "", "end other processes: the memory is full"]),
];

/// Formats the remedy as a line, `help:` included; empty for a rare error.
pub fn remedy(source: &io::Error, access: Access) -> String {
    let found = REMEDIES.iter().find(|(kind, ..)| *kind == source.kind());
    let help = found.map_or("", |(_, remedies)| remedies[access as usize]);
    if help.is_empty() { String::new() } else { format!("\n  help: {help}") }
}

#[cfg(test)]
#[test]
fn a_file_that_is_not_there_is_no_error() {
    let folder = tempfile::tempdir().expect("a folder");
    let length = |name: &str| read(folder.path(), Path::new(name), "", |source| Ok(source.text.len()));
    std::fs::write(folder.path().join("three"), "abc").expect("it is written");
    assert_eq!(length("three").expect("a file"), Some(3));
    assert_eq!(length("none").expect("no file"), None);
    assert!(matches!(length("."), Err(ReadError::Io { .. })));
    #[cfg(unix)]
    for (name, target) in [("dangling", "none"), ("looping", "looping")] {
        std::os::unix::fs::symlink(target, folder.path().join(name)).expect("a link");
        assert!(matches!(length(name), Err(ReadError::Io { .. })), "{name}");
    }
    std::fs::write(folder.path().join("latin"), b"\xe4").expect("it is written");
    let error = regular_file::read_text(&folder.path().join("latin"), 9).expect_err("no UTF-8");
    assert_eq!(remedy(&error, Access::Read), "\n  help: save it as UTF-8");
}
