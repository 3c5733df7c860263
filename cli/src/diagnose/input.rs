//! Input of a diagnosis: recordings, a running process, or a started program.

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use std::{fs, io};

use gpu_tuned_observe::recording::{Record, of_process};
use tempfile::TempDir;

use super::DiagnoseArgs;
use super::program::{self, Ended};
use crate::error::Error;
use crate::output::note;
use crate::process::{Stop, is_running};
use crate::recording::{Recorded, read, read_any};

/// Default time to watch a process.
const WATCHED: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

pub(super) struct Input {
    pub records: Vec<Record>,
    pub notes: Vec<String>,
    pub ended: Option<Ended>,
}

/// File of a recording that is made.
pub(super) struct RecordingFile {
    pub file: PathBuf,
    folder: Option<TempDir>,
}

impl RecordingFile {
    /// The requested file, which must be new; else a temporary one.
    pub(super) fn new(file: Option<&PathBuf>) -> Result<Self, Error> {
        if let Some(file) = file {
            let failed = |source| Error::Write { path: file.clone(), source };
            fs::OpenOptions::new().write(true).create_new(true).open(file).map_err(failed)?;
            // The program may change its folder.
            return Ok(Self { file: std::path::absolute(file).map_err(failed)?, folder: None });
        }
        let mut private = tempfile::Builder::new();
        #[cfg(unix)]
        private.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o700));
        let folder = private.tempdir().map_err(Error::Temporary)?;
        Ok(Self { file: folder.path().join("run.jsonl"), folder: Some(folder) })
    }

    /// Returns the result of using the recording. On failure, the recording is kept and its file is named.
    pub(super) fn done<T>(self, made: Result<T, Error>) -> Result<T, Error> {
        let bytes = fs::metadata(&self.file).map(|file| file.len());
        match (&made, bytes) {
            (Ok(_), _) | (_, Err(_)) => {}
            // An empty file would block the next attempt.
            (Err(_), Ok(0)) => drop(fs::remove_file(&self.file)),
            (Err(_), Ok(_)) => {
                let kept = self.folder.map(TempDir::keep);
                if kept.is_some() {
                    note(&format!("the recording is kept in `{}`", self.file.display()));
                }
            }
        }
        made
    }
}

impl Input {
    pub(super) fn new(args: &DiagnoseArgs, stop: &Stop) -> Result<Self, Error> {
        if !args.recordings.is_empty() {
            return Self::recorded(&args.recordings);
        }
        let file = RecordingFile::new(args.record.as_ref())?;
        let input = match args.pid {
            Some(pid) => Self::watched(pid, &file.file, args.duration.unwrap_or(WATCHED), stop),
            None => Self::started(args, &file.file, stop),
        };
        file.done(input)
    }

    /// Reads recordings of one run.
    pub(super) fn recorded(files: &[PathBuf]) -> Result<Self, Error> {
        let (mut records, mut notes) = (Vec::new(), Vec::new());
        for path in files {
            let read = read(path)?;
            notes.extend(read.notes);
            records.extend(read.records);
        }
        Ok(Self { records, notes, ended: None })
    }

    /// Watches a running process, and reads its own recording.
    fn watched(pid: u32, file: &Path, duration: Duration, stop: &Stop) -> Result<Self, Error> {
        if !is_running(pid) {
            return Err(Error::NoProcess { pid });
        }
        let own = of_process(pid);
        let monitor = program::watch(pid, file)?;
        let begin = Instant::now();
        while begin.elapsed() < duration && !stop.is_wanted() && is_running(pid) {
            thread::sleep(POLL.min(duration));
        }
        monitor.stop()?;
        let Recorded { mut records, mut notes } = read_if_there(file)?;
        match own.map_or_else(|| Ok(Recorded::default()), |own| read_any(&own)) {
            Ok(own) => {
                records.extend(own.records);
                notes.extend(own.notes);
            }
            Err(error) if records.is_empty() => return Err(error),
            Err(error) => notes.push(format!("the recording of the program itself is left out: {error}")),
        }
        Ok(Self { records, notes, ended: None })
    }

    fn started(args: &DiagnoseArgs, file: &Path, stop: &Stop) -> Result<Self, Error> {
        let ended = program::run(&args.command, file, None, args.duration, stop)?;
        let Recorded { records, notes } = read_if_there(file)?;
        Ok(Self { records, notes, ended: Some(ended) })
    }
}

/// The records of a program, which may have made no recording.
pub(super) fn read_if_there(file: &Path) -> Result<Recorded, Error> {
    if is_there(file)? { read_any(file) } else { Ok(Recorded::default()) }
}

/// Returns true for a file, and refuses what would block, such as a pipe that the program made in its place.
pub(super) fn is_there(file: &Path) -> Result<bool, Error> {
    let is_other = fs::metadata(file).is_ok_and(|found| !found.is_file());
    let refused = || Error::Read { path: file.to_owned(), source: io::Error::other("it is not a regular file") };
    if is_other { Err(refused()) } else { Ok(file.exists()) }
}
