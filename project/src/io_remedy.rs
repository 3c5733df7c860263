//! Remedies of files that cannot be read or written.

use std::io::{self, ErrorKind};

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
const REMEDIES: [(ErrorKind, [&str; 3]); 10] = [
    (ErrorKind::NotFound, ["check the path", "make the folder, or name another file", PROGRAM]),
    (
        ErrorKind::PermissionDenied,
        [
            "allow reading it, or name another file",
            "allow writing it, or name another file",
            "make it executable, or name another program",
        ],
    ),
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
