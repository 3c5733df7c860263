//! The plan of a run, saved beside its checkpoints.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{fmt, fs, io};

use gpu_tuned_core::dims::{Schema, named};
use gpu_tuned_core::plan::Schedule;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Goal, Pins, Setting, SettingValue, Settings, atomic_file, regular_file};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::decide::Decision;
use crate::tuned::Tuned;

/// Plan of a run: enough to resume it with the same schedule, or to explain why it cannot be resumed.
///
/// The program saves the progress of training itself. The file is JSON; unknown fields are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct SavedRun {
    format: u32,
    /// Version of gpu-tuned that saved the run.
    pub gpu_tuned: String,
    /// Name of the config struct.
    pub config: String,
    /// Name of the device or GPUs.
    pub device: String,
    /// Parameters of the model.
    pub parameters: u64,
    workload: Value,
    /// Goal of the build, without pins of the config.
    #[serde(deserialize_with = "known_keys")]
    pub goal: Goal,
    /// Division of an optimizer step into micro-batches.
    pub schedule: Schedule,
    /// The settings that the run was trained with.
    pub settings: Settings,
}

/// Reads a goal. Keys of another release are ignored, unlike in `gpu-tuned.toml`.
fn known_keys<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Goal, D::Error> {
    let mut keys = Map::<String, Value>::deserialize(deserializer)?;
    keys.retain(|name, _| named(Goal::DIMS, name).is_some());
    Goal::deserialize(Value::Object(keys)).map_err(D::Error::custom)
}

impl SavedRun {
    /// The format that this release writes and reads.
    pub const FORMAT: u32 = 1;
    /// The name of the file.
    pub const FILE_NAME: &'static str = "gpu-tuned-run.json";

    /// The saved form of a decision for `config`.
    pub fn new<C: Tuned>(config: &C, decision: &Decision) -> Self {
        let plan = &decision.plan;
        Self {
            format: Self::FORMAT,
            gpu_tuned: env!("CARGO_PKG_VERSION").to_owned(),
            config: C::BUILT.config.to_owned(),
            device: plan.device.clone(),
            parameters: config.workload().parameters(),
            workload: in_json(&config.workload()),
            goal: Goal { pins: Pins::default(), ..config.asked() },
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
        let directory = directory.as_ref();
        fs::create_dir_all(directory).map_err(|cause| SaveError::Directory { path: directory.to_owned(), cause })?;
        let path = directory.join(Self::FILE_NAME);
        let mut text = serde_json::to_string_pretty(self).expect("BUG: a saved run is always JSON");
        text.push('\n');
        match atomic_file::replace(&path, &text) {
            Ok(()) => Ok(path),
            Err(cause) => Err(SaveError::Write { path, cause }),
        }
    }

    /// The run saved in `directory`; `None` where none is.
    ///
    /// # Errors
    ///
    /// [`LoadError`] if there is a file that cannot be read, is damaged, or has another format.
    pub fn load(directory: impl AsRef<Path>) -> Result<Option<Self>, LoadError> {
        let path = directory.as_ref().join(Self::FILE_NAME);
        let bytes = match regular_file::read(&path, regular_file::LARGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(cause) => return Err(LoadError::Read { path, cause }),
        };
        let damaged = |line, column, message| LoadError::Damaged { path: path.clone(), line, column, message };
        let unreadable = |error: serde_json::Error| {
            let message = error.to_string();
            // The position is at the beginning of the message.
            let place = format!(" at line {} column {}", error.line(), error.column());
            let message = message.strip_suffix(&place).unwrap_or(&message).to_owned();
            damaged(error.line(), error.column(), message)
        };
        let Header { format: found, gpu_tuned: wrote } = serde_json::from_slice(&bytes).map_err(unreadable)?;
        if found != u64::from(Self::FORMAT) {
            return Err(LoadError::Format { path: path.clone(), found, wrote });
        }
        let run: Self = serde_json::from_slice(&bytes).map_err(unreadable)?;
        match run.mistake() {
            None => Ok(Some(run)),
            Some(message) => Err(damaged(1, 1, message)),
        }
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
        let mut changes = figure_changes(&self.workload, &in_json(spec));
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

/// Format number, which decides whether the rest can be read.
#[derive(Deserialize)]
struct Header {
    format: u64,
    gpu_tuned: Option<String>,
}

/// A figure of the model that is not what it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FigureChange {
    /// The figure: `parameters`, `transformer.layers`.
    pub figure: String,
    /// Its value in the saved run; `None` where it was not given.
    pub then: Option<String>,
    /// Its value in the config; `None` where it is not given.
    pub now: Option<String>,
}

impl fmt::Display for FigureChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "not given".to_owned());
        write!(f, "{} was {}, is {}", self.figure, value(&self.then), value(&self.now))
    }
}

