//! Optimizer state in files: one, or one for each rank that keeps a part of it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::{fs, io};

use burn::module::Module;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn::store::RecordError;
use burn::tensor::Bytes;
use burn_pack::{Reader, Writer};
use gpu_tuned_observe::log::warn_user;
use thiserror::Error;

use super::Trainer;
use super::ranks::digest;
use super::ranks::sharding::{self, Shard};
use crate::device::catching;

/// Reason why the state of an optimizer was not saved or loaded.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum OptimizerFileError {
    /// The folder cannot be listed.
    #[error("cannot list `{}`: {cause}", folder.display())]
    Folder { folder: PathBuf, cause: io::Error },
    /// A file is missing.
    #[error("`{}` does not exist: a checkpoint needs the optimizer state of all ranks that saved it", path.display())]
    Missing { path: PathBuf },
    /// The folder has files of another number of ranks.
    #[error(
        "`{}` and `{}` are of different numbers of ranks: save each checkpoint to a new folder",
        one.display(),
        other.display()
    )]
    SeveralSaves { one: PathBuf, other: PathBuf },
    /// The saved state is of other parameters.
    #[error(
        "the optimizer state in `{}` is of other parameters than the model's: load the record of the model before you create \
         the trainer",
        folder.display()
    )]
    OtherModel { folder: PathBuf },
    /// A file cannot be read or written.
    #[error("`{}`: {message}", path.display())]
    File { path: PathBuf, message: String },
}

impl<M: Module> Trainer<M> {
    /// Saves the state of the optimizer in `folder`, as `optimizer.bpk`, which [`ModuleOptimizer::load`] reads too.
    ///
    /// Call it on every rank. The first rank writes the file. With [sharded state](super::Rank::shard_optimizer), every rank
    /// writes a file of its part instead, such as `optimizer-0-of-2.bpk`.
    ///
    /// # Errors
    ///
    /// [`OptimizerFileError`] if a file cannot be written, or if the folder has files of another number of ranks. All ranks
    /// end then.
    pub fn save_optimizer(&self, folder: impl AsRef<Path>) -> Result<(), OptimizerFileError> {
        self.save_state(folder.as_ref()).inspect_err(|error| self.end_ranks(error))
    }

    /// Name of the file that this rank writes for a checkpoint, and its content in host memory; `None` for a rank without one.
    #[doc(hidden)]
    pub fn optimizer_record(&self) -> Option<(String, OptimizerRecord)> {
        self.file_name().map(|name| (name, self.trained.optimizer.to_record()))
    }

    fn file_name(&self) -> Option<String> {
        match (self.shard(), &self.stepper.rank) {
            (Some(Shard { rank, ranks, .. }), _) => Some(file_of_rank(rank, ranks)),
            (None, Some(rank)) if rank.share().rank() > 0 => None,
            (None, _) => Some(WHOLE.to_owned()),
        }
    }

    fn save_state(&self, folder: &Path) -> Result<(), OptimizerFileError> {
        let Some(path) = self.file_name().map(|name| folder.join(name)) else { return Ok(()) };
        let ranks = |path: &Path| ranks_of(path).expect("the name of a file of state");
        if let Some(other) = files(folder)?.into_iter().find(|other| ranks(other) != ranks(&path)) {
            return Err(OptimizerFileError::SeveralSaves { one: path, other });
        }
        remove_scratch(&path);
        self.trained.optimizer.save(&path).map_err(|error| file_error(&path, &error))
    }

    /// Loads the state of the optimizer that [`save_optimizer`](Self::save_optimizer) saved, with any number of ranks.
    ///
    /// The model has the identifiers of its parameters from its record, so load that first. Burn puts the state on the
    /// default device until the next step.
    ///
    /// # Errors
    ///
    /// [`OptimizerFileError`] if a file is missing or cannot be read, or is of another model. The optimizer is then unchanged,
    /// and all ranks end.
    pub fn load_optimizer(&mut self, folder: impl AsRef<Path>) -> Result<(), OptimizerFileError> {
        let record = self.saved_state(folder.as_ref()).inspect_err(|error| self.end_ranks(error))?;
        self.trained.optimizer = self.trained.optimizer.clone().load_record(record);
        Ok(())
    }

