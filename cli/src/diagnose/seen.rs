//! What is diagnosed: recordings, a process that runs, or a program that is started.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_observe::recording::Record;
use tempfile::TempDir;

use super::args::DiagnoseArgs;
use super::failure::Failure;
use super::program::{self, Ended};
use super::watch;
use crate::error::Error;
use crate::recording::{Recorded, read, read_any};
use crate::stop::Stop;

/// The time for which a process is watched when nobody says how long.
const WATCHED: Duration = Duration::from_secs(30);
/// How soon its end is seen.
const REST: Duration = Duration::from_millis(50);

/// What was seen of a run.
pub(super) struct Seen {
    pub records: Vec<Record>,
    pub notes: Vec<String>,
    /// How the program ended that was started.
    pub ended: Option<Ended>,
}

/// Where a recording is made.
pub(super) struct Place {
    pub file: PathBuf,
    folder: Option<TempDir>,
}

impl Place {
    /// The file that was asked for, which has to be new; else one that does not last.
    pub(super) fn new(file: Option<&PathBuf>) -> Result<Self, Failure> {
        if let Some(file) = file {
            let failed = |source| Failure::Record { path: file.clone(), source };
            fs::OpenOptions::new().write(true).create_new(true).open(file).map_err(failed)?;
            // The program may run in another folder.
            return Ok(Self { file: std::path::absolute(file).map_err(failed)?, folder: None });
        }
        let folder = tempfile::tempdir().map_err(Failure::Temporary)?;
        Ok(Self { file: folder.path().join("run.jsonl"), folder: Some(folder) })
    }

    /// What was made of the recording. When that failed, what was recorded until then stays, and its file is named.
    pub(super) fn done<T>(self, made: Result<T, Error>) -> Result<T, Error> {
        let bytes = fs::metadata(&self.file).map(|file| file.len());
        match (&made, bytes) {
            (Ok(_), _) | (_, Err(_)) => {}
            // It would be in the way of the next attempt.
            (Err(_), Ok(0)) => drop(fs::remove_file(&self.file)),
            (Err(_), Ok(_)) => {
                let kept = self.folder.map(TempDir::keep);
                if kept.is_some() {
                    crate::say(&format!("note: what was recorded is kept in `{}`", self.file.display()));
                }
            }
        }
        made
    }
}

impl Seen {
    pub(super) fn of(args: &DiagnoseArgs, stop: &Stop) -> Result<Self, Error> {
        if !args.recordings.is_empty() {
            return Self::recorded(&args.recordings);
        }
        let place = Place::new(args.record.as_ref())?;
        let seen = match args.pid {
            Some(pid) => Self::watched(pid, &place.file, args.duration.unwrap_or(WATCHED), stop),
            None => Self::started(args, &place.file, stop),
        };
        place.done(seen)
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

    /// Watches a process that runs, and reads what it records of itself.
    fn watched(pid: u32, file: &Path, duration: Duration, stop: &Stop) -> Result<Self, Error> {
        if cfg!(target_os = "linux") && !is_there(pid) {
            return Err(Failure::NoProcess { pid }.into());
        }
        let own = own_recording(pid);
        let monitor = watch::over(pid, file)?;
        let begin = Instant::now();
        while begin.elapsed() < duration && !stop.is_wanted() && (!cfg!(target_os = "linux") || is_there(pid)) {
            thread::sleep(REST.min(duration));
        }
        monitor.stop().map_err(Failure::Monitor)?;
        let Recorded { mut records, mut notes } = read_if_there(file)?;
        match own.map_or_else(|| Ok(Recorded::default()), |own| read_any(&own)) {
            Ok(own) => {
                records.extend(own.records);
                notes.extend(own.notes);
            }
            Err(error) if records.is_empty() => return Err(error),
            Err(error) => notes.push(format!("what the program records of itself is left out: {error}")),
        }
        Ok(Self { records, notes, ended: None })
    }

    fn started(args: &DiagnoseArgs, file: &Path, stop: &Stop) -> Result<Self, Error> {
        let ended = program::run(&args.command, file, None, args.duration, stop)?;
        let Recorded { records, notes } = read_if_there(file)?;
        Ok(Self { records, notes, ended: Some(ended) })
    }
}

/// What a program recorded; nothing, where it records nothing.
pub(super) fn read_if_there(file: &Path) -> Result<Recorded, Error> {
    if file.exists() { read_any(file) } else { Ok(Recorded::default()) }
}

fn is_there(pid: u32) -> bool {
    Path::new("/proc").join(pid.to_string()).exists()
}

/// The recording that a process keeps of itself, as far as that can be seen.
fn own_recording(pid: u32) -> Option<PathBuf> {
    let process = Path::new("/proc").join(pid.to_string());
    let variables = fs::read(process.join("environ")).ok()?;
    let named = variables.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"GPU_TUNED_RECORD="))?;
    let file = String::from_utf8(named.to_vec()).ok()?;
    Some(fs::read_link(process.join("cwd")).ok()?.join(file))
}
