//! Checkpoints on disk: a folder for each, which gets its name when it is complete.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File, TryLockError};
use std::io::{self, BufRead as _, BufReader, ErrorKind};
use std::path::{Path, PathBuf};

use gpu_tuned_core::regular_file;
use gpu_tuned_observe::log::warn_user;
use gpu_tuned_train::mixed::LossScale;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::CheckpointError;
use crate::saved::SavedRun;

/// Name of the manifest. It is written last.
const MANIFEST: &str = "checkpoint.json";
/// Format of the manifest.
const FORMAT: u32 = 1;
/// Ending of the name of a folder that is not complete.
const PARTIAL: &str = ".partial";
/// Ending of the name of a checkpoint that is being removed.
const OLD: &str = ".old.partial";

/// State of a run after some steps, without parameters and optimizer state.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Progress {
    pub steps: u64,
    pub epoch: u64,
    pub steps_in_epoch: u64,
    /// Seed of the random numbers of all steps; `None` before the first step.
    pub seed: Option<u64>,
    pub loss_scale: LossScale,
    /// Values by name, each with its step; `None` for one that is not finite.
    pub values: BTreeMap<String, Vec<(u64, Option<f64>)>>,
    /// State of the program.
    pub state: serde_json::Value,
}

/// A file of a checkpoint.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Written {
    name: String,
    pub bytes: u64,
    crc32: u32,
}

