//! Checkpoints of a run on disk; the last two are kept, each in a directory.
//!
//! `step-00000050` contains the parameters (`model.bpk`), the optimizer's moments (`optimizer.bpk`), and the rest of
//! the run's state (`run.json`). A checkpoint is written under a temporary name and renamed when complete, so a
//! killed run keeps its earlier checkpoints.

mod error;

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use burn::{
    module::Module,
    optim::{AdamWConfig, ModuleOptimizer, OptimizerRecord},
    store::ModuleRecord,
    tensor::Device,
};
use serde::{Deserialize, Serialize};

pub use error::CheckpointError;
use error::{io_error, record_error};

use crate::{
    config::TrainingConfig,
    model::Model,
    text::{Corpus, Fingerprint, Vocabulary},
    training::State,
};

const MODEL: &str = "model.bpk";
const OPTIMIZER: &str = "optimizer.bpk";
const RUN: &str = "run.json";
const PREFIX: &str = "step-";
const UNFINISHED: &str = "partial";
const KEPT: usize = 2;

/// State of a run, except for parameters and moments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Optimizer steps taken; determines the learning rate and the windows of the next step.
    pub steps_taken: usize,
    /// Windows in an optimizer step.
    pub global_batch: usize,
    /// Fingerprint of the text.
    pub text: Fingerprint,
    /// The characters of the training text.
    pub vocabulary: Vocabulary,
    /// The settings, seed included.
    pub config: TrainingConfig,
}

impl Run {
    /// Checks that the run can resume with this text and this global batch, in windows.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::OtherText`] or [`CheckpointError::OtherGlobalBatch`].
    pub fn check(&self, corpus: &Corpus, global_batch: usize) -> Result<(), CheckpointError> {
        if self.text != corpus.fingerprint || self.vocabulary != corpus.vocabulary {
            return Err(CheckpointError::OtherText { saved: self.text });
        }
        if self.global_batch != global_batch {
            return Err(CheckpointError::OtherGlobalBatch { saved: self.global_batch, planned: global_batch });
        }
        Ok(())
    }
}

/// A complete checkpoint, read from disk.
pub struct Checkpoint {
    /// Directory of the checkpoint.
    pub path: PathBuf,
    /// State of the run.
    pub run: Run,
    model: ModuleRecord,
    optimizer: OptimizerRecord,
}

impl Checkpoint {
    fn read(path: PathBuf) -> Result<Self, CheckpointError> {
        if is_unfinished(&path) {
            return Err(CheckpointError::Unfinished { path });
        }
        let file = path.join(RUN);
        let json = fs::read(&file).map_err(io_error(&file))?;
        let run = serde_json::from_slice(&json).map_err(|source| CheckpointError::Run { path: file, source })?;
        let file = path.join(MODEL);
        let model = ModuleRecord::load(&file).map_err(record_error(&file))?;
        let file = path.join(OPTIMIZER);
        let optimizer = OptimizerRecord::load(&file).map_err(record_error(&file))?;
        Ok(Self { path, run, model, optimizer })
    }

    /// Restores the run on a device with autodiff.
    ///
    /// Burn loads the optimizer's moments on [`Device::default`] first, so that device must work.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Record`] if the parameters do not match the config's network.
    pub fn restore(self, device: &Device) -> Result<State, CheckpointError> {
        let model = Model::new(&self.run.config, device).try_load_record(self.model);
        let model = model.map_err(record_error(&self.path.join(MODEL)))?;
        let optimizer = AdamWConfig::new().init().load_record(self.optimizer);
        Ok(State { model, optimizer, steps_taken: self.run.steps_taken })
    }
}

/// The checkpoints of one run.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    directory: PathBuf,
    every: usize,
}

impl Checkpoints {
    /// Checkpoints in this directory, one every `every` optimizer steps.
    pub fn new(directory: PathBuf, every: usize) -> Self {
        Self { directory, every: every.max(1) }
    }