    fn saved_state(&self, folder: &Path) -> Result<OptimizerRecord, OptimizerFileError> {
        let known: HashSet<u64> = sharding::trained(self.master()).into_iter().map(|(id, _)| id).collect();
        let mut packs = Vec::new();
        for path in complete(folder)? {
            packs.push(Reader::from_file_exact(&path).map_err(|error| file_error(&path, &error))?);
        }
        let StateSummary { parameters: saved, text } = StateSummary::from_packs(&packs);
        if let Some(rank) = &self.stepper.rank {
            rank.inputs.record(STATE, text);
        }
        if !saved.is_empty() && saved.is_disjoint(&known) {
            return Err(OptimizerFileError::OtherModel { folder: folder.to_owned() });
        }
        let lost = saved.difference(&known).count();
        if lost > 0 {
            warn_user(&format!(
                "`{}` has optimizer state of {lost} parameters that the model does not train: it is left out",
                folder.display()
            ));
        }
        let kept = self.shard().map_or(known, |shard| shard.parameters);
        read(packs, &kept).map_err(|error| file_error(folder, &error))
    }

    fn end_ranks(&self, error: &OptimizerFileError) {
        if let Some(rank) = &self.stepper.rank {
            rank.fail(error);
        }
    }

    /// Warns once in a process if the optimizer has only this rank's part of the state.
    pub(super) fn warn_of_part(&self) {
        static WARNING: Once = Once::new();
        if let Some(warning) = self.part_warning() {
            WARNING.call_once(|| warn_user(&warning));
        }
    }

    fn part_warning(&self) -> Option<String> {
        let Shard { ranks, .. } = self.shard()?;
        Some(format!(
            "this optimizer has one of {ranks} parts of the state, and a trainer refuses to resume from it: save with \
             `Trainer::save_optimizer` on every rank"
        ))
    }

    /// The part of the optimizer's state that this rank keeps, if not all.
    fn shard(&self) -> Option<Shard> {
        sharding::shard(self.stepper.rank.as_ref()?, self.master())
    }
}

/// State of an optimizer, without its tensors.
pub(super) struct StateSummary {
    /// Parameters with state.
    pub parameters: HashSet<u64>,
    /// Text with a hash of the numbers, such as counts of steps: equal where the state is of the same step.
    pub text: String,
}

impl StateSummary {
    /// Summary of an optimizer's state; `None` for an optimizer without tensors, which loses nothing.
    pub(super) fn new(optimizer: &ModuleOptimizer) -> Result<Option<Self>, RecordError> {
        let record = optimizer.to_record();
        if record.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self::from_packs(&[Reader::from_bytes(record.into_bytes()?)?])))
    }

    fn from_packs(packs: &[Reader]) -> Self {
        let scalars: BTreeMap<&str, String> = packs
            .iter()
            .flat_map(|pack| pack.scalars().iter().map(|(name, value)| (name.as_str(), format!("{value:?}"))))
            .collect();
        let parameters: HashSet<u64> = scalars.keys().filter_map(|name| id_of(name)).collect();
        let text = format!("of {} parameters (hash {:016x})", parameters.len(), digest(&scalars));
        Self { parameters, text }
    }
}

/// The optimizer with the state of some parameters only.
pub(super) fn with_state_of(optimizer: ModuleOptimizer, kept: &HashSet<u64>) -> Result<ModuleOptimizer, RecordError> {
    let pack = Reader::from_bytes(optimizer.into_bytes()?)?;
    Ok(optimizer.load_record(joined(vec![pack], kept)?))
}

/// State of the parameters that are `kept`. Burn reads tensors late, and panics if a file cannot be read then.
fn read(packs: Vec<Reader>, kept: &HashSet<u64>) -> Result<OptimizerRecord, String> {
    catching(|| joined(packs, kept).map_err(|error| error.to_string()))?
}

