//! A checkpoint of a run of ranks: parameters, optimizer and the number of steps.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use burn::module::Module;
use burn::store::ModuleRecord;
use gpu_tuned::train::Trainer;
use gpu_tuned::{Session, Tuned};

use crate::network::Network;

/// Folder of a checkpoint, which is replaced as a whole.
pub(super) struct Checkpoint(PathBuf);

impl Checkpoint {
    pub(super) fn new(folder: &Path) -> Self {
        Self(folder.to_owned())
    }

    pub(super) fn exists(&self) -> bool {
        self.0.join("steps").exists()
    }

    pub(super) fn load_model(&self, model: Network) -> anyhow::Result<Network> {
        Ok(model.try_load_record(ModuleRecord::load(self.0.join("model.bpk"))?)?)
    }

    /// Loads the state of the optimizer. Returns the number of steps.
    pub(super) fn load_optimizer(&self, trainer: &mut Trainer<Network>) -> anyhow::Result<usize> {
        trainer.load_optimizer(&self.0)?;
        Ok(fs::read_to_string(self.0.join("steps"))?.trim().parse()?)
    }

    /// Saves a checkpoint of all ranks. Every rank calls it.
    pub(super) fn save<C: Tuned>(
        &self,
        session: &Session<C>,
        trainer: &Trainer<Network>,
        steps: usize,
    ) -> anyhow::Result<()> {
        let new = self.0.with_extension("new");
        if session.is_first_rank() {
            if new.exists() {
                fs::remove_dir_all(&new)?;
            }
            fs::create_dir_all(&new)?;
            trainer.master().clone().into_record().save(new.join("model.bpk"))?;
            fs::write(new.join("steps"), steps.to_string())?;
        }
        session.wait_for_ranks()?;
        trainer.save_optimizer(&new)?;
        session.wait_for_ranks()?;
        if session.is_first_rank() {
            if self.0.exists() {
                fs::remove_dir_all(&self.0)?;
            }
            fs::rename(&new, &self.0).context("the new checkpoint replaces the old one")?;
        }
        Ok(())
    }
}
