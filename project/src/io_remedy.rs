//! Remedies of files that cannot be read or written.

use std::io::{self, ErrorKind};

/// Access to a file.
#[derive(Clone, Copy, Debug)]
pub enum Access {
    /// The file is read.
    Read,
    /// The file is written.
    Write,
}

/// Kinds of errors with the remedy of a file to read, and of a file to write.
const REMEDIES: [(ErrorKind, &str, &str); 8] = [
    (ErrorKind::NotFound, "check the path", "make the folder, or name another file"),
    (ErrorKind::PermissionDenied, "allow reading it, or name another file", "allow writing it, or name another file"),
    (ErrorKind::ReadOnlyFilesystem, "", "make the file system writable, or name another file"),
    (ErrorKind::StorageFull, "", "free disk space, and run the command again"),
    (ErrorKind::FileTooLarge, "", "raise the limit of file sizes (`ulimit -f`), or name another file"),
    (ErrorKind::IsADirectory, "name a file, not a folder", "name a file, not a folder"),
    (ErrorKind::AlreadyExists, "", "name a folder, or remove the file"),
    (ErrorKind::NotADirectory, "check the path", "name a folder, or remove the file"),
];

/// Formats the remedy as a line, `help:` included; empty for a rare error.
pub fn remedy(source: &io::Error, access: Access) -> String {
    let found = REMEDIES.iter().find(|(kind, ..)| *kind == source.kind());
    let help = found.map_or("", |(_, read, write)| match access {
        Access::Read => read,
        Access::Write => write,
    });
    if help.is_empty() { String::new() } else { format!("\n  help: {help}") }
}
