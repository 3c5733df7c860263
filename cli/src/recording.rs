//! Recordings that commands read.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gpu_tuned_observe::recording::{Record, parse};

use crate::error::Error;
use crate::stdio::{input_name, is_standard, quoted};

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
    let bytes = if is_standard(path) { bounded(io::stdin().lock()) } else { fs::File::open(path).and_then(bounded) };
    let bytes = bytes.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    let recording = parse(&input_name(path), &text);
    let recording = recording.map_err(|mistake| Error::Files { mistakes: vec![(mistake, Arc::from(&*text))] })?;
    let is_cut_off = !text.ends_with('\n');
    let notes = recording.remarks(is_cut_off.then(|| text.lines().count()));
    let notes = notes.into_iter().map(|note| format!("{}: {note}", quoted(path))).collect();
    Ok(Recorded { records: recording.records, notes })
}

/// Reads at most 1 GiB: devices can be endless. Pipes are read, such as those of a program that unpacks a recording.
fn bounded(source: impl Read) -> io::Result<Vec<u8>> {
    const LARGEST: u64 = 1 << 30;
    let mut bytes = Vec::new();
    source.take(LARGEST + 1).read_to_end(&mut bytes)?;
    let is_whole = bytes.len() as u64 <= LARGEST;
    is_whole.then_some(bytes).ok_or_else(|| io::Error::other("it is larger than 1 GiB, the most that is read"))
}

/// The output for a recording: `run.trace.json` for `run.jsonl`, standard output for standard input.
pub(crate) fn beside(recording: &Path, extension: &str) -> PathBuf {
    if is_standard(recording) { recording.to_owned() } else { recording.with_extension(extension) }
}
