//! What a run leaves on disk: a directory for each of its last two checkpoints.
//!
//! `step-00000050` holds the parameters (`model.bpk`), the optimizer's moments (`optimizer.bpk`), and what else the run
//! depends on (`run.json`). It is written under another name and renamed when it is complete, so that a run that is killed
//! at any time leaves the checkpoints before.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use burn::{
    module::Module,
    optim::{AdamWConfig, ModuleOptimizer, OptimizerRecord},
    store::{ModuleRecord, RecordError},
    tensor::Device,
};
use serde::{Deserialize, Serialize};

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

/// Why there is no checkpoint to write or to go on from.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// A file or directory cannot be read or written.
    #[error("cannot read or write {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not hold what its name says.
    #[error("{} is damaged", path.display())]
    Record {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: RecordError,
    },
    /// The file about the run does not hold what it should.
    #[error("{} is damaged", path.display())]
    Run {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The run was interrupted while it wrote this checkpoint.
    #[error("{} is unfinished", path.display())]
    Unfinished {
        /// The directory.
        path: PathBuf,
    },
    /// There is nothing to go on from.
    #[error("there is no complete checkpoint in {}", directory.display())]
    None {
        /// Where checkpoints were looked for.
        directory: PathBuf,
    },
    /// A new run would mix its checkpoints with those of another.
    #[error("{} holds checkpoints of another run; go on with --resume, or name another directory", directory.display())]
    Occupied {
        /// The directory.
        directory: PathBuf,
    },
    /// The run learns from another text.
    #[error("the run was begun with another text of {} bytes; name the same with --text", saved.bytes)]
    OtherText {
        /// Of the text that the run was begun with.
        saved: Fingerprint,
    },
    /// The run takes optimizer steps of another size.
    #[error("the run was begun with a global batch of {saved}, this program has one of {planned}")]
    OtherGlobalBatch {
        /// Windows in an optimizer step until now.
        saved: usize,
        /// Windows in an optimizer step from now on.
        planned: usize,
    },
}

/// What a run depends on, beside its parameters and moments.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Optimizer steps taken. The learning rate and the windows of the next step follow from it.
    pub steps_taken: usize,
    /// Windows in an optimizer step.
    pub global_batch: usize,
    /// Of the text.
    pub text: Fingerprint,
    /// The characters that the network tells apart.
    pub vocabulary: Vocabulary,
    /// The settings, seed included.
    pub config: TrainingConfig,
}

impl Run {
    /// Checks that a run can go on with this text and optimizer steps of this size, in windows.
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
    /// Where it was.
    pub path: PathBuf,
    /// What the run depends on.
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

    /// Puts the run on a device with autodiff, where it was left.
    ///
    /// Burn puts the optimizer's moments on [`Device::default`] first, which therefore has to work.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Record`] when the parameters are not those of the config's network.
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
    /// In this directory, one every so many optimizer steps.
    pub fn new(directory: PathBuf, every: usize) -> Self {
        Self { directory, every: every.max(1) }
    }

    /// Where the checkpoints are.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether one is to be written after so many optimizer steps.
    pub fn is_due(&self, steps_taken: usize) -> bool {
        steps_taken.is_multiple_of(self.every)
    }

    /// Checks that there are none yet.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::Occupied`].
    pub fn refuse_others(&self) -> Result<(), CheckpointError> {
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

    /// Keeps the last two checkpoints up to a step; later ones were damaged, or the run would have gone on from them.
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

    /// Reads the newest complete checkpoint; the reasons why newer ones were passed over come with it.
    ///
    /// # Errors
    ///
    /// [`CheckpointError::None`] when none is complete.
    pub fn newest(&self) -> Result<(Checkpoint, Vec<CheckpointError>), CheckpointError> {
        let mut passed_over = Vec::new();
        for (_, path) in self.list()? {
            match Checkpoint::read(path) {
                Ok(checkpoint) => return Ok((checkpoint, passed_over)),
                Err(error) => passed_over.push(error),
            }
        }
        Err(CheckpointError::None { directory: self.directory.clone() })
    }

    /// The directories of all checkpoints, unfinished ones included, with their steps, the newest first.
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

/// Writes a file that survives a crash of the machine once the directory is renamed.
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

fn io_error(path: &Path) -> impl FnOnce(io::Error) -> CheckpointError {
    let path = path.to_owned();
    |source| CheckpointError::Io { path, source }
}

fn record_error(path: &Path) -> impl FnOnce(RecordError) -> CheckpointError {
    let path = path.to_owned();
    |source| CheckpointError::Record { path, source }
}
