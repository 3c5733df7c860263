//! Recordings that commands read, and files that they make of them.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use gpu_tuned::recording::{Record, parse};

use crate::error::Error;

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

/// Writes a file, completely or not at all.
pub(crate) fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> std::io::Result<()>) -> Result<(), Error> {
    let failed = |source| Error::Write { path: path.to_owned(), source };
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    // As any file that is made: the user's mask says who reads it.
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut file = builder.tempfile_in(folder).map_err(failed)?;
    let mut gathered = std::io::BufWriter::new(file.as_file_mut());
    write(&mut gathered).and_then(|()| gathered.flush()).map_err(failed)?;
    drop(gathered);
    file.persist(path).map(drop).map_err(|error| failed(error.error))
}

/// The file beside a recording: `run.jsonl` becomes `run.trace.json`.
pub(crate) fn beside(recording: &Path, extension: &str) -> PathBuf {
    recording.with_extension(extension)
}
