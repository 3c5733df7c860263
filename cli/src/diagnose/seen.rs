//! What is diagnosed: recordings, a process that runs, or a program that is started.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned::recording::{self, Record};
use tempfile::TempDir;

use super::args::DiagnoseArgs;
use super::failure::Failure;
use super::program::{self, Ended};
use super::watch;
use crate::error::Error;
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
    _folder: Option<TempDir>,
}

impl Place {
    /// The file that was asked for, which has to be new; else one that does not last.
    pub(super) fn new(file: Option<&PathBuf>) -> Result<Self, Failure> {
        if let Some(file) = file {
            let failed = |source| Failure::Record { path: file.clone(), source };
            fs::OpenOptions::new().write(true).create_new(true).open(file).map_err(failed)?;
            // The program may run in another folder.
            return Ok(Self { file: std::path::absolute(file).map_err(failed)?, _folder: None });
        }
        let folder = tempfile::tempdir().map_err(Failure::Temporary)?;
        Ok(Self { file: folder.path().join("run.jsonl"), _folder: Some(folder) })
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
        if seen.is_err() && fs::metadata(&place.file).is_ok_and(|file| file.len() == 0) {
            // It would be in the way of the next attempt.
            let _ = fs::remove_file(&place.file);
        }
        Ok(seen?)
    }

    /// Reads recordings of one run.
    pub(super) fn recorded(files: &[PathBuf]) -> Result<Self, Error> {
        let (mut records, mut notes) = (Vec::new(), Vec::new());
        for path in files {
            let read = crate::recording::read(path)?;
            notes.extend(read.notes);
            records.extend(read.records);
        }
        Ok(Self { records, notes, ended: None })
    }

    /// Watches a process that runs, and reads what it records of itself.
    fn watched(pid: u32, file: &Path, duration: Duration, stop: &Stop) -> Result<Self, Failure> {
        if cfg!(target_os = "linux") && !is_there(pid) {
            return Err(Failure::NoProcess { pid });
        }
        let own = own_recording(pid);
        let monitor = watch::over(pid, file)?;
        let begin = Instant::now();
        while begin.elapsed() < duration && !stop.is_wanted() && (!cfg!(target_os = "linux") || is_there(pid)) {
            thread::sleep(REST.min(duration));
        }
        monitor.stop()?;
        let files = [Some(file.to_owned()).filter(|file| file.exists()), own];
        let read = |file: &PathBuf| recording::read(file).map(|read| read.records).unwrap_or_default();
        let records = files.iter().flatten().flat_map(read).collect();
        Ok(Self { records, notes: Vec::new(), ended: None })
    }

    fn started(args: &DiagnoseArgs, file: &Path, stop: &Stop) -> Result<Self, Failure> {
        let ended = program::run(&args.command, file, None, args.duration, stop)?;
        Ok(Self { records: read_if_any(file)?, notes: Vec::new(), ended: Some(ended) })
    }
}

/// What a program recorded; nothing, where it records nothing.
pub(super) fn read_if_any(file: &Path) -> Result<Vec<Record>, Failure> {
    if file.exists() { Ok(recording::read(file)?.records) } else { Ok(Vec::new()) }
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
