//! Writing.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::Record;
use super::read::BEGIN;

/// Bytes of the buffer that are written at once.
const BUFFER_BYTES: usize = 32 * 1024;

/// Maximum length of a line in bytes.
const MAX_LINE: u64 = 1 << 24;

/// Appends to a recording. [`flush`](Self::flush) writes the buffer, and so does dropping the writer.
#[derive(Debug)]
pub struct Writer {
    file: File,
    buffer: Vec<u8>,
}

impl Writer {
    /// Opens a file to append to, and creates it if needed.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, or is no recording (`InvalidData`): such a file is left alone.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        if path.is_file() && !could_be_recording(path) {
            return Err(io::Error::new(ErrorKind::InvalidData, "it exists and is no recording; name another file"));
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        // An unfinished line must not damage the next one.
        let buffer = if ends_within_a_line(path) { vec![b'\n'] } else { Vec::new() };
        Ok(Self { file, buffer })
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        serde_json::to_writer(&mut self.buffer, record)?;
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer in one call, so that lines of several processes do not mix.
    ///
    /// # Errors
    ///
    /// If the file cannot be written; the buffer is then discarded.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

fn ends_within_a_line(path: &Path) -> bool {
    let last = || {
        let mut file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()))?;
        file.seek(SeekFrom::End(-1)).ok()?;
        let mut last = [0];
        file.read_exact(&mut last).ok()?;
        Some(last[0])
    };
    last().is_some_and(|last| last != b'\n')
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Callers that need the error call `flush`.
        let _ = self.flush();
    }
}

/// Returns true if a file is empty or begins with a record, complete or not. A file that cannot be read counts as one.
fn could_be_recording(path: &Path) -> bool {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| BufReader::new(file.take(MAX_LINE)).read_until(b'\n', &mut first));
    read.is_err()
        || first.is_empty()
        || first.starts_with(BEGIN.as_bytes())
        || serde_json::from_slice::<Record>(&first).is_ok()
}