impl Written {
    /// Reads a file, and counts what is there.
    pub(super) fn read(folder: &Path, name: &str) -> io::Result<Self> {
        let mut file = BufReader::with_capacity(1 << 20, File::open(folder.join(name))?);
        let (mut hasher, mut bytes) = (crc32fast::Hasher::new(), 0);
        loop {
            let part = file.fill_buf()?;
            if part.is_empty() {
                return Ok(Self { name: name.to_owned(), bytes, crc32: hasher.finalize() });
            }
            hasher.update(part);
            let length = part.len();
            bytes += length as u64;
            file.consume(length);
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Manifest {
    format: u32,
    #[serde(flatten)]
    progress: Progress,
    files: Vec<Written>,
}

/// A whole checkpoint on disk.
///
/// A folder such as `step-00000500-epoch-0002`, without an epoch before the end of the first one. `model.bpk` and
/// `optimizer.bpk` are Burn's records: `ModuleRecord::load` and `ModuleOptimizer::load` read them. Ranks with sharded
/// state write `optimizer-0-of-2.bpk` and so on. `gpu-tuned-run.json` is the plan, and `checkpoint.json` has the rest: the
/// position, the values, the program's state, and length and CRC-32 of each file.
#[derive(Clone, Debug)]
pub struct Checkpoint {
    path: PathBuf,
    pub(super) progress: Progress,
}

impl Checkpoint {
    /// Reads the newest whole checkpoint in `folder`; `None` if none was completed. Damaged ones are passed over with a
    /// warning.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::File`] for a folder that cannot be read, and [`CheckpointError::Damaged`] if there are checkpoints
    /// and all are damaged: a new run would replace them.
    pub fn newest(folder: impl AsRef<Path>) -> Result<Option<Self>, CheckpointError> {
        newest(folder.as_ref(), true)
    }

    /// Folder of the checkpoint. A run goes on from the newest: to go back, remove the newer folders.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Optimizer steps of the run until the checkpoint.
    pub fn steps(&self) -> u64 {
        self.progress.steps
    }

    /// Values with this name, each with the steps until then. A value that was infinite is NaN.
    pub fn values(&self, name: &str) -> impl Iterator<Item = (u64, f64)> + use<'_> {
        self.progress.values(name)
    }

    /// Reads the state that the program has [set](super::Checkpoints::set_state).
    ///
    /// # Errors
    ///
    /// [`CheckpointError::State`] if it is of another type, or was never set.
    pub fn state<T: DeserializeOwned>(&self) -> Result<T, CheckpointError> {
        let (path, state) = (self.path.join(MANIFEST), self.progress.state.clone());
        serde_json::from_value(state).map_err(|cause| CheckpointError::State { path, cause })
    }

    /// Reads a checkpoint, and checks the lengths of its files; with `thorough` also their contents.
    pub(super) fn read(path: PathBuf, thorough: bool) -> Result<Self, String> {
        let text = regular_file::read(&path.join(MANIFEST), regular_file::LARGEST);
        let manifest: Result<Manifest, _> =
            serde_json::from_slice(&text.map_err(|error| format!("{MANIFEST}: {error}"))?);
        let Manifest { format, progress, files } =
            manifest.map_err(|error| format!("{MANIFEST} is damaged: {error}"))?;
        if format != FORMAT {
            return Err(format!("{MANIFEST} has format {format}, this program reads format {FORMAT}"));
        }
        for Written { name, bytes, crc32 } in files {
            let unreadable = |error: io::Error| format!("{name}: {error}");
            let there = fs::metadata(path.join(&name)).map_err(unreadable)?.len();
            if there != bytes {
                return Err(format!("{name} has {there} of {bytes} bytes"));
            }
            if thorough && Written::read(&path, &name).map_err(unreadable)?.crc32 != crc32 {
                return Err(format!("{name} is damaged"));
            }
        }
        Ok(Self { path, progress })
    }
}

impl Progress {
    pub(super) fn values(&self, name: &str) -> impl Iterator<Item = (u64, f64)> + use<'_> {
        let values = self.values.get(name).into_iter().flatten();
        values.map(|(step, value)| (*step, value.unwrap_or(f64::NAN)))
    }

    /// Name of the folder of the checkpoint. The end of an epoch has another name than its last step.
    fn name(&self) -> String {
        match self.epoch {
            0 => format!("step-{:08}", self.steps),
            epoch => format!("step-{:08}-epoch-{epoch:04}", self.steps),
        }
    }
}

/// Reads the newest whole checkpoint: see [`Checkpoint::newest`]. Without `thorough`, contents are not checked, and nothing
/// is printed.
pub(crate) fn newest(folder: &Path, thorough: bool) -> Result<Option<Checkpoint>, CheckpointError> {
    let mut reasons = Vec::new();
    for (_, path) in list(folder)?.into_iter().rev() {
        let name = path.display().to_string();
        match Checkpoint::read(path, thorough) {
            Ok(checkpoint) => {
                let text = |reason| format!("a damaged checkpoint is passed over: {reason}");
                reasons.iter().filter(|_| thorough).for_each(|reason| warn_user(&text(reason)));
                return Ok(Some(checkpoint));
            }
            Err(reason) => reasons.push(format!("{name}: {reason}")),
        }
    }
    if reasons.is_empty() { Ok(None) } else { Err(CheckpointError::Damaged { folder: folder.to_owned(), reasons }) }
}

/// Steps and epoch in the name of a checkpoint.
type Position = (u64, u64);

/// Folders with the name of a complete checkpoint; the oldest first.
fn list(folder: &Path) -> Result<Vec<(Position, PathBuf)>, CheckpointError> {
    let position = |path: &PathBuf| {
        let numbers = path.file_name()?.to_str()?.strip_prefix("step-")?;
        let (steps, epoch) = numbers.split_once("-epoch-").unwrap_or((numbers, "0"));
        Some((steps.parse().ok()?, epoch.parse().ok()?))
    };
    let paths = paths(folder).map_err(|cause| CheckpointError::File { path: folder.to_owned(), cause })?;
    let mut found: Vec<_> = paths.into_iter().filter_map(|path| Some((position(&path)?, path))).collect();
    found.sort();
    Ok(found)
}

/// All that is in a folder; nothing if the folder is missing.
fn paths(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        entries => entries?.map(|entry| Ok(entry?.path())).collect(),
    }
}

/// Value of which the best checkpoint is kept.
#[derive(Clone, Debug)]
pub(super) struct Best {
    pub name: String,
    pub is_highest: bool,
}

/// Folder of a run's checkpoints, which one process writes at a time.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    /// Locked, unless the file system has no locks.
    _lock: Option<File>,
}

impl Folder {
    /// Creates the folder, locks it, and removes what killed processes have left in it.
    pub(super) fn open(path: PathBuf) -> Result<Self, CheckpointError> {
        let failed = |cause| CheckpointError::File { path: path.clone(), cause };
        fs::create_dir_all(&path).map_err(failed)?;
        let lock = File::options().create(true).truncate(false).write(true).open(path.join(".lock")).map_err(failed)?;
        if matches!(lock.try_lock(), Err(TryLockError::WouldBlock)) {
            return Err(CheckpointError::InUse { folder: path });
        }
        for partial in paths(&path).map_err(failed)?.iter().filter(|path| is_partial(path)) {
            remove(partial).map_err(failed)?;
        }
        Ok(Self { path, _lock: Some(lock) })
    }

