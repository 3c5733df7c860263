//! Recordings that commands read, and files that they make of them.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use gpu_tuned::recording::{Record, parse};

use crate::error::Error;
use crate::init::write::new_file;

/// What was recorded, and what is to be known about it.
pub(crate) struct Recorded {
    pub(crate) records: Vec<Record>,
    pub(crate) notes: Vec<String>,
}

/// Reads a recording.
pub(crate) fn read(path: &Path) -> Result<Recorded, Error> {
    let bytes = fs::read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let recording = parse(&path.display().to_string(), &text);
    let recording = recording.map_err(|mistake| Error::Files { mistakes: vec![(mistake, text)] })?;
    let torn = "the last line is not written to its end, and is left out: the program goes on, or was killed";
    let notes = recording.is_torn.then(|| format!("`{}`: {torn}", path.display())).into_iter().collect();
    Ok(Recorded { records: recording.records, notes })
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
    let same = fs::canonicalize(input).is_ok_and(|input| fs::canonicalize(output).is_ok_and(|output| input == output));
    if same { Err(Error::SameFile { path: output.to_owned() }) } else { Ok(()) }
}

/// The file beside a recording: `run.jsonl` becomes `run.trace.json`.
pub(crate) fn beside(recording: &Path, extension: &str) -> PathBuf {
    recording.with_extension(extension)
}
