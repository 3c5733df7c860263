//! Resuming a saved run: checks that the config still describes it, and compares the plans.

use std::fmt;
use std::path::PathBuf;

use gpu_tuned_core::plan::{Plan, Schedule};
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, Precision, PrecisionPolicy, Setting, SettingValue};
use serde::Serialize;
use thiserror::Error;

use crate::saved::{FigureChange, LoadError, SavedRun};
use crate::tuned::Tuned;

/// Comparison of a resumed run with the saved one. Global batch, precision and model are always equal.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Resumed {
    /// Name of the device on which the run was saved.
    pub saved_on: String,
    /// The saved schedule.
    pub then: Schedule,
    /// The schedule now.
    pub now: Schedule,
    /// The other settings that are not as saved.
    pub changes: Vec<ResumedChange>,
}

/// A setting that is not as it was saved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ResumedChange {
    /// The setting.
    pub setting: Setting,
    /// Its value in the saved run.
    pub then: SettingValue,
    /// The value that is used.
    pub now: SettingValue,
}

impl Resumed {
    pub(crate) fn new(saved: &SavedRun, plan: &Plan) -> Self {
        let others = Setting::ALL.into_iter().filter(|setting| !setting.row().cuts_step);
        let change = |setting: Setting| ResumedChange {
            setting,
            then: saved.settings.get(setting),
            now: plan.settings.get(setting),
        };
        Self {
            saved_on: saved.device.clone(),
            then: saved.schedule,
            now: plan.schedule,
            changes: others.map(change).filter(|change| change.then != change.now).collect(),
        }
    }

    /// Returns true if every rank cuts its steps as before.
    pub fn is_same_schedule(&self) -> bool {
        self.then == self.now
    }
}

/// One line, and another one for changed settings.
impl fmt::Display for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (then, now) = (self.then.sum(), self.now.sum());
        let global_batch = self.now.global_batch;
        if self.is_same_schedule() {
            write!(f, "resumed: same schedule as saved (global batch {global_batch} = {now})")?;
        } else {
            write!(f, "resumed: same global batch as saved ({global_batch}), as {now} instead of {then}")?;
        }
        let changes: Vec<_> = self.changes.iter().map(ToString::to_string).collect();
        if changes.is_empty() { Ok(()) } else { write!(f, "\n  not as saved: {}", changes.join(", ")) }
    }
}

impl fmt::Display for ResumedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = if self.setting.row().changes_results { " (changes results)" } else { "" };
        write!(f, "{} {} -> {}{note}", self.setting, self.then, self.now)
    }
}

/// Returns true if an optimizer step has the same micro-batches, whichever rank computes them.
pub(crate) fn same_micro_batches(one: &Schedule, other: &Schedule) -> bool {
    let counted = |schedule: &Schedule| {
        let samples = schedule.samples_per_rank();
        let (full, rest) = (samples / schedule.micro_batch, samples % schedule.micro_batch);
        (full * schedule.world_size, if rest == 0 { None } else { Some((rest, schedule.world_size)) })
    };
    // Unequal shares of the other ranks are unknown.
    let is_equal = one.share.is_none() && other.share.is_none();
    one == other || is_equal && one.micro_batch == other.micro_batch && counted(one) == counted(other)
}

/// Compares the saved run with a config, of which `spec` and `workload` are the model and `goal` has the pins.
pub(crate) fn check<C: Tuned>(
    saved: &SavedRun,
    config: &C,
    spec: &WorkloadSpec,
    workload: &Workload,
    goal: &Goal,
) -> Result<(), ResumeError> {
    if saved.config != C::BUILT.config {
        return Err(ResumeError::Config { then: saved.config.clone(), now: C::BUILT.config.to_owned() });
    }
    let changes = saved.model_changes(spec);
    if !changes.is_empty() {
        return Err(ResumeError::Model { changes });
    }
    let then = saved.schedule.global_batch;
    // The build's own batch may change between builds: without a request, the saved one applies.
    let asked = config.asked().in_samples(workload).unwrap_or_default();
    if let Some(now) = asked.global_batch.filter(|now| *now != then) {
        return Err(ResumeError::GlobalBatch { then, now });
    }
    let then = saved.schedule.drop_last;
    if goal.drop_last != then {
        return Err(ResumeError::DropLast { then, now: goal.drop_last });
    }
    check_precision(saved, goal)?;
    let then = saved.settings.batch_size;
    match goal.pins.batch_size.filter(|now| *now != then) {
        None => Ok(()),
        Some(now) => Err(ResumeError::Pinned {
            setting: Setting::BatchSize,
            then: SettingValue::Count(then),
            now: SettingValue::Count(now),
        }),
    }
}

fn check_precision(saved: &SavedRun, goal: &Goal) -> Result<(), ResumeError> {
    let then = saved.settings.precision;
    let asked = goal.precision.unwrap_or(PrecisionPolicy::Fixed(Precision::F32));
    // The planner's choice depends on the device: the saved run keeps its own.
    let Some(now) = goal.pins.precision.or(asked.fixed()) else { return Ok(()) };
    // A run whose device could not meet a request resumes as it was trained.
    let gave_way = goal.pins.precision.is_none() && goal.precision == saved.goal.precision;
    if now == then || gave_way { Ok(()) } else { Err(ResumeError::Precision { then, now }) }
}

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
    /// There are checkpoints, and none can be read.
    #[cfg(feature = "burn")]
    #[error(transparent)]
    Checkpoints(#[from] Box<crate::checkpoints::CheckpointError>),
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
