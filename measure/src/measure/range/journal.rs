//! The file of results.

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use gpu_tuned_observe::bench::{Begin, Header, Line, Outcome, Record, Setup};

use super::super::MeasureError;

/// File of results. Only one process writes it at a time.
pub(super) struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    pub(super) fn open(path: &Path) -> Result<Self, MeasureError> {
        let failed = |source| MeasureError::Results { path: path.to_owned(), source };
        let mut file = File::options().create(true).append(true).read(true).open(path).map_err(failed)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let busy = io::Error::new(ErrorKind::WouldBlock, "another process is writing it");
                return Err(failed(busy));
            }
            // As with the lock of measurements: a file system without locks is no reason not to write.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        end_line(&mut file).map_err(failed)?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Results on record below the header, without those in the first `ignored_bytes`.
    pub(super) fn known(&self, ignored_bytes: u64, header: &Header) -> Result<Vec<(Setup, Outcome)>, MeasureError> {
        let bytes = fs::read(&self.path).map_err(|source| self.failed(source))?;
        let from = usize::try_from(ignored_bytes).unwrap_or(usize::MAX).min(bytes.len());
        // A line that was cut off is one that was never written.
        let lines = bytes[from..].split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        let record = Record::from_lines(lines);
        let known = record.section(header).map(|section| section.outcomes.clone());
        Ok(known.unwrap_or_default().into_iter().collect())
    }

    /// Records the begin of a process.
    pub(super) fn begin(&mut self, header: Header, begin: Begin) -> Result<(), MeasureError> {
        self.add(&Line::Header(Box::new(header)))?;
        self.add(&Line::Begin(begin))
    }

    /// Adds a line in one piece, and sees that it lasts.
    pub(super) fn add(&mut self, line: &Line) -> Result<(), MeasureError> {
        let mut text = serde_json::to_string(line).expect("BUG: a line is always JSON");
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        written.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> MeasureError {
        MeasureError::Results { path: self.path.clone(), source }
    }
}

/// Ends a line that was cut off.
fn end_line(file: &mut File) -> io::Result<()> {
    let mut text = Vec::new();
    file.read_to_end(&mut text)?;
    if text.last().is_some_and(|last| *last != b'\n') { file.write_all(b"\n") } else { Ok(()) }
}

#[cfg(test)]
#[path = "journal_tests.rs"]
pub(super) mod tests;
