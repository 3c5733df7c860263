use std::path::PathBuf;

use gpu_tuned_core::{Precision, Setting, SettingValue};
use thiserror::Error;

use crate::saved::{FigureChange, LoadError, SavedRun};

/// Reason why a saved run cannot be resumed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResumeError {
    /// Nothing is saved there.
    #[error(
        "no run is saved in `{}` (there is no {}); check the directory, or start a new run without `resume`",
        directory.display(),
        SavedRun::FILE_NAME
    )]
    Nothing {
        /// The directory.
        directory: PathBuf,
    },
    /// The saved run cannot be read.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The run was saved by a program with another config.
    #[error("the saved run has the config `{then}`, this one has `{now}`; each needs a directory of its own")]
    Config {
        /// The config struct that was saved.
        then: String,
        /// The config struct of this program.
        now: String,
    },
    /// The config describes another model.
    #[error(
        "the saved run trained another model: {}; set the config back, or start a new run without `resume`",
        changes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    )]
    Model {
        /// The figures that differ.
        changes: Vec<FigureChange>,
    },
    /// The program now asks for another global batch.
    #[error(
        "the saved run has a global batch of {then}, now {now} is asked for; set global_batch = {then} to go on, or start \
         a new run without `resume`"
    )]
    GlobalBatch {
        /// Samples of an optimizer step in the saved run.
        then: u64,
        /// Samples asked for now.
        now: u64,
    },
    /// An epoch of the program now has another number of steps.
    #[error(
        "the saved run has drop_last = {then}, now it is {now}, which changes the steps of an epoch; set it back to go on, \
         or start a new run without `resume`"
    )]
    DropLast {
        /// True if an epoch of the saved run dropped its last, smaller step.
        then: bool,
        /// True if an epoch now drops it.
        now: bool,
    },
    /// The program now asks for another precision, which would change what the run computes.
    #[error(
        "the saved run trained in {then}, now {now} is asked for; ask for {then} to go on, or start a new run without \
         `resume`"
    )]
    Precision {
        /// The precision of the saved run.
        then: Precision,
        /// The precision asked for.
        now: Precision,
    },
    /// This device cannot train in the precision of the saved run.
    #[error("the saved run trained in {precision}, which {device} cannot; go on where it can")]
    PrecisionUnsupported {
        /// The precision of the saved run.
        precision: Precision,
        /// This device.
        device: String,
    },
    /// The ranks that are there now cannot share the global batch evenly.
    #[error(
        "the saved global batch of {global_batch} cannot be shared by {world_size} ranks; {} would do",
        would_do.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ")
    )]
    WorldSize {
        /// Samples in an optimizer step.
        global_batch: u64,
        /// Ranks now.
        world_size: u64,
        /// Numbers of ranks that divide the global batch.
        would_do: Vec<u64>,
    },
    /// The config fixes a setting at a value that contradicts the saved schedule.
    #[error(
        "the config or GPU_TUNED_SET sets {setting} = {now}, the saved run has {then}; leave it as it is by default to go on"
    )]
    Pinned {
        /// The setting.
        setting: Setting,
        /// Its value in the saved schedule, for the ranks that are there now.
        then: SettingValue,
        /// Its value in the config.
        now: SettingValue,
    },
    /// The model computes statistics over the micro-batch, and the saved one cannot be kept.
    #[error(
        "the model computes statistics over the micro-batch, and the saved run's steps of {} micro-batches of {micro_batch} \
         cannot be kept on {device} with {world_size} rank(s); go on with more memory or as many ranks as then",
        micro_steps
    )]
    BatchStatistics {
        /// Samples in a micro-batch of the saved run.
        micro_batch: u64,
        /// Micro-batches in an optimizer step of the saved run, on one rank.
        micro_steps: u64,
        /// This device.
        device: String,
        /// Ranks now.
        world_size: u64,
    },
}
