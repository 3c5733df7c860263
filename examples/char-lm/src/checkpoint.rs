//! Checkpoints of a run on disk; the last two are kept, each in a directory.
//!
//! `step-00000050` contains the parameters (`model.bpk`), the optimizer's moments (`optimizer.bpk`), and the rest of
//! the run's state (`run.json`). A checkpoint is written under a temporary name and renamed when complete, so a
//! killed run keeps its earlier checkpoints.

use std::{
    ffi::OsStr,
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, ensure};
use burn::{
    module::Module,
    optim::{ModuleOptimizer, OptimizerRecord},
    store::ModuleRecord,
    tensor::Device,
};
use serde::{Deserialize, Serialize};

use crate::{
    config::TrainingConfig,
    model::Model,
    text::{Corpus, Fingerprint, Vocabulary},
    training::{State, optimizer},
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
    /// If the text or the global batch differs.
    pub fn check(&self, corpus: &Corpus, global_batch: usize) -> anyhow::Result<()> {
        let Self { text, global_batch: saved, vocabulary, .. } = self;
        ensure!(
            *text == corpus.fingerprint && *vocabulary == corpus.vocabulary,
            "the run was started with another text, of {} bytes; pass that text with --text",
            text.bytes
        );
        ensure!(
            *saved == global_batch,
            "the run was started with a global batch of {saved}, but this program plans {global_batch}"
        );
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
    fn read(path: PathBuf) -> anyhow::Result<Self> {
        ensure!(!is_unfinished(&path), "{} is unfinished", path.display());
        let damaged = |name| move || format!("{name} is damaged");
        let json = fs::read(path.join(RUN)).with_context(|| format!("cannot read {RUN}"))?;
        let run = serde_json::from_slice(&json).with_context(damaged(RUN))?;
        let model = ModuleRecord::load(path.join(MODEL)).with_context(damaged(MODEL))?;
        let optimizer = OptimizerRecord::load(path.join(OPTIMIZER)).with_context(damaged(OPTIMIZER))?;
        Ok(Self { path, run, model, optimizer })
    }

    /// Restores the run on a device with autodiff.
    ///
    /// Burn loads the optimizer's moments on [`Device::default`] first, so that device must work.
    ///
    /// # Errors
    ///
    /// If the parameters do not match the config's network.
    pub fn restore(self, device: &Device) -> anyhow::Result<State> {
        let model = Model::new(&self.run.config, device).try_load_record(self.model);
        let model = model.with_context(|| format!("{} does not fit the network", self.path.join(MODEL).display()))?;
        let optimizer = optimizer().load_record(self.optimizer);
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
    /// If it has.
    pub fn check_unused(&self) -> anyhow::Result<()> {
        let directory = self.directory.display();
        ensure!(
            self.list()?.is_empty(),
            "{directory} has checkpoints of another run; resume with --resume, or use another directory"
        );
        Ok(())
    }

    /// Writes a checkpoint, and removes all but the last two.
    ///
    /// # Errors
    ///
    /// If a file cannot be written or removed.
    pub fn write(&self, run: &Run, model: &Model, optimizer: &ModuleOptimizer) -> anyhow::Result<()> {
        let path = self.directory.join(format!("{PREFIX}{:08}", run.steps_taken));
        let unfinished = path.with_extension(UNFINISHED);
        remove(&path)?;
        remove(&unfinished)?;
        fs::create_dir_all(&unfinished)?;
        write_through(&unfinished.join(RUN), &serde_json::to_vec_pretty(run)?)?;
        write_through(&unfinished.join(MODEL), &model.clone().into_record().into_bytes()?)?;
        write_through(&unfinished.join(OPTIMIZER), &optimizer.into_bytes()?)?;
        fs::rename(&unfinished, &path)?;
        self.remove_others(run.steps_taken)
    }

    /// Keeps the last two checkpoints up to a step. Later ones were damaged, else the run would have resumed from
    /// them.
    fn remove_others(&self, steps_taken: usize) -> anyhow::Result<()> {
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

    /// Reads the newest complete checkpoint; `None` if none was completed. Also returns the errors of newer ones.
    ///
    /// # Errors
    ///
    /// If all that were completed are damaged: a new run would replace them.
    pub fn newest(&self) -> anyhow::Result<(Option<Checkpoint>, Vec<anyhow::Error>)> {
        let mut skipped = Vec::new();
        let mut is_damaged = false;
        for (_, path) in self.list()? {
            let name = path.display().to_string();
            is_damaged |= !is_unfinished(&path);
            match Checkpoint::read(path) {
                Ok(checkpoint) => return Ok((Some(checkpoint), skipped)),
                Err(error) => skipped.push(error.context(name)),
            }
        }
        ensure!(!is_damaged, "there is no undamaged checkpoint in {}: {skipped:#?}", self.directory.display());
        Ok((None, skipped))
    }

    /// Lists all checkpoints with their steps, unfinished ones included, newest first.
    fn list(&self) -> anyhow::Result<Vec<(usize, PathBuf)>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.with_context(|| format!("cannot read {}", self.directory.display()))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let path = entry?.path();
            let name =
                path.file_stem().and_then(OsStr::to_str).filter(|_| path.extension().is_none_or(|it| it == UNFINISHED));
            let step = name.and_then(|name| name.strip_prefix(PREFIX)?.parse().ok());
            found.extend(step.map(|step: usize| (step, path)));
        }
        found.sort_unstable_by(|left, right| right.cmp(left));
        Ok(found)
    }
}

fn is_unfinished(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == UNFINISHED)
}

/// Writes a file and flushes it to disk, so that it survives a crash after the rename.
fn write_through(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = File::create(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn remove(directory: &Path) -> io::Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        done => done,
    }
}