/// State of the parameters that are `kept`, from several packs.
fn joined(packs: Vec<Reader>, kept: &HashSet<u64>) -> Result<OptimizerRecord, RecordError> {
    let is_kept = |name: &str| id_of(name).is_some_and(|id| kept.contains(&id));
    let (mut scalars, mut paths, mut tensors) = (Vec::new(), Vec::new(), Vec::new());
    for pack in packs {
        scalars.extend(
            pack.scalars().iter().filter(|(name, _)| is_kept(name)).map(|(name, value)| (name.clone(), *value)),
        );
        paths.extend(pack.metadata().clone().into_iter().filter(|(name, _)| is_kept(name)));
        tensors.extend(pack.into_tensors()?.into_iter().filter(|tensor| is_kept(&tensor.name)));
    }
    let writer = scalars.iter().fold(Writer::new(tensors), |writer, (name, value)| writer.with_scalar(name, *value));
    let writer = paths.iter().fold(writer, |writer, (name, path)| writer.with_metadata(name, path));
    let bytes: Bytes = writer.into_bytes()?;
    OptimizerRecord::from_bytes(bytes)
}

/// Identifier of the parameter of an entry, which is named `IDENTIFIER` or `IDENTIFIER.FIELD`.
fn id_of(name: &str) -> Option<u64> {
    name.split('.').next()?.parse().ok()
}

/// Name of the optimizer's state in comparisons of ranks.
pub(super) const STATE: &str = "optimizer state";

/// File of the whole state.
const WHOLE: &str = "optimizer.bpk";

/// File of the state that one of several ranks keeps.
fn file_of_rank(rank: usize, ranks: usize) -> String {
    format!("optimizer-{rank}-of-{ranks}.bpk")
}

/// Number of files with parts of the state, of which this is one; 1 for the whole state, and `None` for another file.
fn ranks_of(path: &Path) -> Option<usize> {
    let name = path.file_name()?.to_str()?;
    if name == WHOLE {
        return Some(1);
    }
    let (rank, ranks) = name.strip_prefix("optimizer-")?.strip_suffix(".bpk")?.split_once("-of-")?;
    let (rank, ranks) = (rank.parse().ok()?, ranks.parse().ok()?);
    (name == file_of_rank(rank, ranks)).then_some(ranks)
}

/// Removes the files that Burn was writing when a save of this file was killed, `NAME.….tmp`. One process saves a file.
fn remove_scratch(path: &Path) {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str)) else { return };
    let is_scratch = |other: &Path| {
        let rest = other.file_name().and_then(OsStr::to_str).and_then(|other| other.strip_prefix(name));
        rest.is_some_and(|rest| rest.starts_with('.')) && other.extension() == Some(OsStr::new("tmp"))
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|other| is_scratch(other)).for_each(|scratch| drop(fs::remove_file(scratch)));
}

/// All files of state in a folder.
fn files(folder: &Path) -> Result<Vec<PathBuf>, OptimizerFileError> {
    let listed = || fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
    let mut files = listed().map_err(|cause| OptimizerFileError::Folder { folder: folder.to_owned(), cause })?;
    files.retain(|path| ranks_of(path).is_some());
    files.sort();
    Ok(files)
}

/// The files of one save, all of them.
fn complete(folder: &Path) -> Result<Vec<PathBuf>, OptimizerFileError> {
    let found = files(folder)?;
    let Some(first) = found.first() else { return Err(OptimizerFileError::Missing { path: folder.join(WHOLE) }) };
    if let Some(other) = found.iter().find(|other| ranks_of(other) != ranks_of(first)) {
        return Err(OptimizerFileError::SeveralSaves { one: first.clone(), other: other.clone() });
    }
    let ranks = ranks_of(first).unwrap_or(1);
    let names = (0..ranks).map(|rank| if ranks == 1 { WHOLE.to_owned() } else { file_of_rank(rank, ranks) });
    let missing = names.map(|name| folder.join(name)).find(|path| !found.contains(path));
    missing.map_or(Ok(found), |path| Err(OptimizerFileError::Missing { path }))
}

fn file_error(path: &Path, error: &impl ToString) -> OptimizerFileError {
    OptimizerFileError::File { path: path.to_owned(), message: error.to_string() }
}
