//! Recordings that commands read, and files that they make of them.

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use gpu_tuned_observe::recording::{Record, Recording, parse};

use crate::error::Error;
use crate::init::write::new_file;

/// How recordings come to be.
pub(crate) const HOW_TO: &str = "a program of gpu-tuned records its steps with GPU_TUNED_RECORD=FILE, and `cargo gpu-tuned \
                                 monitor --record FILE` what the GPUs do";

/// So many lines are named at most.
const MOST_NAMED: usize = 5;

/// What was recorded, and what is to be known about it.
#[derive(Default)]
pub(crate) struct Recorded {
    pub(crate) records: Vec<Record>,
    pub(crate) notes: Vec<String>,
}

/// Whether a path means the standard input or the standard output: a file of this name is `./-`.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// How messages call a recording.
pub(crate) fn name(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// The same within a sentence.
pub(crate) fn quoted(path: &Path) -> String {
    if is_standard(path) { name(path) } else { format!("`{}`", path.display()) }
}

/// Refuses to read the standard input twice: the second time, nothing is left of it.
pub(crate) fn once<'a>(recordings: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Error> {
    let count = recordings.into_iter().filter(|path| is_standard(path)).count();
    if count > 1 { Err(Error::TwiceStandardInput) } else { Ok(()) }
}

/// Refuses to print what was asked for beside JSON.
pub(crate) fn alone(output: &Path, is_json: bool) -> Result<(), Error> {
    if is_standard(output) && is_json { Err(Error::NotAlone) } else { Ok(()) }
}

/// Reads a recording; one without a record is a mistake.
pub(crate) fn read(path: &Path) -> Result<Recorded, Error> {
    let recorded = read_any(path)?;
    if recorded.records.is_empty() { Err(Error::EmptyRecording { path: path.to_owned() }) } else { Ok(recorded) }
}

/// Reads a recording that may have no records yet.
pub(crate) fn read_any(path: &Path) -> Result<Recorded, Error> {
    let bytes = if is_standard(path) { standard_input() } else { fs::read(path) };
    let bytes = bytes.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    let recording = parse(&name(path), &text);
    let recording = recording.map_err(|mistake| Error::Files { mistakes: vec![(mistake, text.to_string())] })?;
    let is_cut_off = !text.ends_with('\n');
    let notes = torn(&recording, is_cut_off.then(|| text.lines().count()));
    let notes = notes.into_iter().map(|note| format!("{}: {note}", quoted(path))).collect();
    Ok(Recorded { records: recording.records, notes })
}

/// Where records were not written to their end; `cut_off` is the number of the last line, where that has no end.
fn torn(recording: &Recording, cut_off: Option<usize>) -> Vec<String> {
    let (last, within): (Vec<usize>, Vec<_>) = recording.torn.iter().partition(|line| Some(**line) == cut_off);
    let numbers: Vec<_> = within.iter().take(MOST_NAMED).map(ToString::to_string).collect();
    let more = within.len() - numbers.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let within = match numbers.as_slice() {
        [] => None,
        [line] => Some(format!("line {line} has a record that is not written to its end, and is left out")),
        lines => Some(format!(
            "lines {}{more} have records that are not written to their end, and are left out",
            lines.join(", ")
        )),
    };
    let within = within.map(|said| format!("{said}: a program was killed, or could not write it"));
    let last = last.first().map(|_| {
        "the last line is not written to its end, and is left out: the program goes on, or was killed".to_owned()
    });
    within.into_iter().chain(last).collect()
}

fn standard_input() -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
}

/// Writes a file, completely or not at all. Links are followed, a file that is replaced keeps its permissions, and what is no
/// file, such as a pipe, is written as it is.
pub(crate) fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let place = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    match fs::metadata(&place) {
        Ok(there) if there.is_file() => replace(&place, Some(there.permissions()), write),
        Ok(there) if there.is_dir() => Err(io::Error::from(io::ErrorKind::IsADirectory)),
        Ok(_) => fs::OpenOptions::new().write(true).open(&place).and_then(|mut file| write(&mut file)),
        Err(_) => replace(&place, None, write),
    }
    .map_err(failed)
}

fn replace(
    path: &Path,
    permissions: Option<fs::Permissions>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // The name of what is temporary is nothing to tell.
    let untold = |error: io::Error| io::Error::from(error.kind());
    let mut file = new_file(folder).map_err(untold)?;
    let mut gathered = io::BufWriter::new(file.as_file_mut());
    write(&mut gathered).and_then(|()| gathered.flush())?;
    drop(gathered);
    if let Some(permissions) = permissions {
        file.as_file().set_permissions(permissions)?;
    }
    file.persist(path).map(drop).map_err(|error| error.error)
}

/// Refuses to write over what is read.
pub(crate) fn distinct(input: &Path, output: &Path) -> Result<(), Error> {
    if is_standard(input) || is_standard(output) {
        return Ok(());
    }
    let same = fs::canonicalize(input).is_ok_and(|input| fs::canonicalize(output).is_ok_and(|output| input == output));
    if same { Err(Error::SameFile { path: output.to_owned() }) } else { Ok(()) }
}

/// The file beside a recording: `run.jsonl` becomes `run.trace.json`. Beside the standard input is the standard output.
pub(crate) fn beside(recording: &Path, extension: &str) -> PathBuf {
    if is_standard(recording) { recording.to_owned() } else { recording.with_extension(extension) }
}