    /// Directory of the checkpoints.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns true if a checkpoint is due after `steps_taken` optimizer steps.
    pub fn is_due(&self, steps_taken: usize) -> bool {
        steps_taken.is_multiple_of(self.every)
    }

    /// Checks that the directory has no checkpoints yet.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Occupied`].
    pub fn check_unused(&self) -> Result<(), CheckpointError> {
        if self.list()?.is_empty() {
            return Ok(());
        }
        Err(CheckpointError::Occupied { directory: self.directory.clone() })
    }

    /// Writes a checkpoint, and removes all but the last two.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Io`] and [`CheckpointError::Record`].
    pub fn write(&self, run: &Run, model: &Model, optimizer: &ModuleOptimizer) -> Result<PathBuf, CheckpointError> {
        let path = self.directory.join(format!("{PREFIX}{:08}", run.steps_taken));
        let unfinished = path.with_extension(UNFINISHED);
        for left_behind in [&path, &unfinished] {
            remove(left_behind)?;
        }
        fs::create_dir_all(&unfinished).map_err(io_error(&unfinished))?;

        let json = serde_json::to_vec_pretty(run);
        let json = json.map_err(|source| CheckpointError::Run { path: unfinished.join(RUN), source })?;
        let model = model.clone().into_record().into_bytes().map_err(record_error(&unfinished.join(MODEL)))?;
        let optimizer = optimizer.into_bytes().map_err(record_error(&unfinished.join(OPTIMIZER)))?;
        for (name, bytes) in [(RUN, &json[..]), (MODEL, &model), (OPTIMIZER, &optimizer)] {
            write_through(&unfinished.join(name), bytes)?;
        }
        fs::rename(&unfinished, &path).map_err(io_error(&path))?;
        self.remove_others(run.steps_taken)?;
        Ok(path)
    }

    /// Keeps the last two checkpoints up to a step. Later ones were damaged, else the run would have resumed from
    /// them.
    fn remove_others(&self, steps_taken: usize) -> Result<(), CheckpointError> {
        let mut kept = 0;
        for (step, path) in self.list()? {
            if step <= steps_taken && !is_unfinished(&path) && kept < KEPT {
                kept += 1;
            } else {
                remove(&path)?;
            }
        }
        Ok(())
    }

    /// Reads the newest complete checkpoint. Also returns the errors of newer ones.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::None`] if none is complete.
    pub fn newest(&self) -> Result<(Checkpoint, Vec<CheckpointError>), CheckpointError> {
        let mut skipped = Vec::new();
        for (_, path) in self.list()? {
            match Checkpoint::read(path) {
                Ok(checkpoint) => return Ok((checkpoint, skipped)),
                Err(error) => skipped.push(error),
            }
        }
        Err(CheckpointError::None { directory: self.directory.clone() })
    }

    /// Lists all checkpoints with their steps, unfinished ones included, newest first.
    fn list(&self) -> Result<Vec<(usize, PathBuf)>, CheckpointError> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(io_error(&self.directory))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry.map_err(io_error(&self.directory))?.path();
            if path.extension().is_some() && !is_unfinished(&path) {
                continue;
            }
            let step =
                path.file_stem().and_then(OsStr::to_str).and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
            found.extend(step.map(|step: usize| (step, path)));
        }
        found.sort_unstable_by(|left, right| right.cmp(left));
        Ok(found)
    }
}

fn is_unfinished(path: &Path) -> bool {
    path.extension() == Some(OsStr::new(UNFINISHED))
}

/// Writes a file and flushes it to disk, so that it survives a crash after the rename.
fn write_through(path: &Path, bytes: &[u8]) -> Result<(), CheckpointError> {
    let write = || {
        let mut file = File::create(path)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(io_error(path))
}

fn remove(directory: &Path) -> Result<(), CheckpointError> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done.map_err(io_error(directory)),
    }
}
