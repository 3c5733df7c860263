//! The file: written whole or not at all, read with its mistakes named.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use gpu_tuned_core::{atomic_file, regular_file};
use serde::Deserialize;

use super::{LoadError, SaveError, SavedRun};

/// Writes `run` under a temporary name, and renames it when it is on the disk.
pub(super) fn save(run: &SavedRun, directory: &Path) -> Result<PathBuf, SaveError> {
    fs::create_dir_all(directory).map_err(|cause| SaveError::Directory { path: directory.to_owned(), cause })?;
    let path = directory.join(SavedRun::FILE_NAME);
    let mut text = serde_json::to_string_pretty(run).expect("BUG: a saved run is always JSON");
    text.push('\n');
    match atomic_file::replace(&path, &text) {
        Ok(()) => Ok(path),
        Err(cause) => Err(SaveError::Write { path, cause }),
    }
}

/// Format number, which decides whether the rest can be read.
#[derive(Deserialize)]
struct Header {
    format: u64,
    gpu_tuned: Option<String>,
}

/// Reads what [`save`] wrote; `None` where there is no such file.
pub(super) fn load(directory: &Path) -> Result<Option<SavedRun>, LoadError> {
    let path = directory.join(SavedRun::FILE_NAME);
    let bytes = match regular_file::read(&path, regular_file::LARGEST) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(cause) => return Err(LoadError::Read { path, cause }),
    };
    match parse(&bytes) {
        Ok(run) => Ok(Some(run)),
        Err(Mistake::Format(Header { format: found, gpu_tuned: wrote })) => {
            Err(LoadError::Format { path, found, wrote })
        }
        Err(Mistake::Damage(error)) => {
            let message = error.to_string();
            // The position is at the begin of the message.
            let place = format!(" at line {} column {}", error.line(), error.column());
            let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
            Err(LoadError::Damaged { path, line: error.line(), column: error.column(), message })
        }
        Err(Mistake::Figures(message)) => Err(LoadError::Damaged { path, line: 1, column: 1, message }),
    }
}

enum Mistake {
    Format(Header),
    Damage(serde_json::Error),
    Figures(String),
}

fn parse(bytes: &[u8]) -> Result<SavedRun, Mistake> {
    let header: Header = serde_json::from_slice(bytes).map_err(Mistake::Damage)?;
    if header.format != u64::from(SavedRun::FORMAT) {
        return Err(Mistake::Format(header));
    }
    let run: SavedRun = serde_json::from_slice(bytes).map_err(Mistake::Damage)?;
    run.mistake().map_or(Ok(run), |message| Err(Mistake::Figures(message)))
}
