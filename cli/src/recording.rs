//! Recordings that commands read.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_tuned_core::regular_file::{self, read_all};
use gpu_tuned_observe::recording::{LARGEST, Record, parse};

use crate::error::Error;
use crate::files::{input_name, is_standard, quoted};

/// Records, and remarks about damaged ones.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) records: Vec<Record>,
    pub(crate) notes: Vec<String>,
}

/// Reads a recording with at least one record.
pub(crate) fn read(path: &Path) -> Result<Recorded, Error> {
    let recorded = read_any(path)?;
    if recorded.records.is_empty() { Err(Error::EmptyRecording { path: path.to_owned() }) } else { Ok(recorded) }
}

/// Reads a recording that may be empty.
pub(crate) fn read_any(path: &Path) -> Result<Recorded, Error> {
    let bytes = if is_standard(path) { read_all(io::stdin(), LARGEST) } else { regular_file::read_any(path, LARGEST) };
    let bytes = bytes.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    let recording = parse(&input_name(path), &text);
    let recording = recording.map_err(|mistake| Error::Files { mistakes: vec![(mistake, Arc::from(&*text))] })?;
    let is_cut_off = !text.ends_with('\n');
    let notes = recording.remarks(is_cut_off.then(|| text.lines().count()));
    let notes = notes.into_iter().map(|note| format!("{}: {note}", quoted(path))).collect();
    Ok(Recorded { records: recording.records, notes })
}

/// The output for a recording: `run.trace.json` for `run.jsonl`, standard output for standard input.
pub(crate) fn beside(recording: &Path, extension: &str) -> PathBuf {
    if is_standard(recording) { recording.to_owned() } else { recording.with_extension(extension) }
}
