//! Remedies of files that cannot be read or written.

use std::io::{self, ErrorKind};

#[derive(Clone, Copy)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Kinds of errors with the remedy of a file to read, and of a file to write.
const REMEDIES: [(ErrorKind, &str, &str); 9] = [
    (ErrorKind::NotFound, "check the path", "make the folder, or name another file"),
    (ErrorKind::PermissionDenied, "allow reading it, or name another file", "allow writing it, or name another file"),
    (ErrorKind::ReadOnlyFilesystem, "", "make the file system writable, or name another file"),
    (ErrorKind::StorageFull, "", "free disk space, and run the command again"),
    (ErrorKind::QuotaExceeded, "", "free disk space, and run the command again"),
    (ErrorKind::FileTooLarge, "", "raise the limit of file sizes (`ulimit -f`), or name another file"),
    (ErrorKind::IsADirectory, "name a file, not a folder", "name a file, not a folder"),
    (ErrorKind::AlreadyExists, "", "name a folder, or remove the file"),
    (ErrorKind::NotADirectory, "check the path", "name a folder, or remove the file"),
];

/// Formats the remedy as a line, `help:` included; empty for a rare error.
pub(crate) fn remedy(source: &io::Error, access: Access) -> String {
    let found = REMEDIES.iter().find(|(kind, ..)| *kind == source.kind());
    let help = found.map_or("", |(_, read, write)| match access {
        Access::Read => read,
        Access::Write => write,
    });
    if help.is_empty() { String::new() } else { format!("\n  help: {help}") }
}