/// Declared costs that identify the model. The others are costs of a step, which may be measured again.
const OF_THE_MODEL: [&str; 3] = ["parameters", "family", "batch_statistics"];

/// Costs in the description of the training.
const COSTS: [&str; 2] = ["training.host_ms_per_sample", "training.layer_scratch_bytes"];

/// Values in which two workload specifications differ, sorted. A value in only one of them counts.
fn figure_changes(then: &Value, now: &Value) -> Vec<FigureChange> {
    let kinds = (kind(then), kind(now));
    if kinds.0 != kinds.1 {
        return vec![FigureChange { figure: "workload".to_owned(), then: kinds.0, now: kinds.1 }];
    }
    let (then, now) = (figures(then), figures(now));
    let names: BTreeSet<&String> = then.keys().chain(now.keys()).collect();
    let differing = names.into_iter().filter(|name| then.get(*name) != now.get(*name));
    differing
        .map(|name| FigureChange { figure: name.clone(), then: then.get(name).cloned(), now: now.get(name).cloned() })
        .collect()
}

/// `transformer`, `convnet`, `declared`.
fn kind(spec: &Value) -> Option<String> {
    spec.get("model")?.as_object()?.keys().next().cloned()
}

fn figures(spec: &Value) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    flatten(spec, String::new(), &mut found);
    let is_cost = |name: &String| {
        COSTS.contains(&name.as_str())
            || name.strip_prefix("model.declared.").is_some_and(|figure| !OF_THE_MODEL.contains(&figure))
    };
    found.retain(|name, _| !is_cost(name));
    found.into_iter().map(|(name, value)| (name.trim_start_matches("model.").to_owned(), value)).collect()
}

fn flatten(value: &Value, name: String, found: &mut BTreeMap<String, String>) {
    let below = |key: &str| if name.is_empty() { key.to_owned() } else { format!("{name}.{key}") };
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, value)| flatten(value, below(key), found)),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                flatten(item, format!("{name}[{index}]"), found);
            }
        }
        Value::String(text) => drop(found.insert(name, text.clone())),
        // Fields that serde leaves out equal fields written as null.
        Value::Null => {}
        other => drop(found.insert(name, other.to_string())),
    }
}

/// Why a run could not be saved. The run that was saved there before, if any, is as it was.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SaveError {
    /// The directory does not exist and cannot be created.
    #[error("cannot create the directory `{}`: {cause}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The file cannot be written: most often a read-only or full disk.
    #[error("cannot write `{}`: {cause}; make room or save elsewhere", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
}

/// Why what is saved could not be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum LoadError {
    /// The file is there and cannot be read.
    #[error("cannot read `{}`: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The file is cut short, is no saved run, or has values out of range.
    #[error(
        "{}:{line}:{column}: not a saved run: {message}; put back a copy of the file, or delete it and start a new run",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The line, counting from 1.
        line: usize,
        /// The column, counting from 1.
        column: usize,
        /// Problem of the file.
        message: String,
    },
    /// The file was written in another format.
    #[error(
        "`{}` has format {found}{}, this program reads format {}; build it with the version of gpu-tuned that wrote the file",
        path.display(),
        wrote.as_ref().map(|version| format!(" (gpu-tuned {version})")).unwrap_or_default(),
        SavedRun::FORMAT
    )]
    Format {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: u64,
        /// Version of gpu-tuned that wrote the file, if named.
        wrote: Option<String>,
    },
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::figure_changes;

    #[test]
    fn models_differ_by_figures_and_not_by_what_a_step_costs() {
        let declared = |parameters: u64, flops: f64| json!({ "model": { "declared": { "parameters": parameters, "flops_per_sample": flops } } });
        let stages = |second: u64| json!({ "model": { "convnet": { "stages": [[64, 2], [128, second]] } } });
        let transformer = json!({ "model": { "transformer": { "layers": 6 } } });
        let with_heads = json!({ "model": { "transformer": { "layers": 6, "heads": 8 } } });
        for (then, now, expected) in [
            (declared(10, 1e9), declared(10, 2e9), vec![]),
            (declared(10, 1e9), declared(20, 1e9), vec!["declared.parameters was 10, is 20"]),
            (stages(2), stages(3), vec!["convnet.stages[1][1] was 2, is 3"]),
            (transformer.clone(), with_heads, vec!["transformer.heads was not given, is 8"]),
            (transformer, stages(2), vec!["workload was transformer, is convnet"]),
        ] {
            let found: Vec<_> = figure_changes(&then, &now).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected);
        }
    }
}
