//! Recordings that commands read.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use gpu_tuned_observe::recording::{Record, Recording, parse};

use crate::error::Error;
use crate::stdio::{input_name, is_standard, quoted};

const MAX_LISTED: usize = 5;

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
    let bytes = if is_standard(path) { standard_input() } else { fs::read(path) };
    let bytes = bytes.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    let recording = parse(&input_name(path), &text);
    let recording = recording.map_err(|mistake| Error::Files { mistakes: vec![(mistake, text.to_string())] })?;
    let is_cut_off = !text.ends_with('\n');
    let notes = torn(&recording, is_cut_off.then(|| text.lines().count()));
    let notes = notes.into_iter().map(|note| format!("{}: {note}", quoted(path))).collect();
    Ok(Recorded { records: recording.records, notes })
}

/// Remarks about incomplete records; `cut_off` is the number of a last line without a line break.
fn torn(recording: &Recording, cut_off: Option<usize>) -> Vec<String> {
    let (last, within): (Vec<usize>, Vec<_>) = recording.torn.iter().partition(|line| Some(**line) == cut_off);
    let numbers: Vec<_> = within.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    let more = within.len() - numbers.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let within = match numbers.as_slice() {
        [] => None,
        [line] => Some(format!("line {line} has an incomplete record, which is left out")),
        lines => Some(format!("lines {}{more} have incomplete records, which are left out", lines.join(", "))),
    };
    let within = within.map(|said| format!("{said}: a program was killed, or could not write"));
    let last = last
        .first()
        .map(|_| "the last line is incomplete and left out: the program is running, or was killed".to_owned());
    within.into_iter().chain(last).collect()
}

fn standard_input() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
}

/// The output for a recording: `run.trace.json` for `run.jsonl`, standard output for standard input.
pub(crate) fn beside(recording: &Path, extension: &str) -> PathBuf {
    if is_standard(recording) { recording.to_owned() } else { recording.with_extension(extension) }
}
