//! A checkpoint of a run of ranks: parameters, optimizer and the number of steps.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use burn::module::Module;
use burn::optim::{ModuleOptimizer, OptimizerRecord};
use burn::store::ModuleRecord;
use gpu_tuned::train::Trainer;

use super::model::Encoder;

/// Folder of a checkpoint, which is replaced as a whole.
pub(super) struct Checkpoint(PathBuf);

impl Checkpoint {
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    pub(super) fn exists(&self) -> bool {
        self.0.join("steps").exists()
    }

    pub(super) fn load(
        &self,
        model: Encoder,
        optimizer: ModuleOptimizer,
    ) -> anyhow::Result<(Encoder, ModuleOptimizer, usize)> {
        let model = model.try_load_record(ModuleRecord::load(self.0.join("model.bpk"))?)?;
        let optimizer = optimizer.load_record(OptimizerRecord::load(self.0.join("optimizer.bpk"))?);
        Ok((model, optimizer, fs::read_to_string(self.0.join("steps"))?.trim().parse()?))
    }

    pub(super) fn save(&self, trainer: &Trainer<Encoder>, steps: usize) -> anyhow::Result<()> {
        let new = self.0.with_extension("new");
        fs::create_dir_all(&new)?;
        fs::write(new.join("model.bpk"), &*trainer.master().clone().into_record().into_bytes()?)?;
        fs::write(new.join("optimizer.bpk"), &*trainer.optimizer().into_bytes()?)?;
        fs::write(new.join("steps"), steps.to_string())?;
        if self.0.exists() {
            fs::remove_dir_all(&self.0)?;
        }
        fs::rename(&new, &self.0).context("the new checkpoint replaces the old one")
    }
}