    /// The folder for a process that does not own it.
    pub(super) fn other(path: PathBuf) -> Self {
        Self { path, _lock: None }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Folder of a checkpoint that is not complete.
    pub(super) fn partial(&self, progress: &Progress) -> PathBuf {
        self.path.join(progress.name() + PARTIAL)
    }

    /// Begins a checkpoint: an empty folder with the plan.
    pub(super) fn begin(&self, progress: &Progress, run: &SavedRun) -> Result<(), String> {
        let partial = self.partial(progress);
        remove(&partial).map_err(|error| format!("{}: {error}", partial.display()))?;
        let saved = run.save(&partial).map(drop).map_err(|error| error.to_string());
        saved.inspect_err(|_| self.discard(progress))
    }

    /// Removes what a failed save has written, as far as possible.
    pub(super) fn discard(&self, progress: &Progress) {
        drop(remove(&self.partial(progress)));
    }

    /// Completes a checkpoint with these files, and removes older ones.
    pub(super) fn complete(
        &self,
        progress: &Progress,
        files: Vec<Written>,
        keep: usize,
        best: Option<&Best>,
    ) -> Result<(), String> {
        let (partial, path) = (self.partial(progress), self.path.join(progress.name()));
        let complete = || {
            let plan = Written::read(&partial, SavedRun::FILE_NAME)?;
            let files = files.into_iter().chain([plan]).collect();
            let manifest = Manifest { format: FORMAT, progress: progress.clone(), files };
            // Brings the entries of the folder to the disk, too.
            gpu_tuned_core::atomic_file::replace(&partial.join(MANIFEST), serde_json::to_vec_pretty(&manifest)?)?;
            // What is there is damaged: the run would have resumed from it.
            remove(&path)?;
            fs::rename(&partial, &path)?;
            // Some systems cannot sync a folder; the checkpoint is complete in any case.
            drop(File::open(&self.path).and_then(|folder| folder.sync_all()));
            Ok(())
        };
        complete().map_err(|error: io::Error| format!("{}: {error}", path.display()))?;
        self.clean(progress, keep, best);
        Ok(())
    }

    /// Removes all checkpoints but the newest and the best, and later ones, which are damaged.
    pub(super) fn clean(&self, progress: &Progress, keep: usize, best: Option<&Best>) {
        let all = list(&self.path).unwrap_or_default();
        let (mut older, later): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|(at, _)| *at <= (progress.steps, progress.epoch));
        let score = |path: &PathBuf| {
            let Best { name, is_highest } = best?;
            let Checkpoint { progress, .. } = Checkpoint::read(path.clone(), false).ok()?;
            let (_, value) = progress.values(name).last().filter(|(step, _)| *step == progress.steps)?;
            Some(if *is_highest { -value } else { value }).filter(|value| !value.is_nan())
        };
        let scored = older.iter().filter_map(|(_, path)| Some((score(path)?, path.clone())));
        let best = scored.min_by(|(one, _), (other, _)| one.partial_cmp(other).unwrap_or(Ordering::Equal));
        older.truncate(older.len().saturating_sub(keep));
        let kept = best.map(|(_, path)| path);
        for (_, path) in older.into_iter().chain(later).filter(|(_, path)| Some(path) != kept.as_ref()) {
            if let Err(error) = remove(&path) {
                warn_user(&format!("an old checkpoint cannot be removed: `{}`: {error}", path.display()));
            }
        }
    }
}

/// Returns true for what killed processes leave.
fn is_partial(path: &Path) -> bool {
    let name = path.file_name().and_then(OsStr::to_str);
    name.is_some_and(|name| name.starts_with("step-") && name.ends_with(PARTIAL))
}

/// Removes a folder. A checkpoint loses its name first: what is left of it is none.
fn remove(path: &Path) -> io::Result<()> {
    let ignored = |result: io::Result<()>| match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        result => result,
    };
    if is_partial(path) {
        return ignored(fs::remove_dir_all(path));
    }
    let mut old = path.as_os_str().to_owned();
    old.push(OLD);
    remove(Path::new(&old))?;
    ignored(fs::rename(path, &old))?;
    remove(Path::new(&old))
}
