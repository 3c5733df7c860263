//! Files that others may have written.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _};
use std::path::Path;

/// Bytes of the largest file of settings, sources or results that is read.
pub const LARGEST: u64 = 64 << 20;

/// Reads a regular file of at most `largest` bytes.
///
/// # Errors
///
/// Errors of the system, and files that are refused: larger ones, pipes, which can block for ever, devices, which can be endless,
/// and files of the kernel, such as the environment of a process in `/proc`.
pub fn read(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    let facts = fs::metadata(path)?;
    if facts.is_dir() {
        return Err(io::Error::new(ErrorKind::IsADirectory, "it is a directory"));
    }
    if !facts.is_file() {
        return Err(io::Error::other("it is not a regular file"));
    }
    let file = File::open(path)?;
    let length = file.metadata()?.len();
    let bytes = read_all(file, largest)?;
    // Files of the kernel have no length, or that of a page.
    if (length == 0 && !bytes.is_empty()) || (bytes.len() as u64) < length {
        return Err(io::Error::other("it is not a file on a disk"));
    }
    Ok(bytes)
}

/// Reads a file as [`read`] does, or a pipe, such as that of a program that unpacks a file.
///
/// # Errors
///
/// Errors of the system, more than `largest` bytes, and files of the kernel.
pub fn read_any(path: &Path, largest: u64) -> io::Result<Vec<u8>> {
    if fs::metadata(path)?.is_file() { read(path, largest) } else { read_all(File::open(path)?, largest) }
}

/// Reads at most `largest` bytes, such as those of a pipe.
///
/// # Errors
///
/// Errors of the system, and more bytes.
pub fn read_all(source: impl io::Read, largest: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    source.take(largest + 1).read_to_end(&mut bytes)?;
    let is_whole = bytes.len() as u64 <= largest;
    let too_large = || io::Error::other(format!("it is larger than {} MiB, the most that is read", largest >> 20));
    is_whole.then_some(bytes).ok_or_else(too_large)
}

/// Reads a regular file of UTF-8.
///
/// # Errors
///
/// As [`read`], and bytes that are not UTF-8.
pub fn read_text(path: &Path, largest: u64) -> io::Result<String> {
    let invalid = |_| io::Error::new(ErrorKind::InvalidData, "stream did not contain valid UTF-8");
    String::from_utf8(read(path, largest)?).map_err(invalid)
}

#[cfg(all(test, unix))]
mod tests;
