//! The plan of a run, saved beside its checkpoints.

mod error;
mod figures;
mod file;

use std::path::{Path, PathBuf};

use gpu_tuned_core::dims::{self, Schema as _};
use gpu_tuned_core::plan::{Plan, Schedule};
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Goal, Pins, Setting, SettingValue, Settings};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

pub use error::{LoadError, SaveError};
pub use figures::FigureChange;

use crate::tuned::Tuned;

/// Plan of a run: enough to resume it with the same schedule, or to explain why it cannot be resumed.
///
/// The program saves the progress of training itself. The file is JSON; unknown fields are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SavedRun {
    format: u32,
    gpu_tuned: String,
    config: String,
    device: String,
    parameters: u64,
    workload: Value,
    #[serde(serialize_with = "save_goal", deserialize_with = "load_goal")]
    goal: Goal,
    schedule: Schedule,
    settings: Settings,
}

/// Saves a goal without its pins, which are those of a start.
fn save_goal<S: Serializer>(goal: &Goal, serializer: S) -> Result<S::Ok, S::Error> {
    Goal { pins: Pins::default(), ..goal.clone() }.serialize(serializer)
}

/// Loads a goal. Unlike in `gpu-tuned.toml`, unknown keys are ignored.
fn load_goal<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Goal, D::Error> {
    let mut keys = serde_json::Map::deserialize(deserializer)?;
    keys.retain(|key, _| dims::named(Goal::DIMS, key).is_some());
    Goal::deserialize(Value::Object(keys)).map_err(D::Error::custom)
}

impl SavedRun {
    /// The format that this release writes and reads.
    pub const FORMAT: u32 = 1;
    /// The name of the file.
    pub const FILE_NAME: &'static str = "gpu-tuned-run.json";

    /// The saved form of a plan for `config`.
    pub(crate) fn from_plan<C: Tuned>(config: &C, plan: &Plan) -> Self {
        Self {
            format: Self::FORMAT,
            gpu_tuned: env!("CARGO_PKG_VERSION").to_owned(),
            config: C::BUILT.config.to_owned(),
            device: plan.device.clone(),
            parameters: config.workload().parameters(),
            workload: in_json(&config.workload()),
            goal: config.asked(),
            schedule: plan.schedule,
            settings: plan.settings,
        }
    }

    /// Writes the run to [`FILE_NAME`](Self::FILE_NAME) in `directory`, which is created where it is missing, and returns
    /// the file's path.
    ///
    /// A reader finds the old file or the new one, whole: it is written under a temporary name
    /// (`.gpu-tuned-run.json.….tmp`), brought to the disk, and renamed. Several ranks may save to one directory.
    ///
    /// # Errors
    ///
    /// [`SaveError`]; the file that was there is then as it was.
    pub fn save(&self, directory: impl AsRef<Path>) -> Result<PathBuf, SaveError> {
        file::save(self, directory.as_ref())
    }

    /// The run saved in `directory`; `None` where none is.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if there is a file that cannot be read, is damaged, or has another format.
    pub fn load(directory: impl AsRef<Path>) -> Result<Option<Self>, LoadError> {
        file::load(directory.as_ref())
    }

    /// The version of gpu-tuned that saved the run.
    pub fn gpu_tuned_version(&self) -> &str {
        &self.gpu_tuned
    }

    /// The name of the config struct.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// Name of the device or GPUs.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Parameters of the model.
    pub fn parameters(&self) -> u64 {
        self.parameters
    }

    /// Goal of the build, without pins of the config.
    pub fn goal(&self) -> &Goal {
        &self.goal
    }

    /// Division of an optimizer step into micro-batches.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// The settings that the run was trained with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Text of what all ranks of the run have in common. With unequal shares, their micro-batches differ.
    #[cfg(feature = "distributed")]
    pub(crate) fn identity(&self) -> String {
        let Self { config, parameters, workload, goal, schedule, settings, .. } = self;
        let micro_batch = if goal.unequal { None } else { Some(schedule.micro_batch) };
        let (global_batch, precision) = (schedule.global_batch, settings.precision);
        format!(
            "{config}, global batch {global_batch}, micro-batch {micro_batch:?}, {precision}, {parameters} parameters, {goal:?}, {workload}"
        )
    }

    /// The figures in which the model is another one now.
    pub(crate) fn model_changes(&self, spec: &WorkloadSpec) -> Vec<FigureChange> {
        let mut changes = figures::changes(&self.workload, &in_json(spec));
        let listed = changes.iter().any(|change| change.figure.ends_with(".parameters"));
        // On its own, another count is another way of counting: the dimensions decide.
        let now = spec.parameters();
        if !changes.is_empty() && !listed && self.parameters != now {
            let (then, now) = (Some(self.parameters.to_string()), Some(now.to_string()));
            changes.insert(0, FigureChange { figure: "parameters".to_owned(), then, now });
        }
        changes
    }

    /// First value out of range, which protects calculations from a damaged file.
    fn mistake(&self) -> Option<String> {
        let Schedule { global_batch, world_size, share, micro_batch, drop_last: _ } = self.schedule;
        let of_schedule = [("global_batch", global_batch), ("world_size", world_size), ("micro_batch", micro_batch)];
        // All three count samples or ranks, in the range of a batch.
        let of_schedule = of_schedule.map(|(name, value)| {
            let message = Setting::BatchSize.out_of_range(SettingValue::Count(value))?;
            Some(format!("schedule.{name} = {message}"))
        });
        let of_settings = Setting::ALL.map(|setting| {
            let message = setting.out_of_range(self.settings.get(setting))?;
            Some(format!("settings.{setting} = {message}"))
        });
        if let Some(message) = of_schedule.into_iter().chain(of_settings).flatten().next() {
            return Some(message);
        }
        let planned = (micro_batch, self.schedule.micro_steps());
        let is_shared = share.map_or_else(
            || global_batch.is_multiple_of(world_size),
            |share| share.samples > 0 && share.first.saturating_add(share.samples) <= global_batch,
        );
        let holds = is_shared && planned == (self.settings.batch_size, self.settings.gradient_accumulation);
        (!holds).then(|| "the schedule and the settings contradict each other".to_owned())
    }
}

fn in_json(spec: &WorkloadSpec) -> Value {
    serde_json::to_value(spec).expect("BUG: a workload is always JSON")
}
