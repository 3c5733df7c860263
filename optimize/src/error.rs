//! Errors of reading and planning a training config.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::source::FileError;
use gpu_tuned_core::workload::ModelKind;
use thiserror::Error;

/// Reasons why a training config cannot be planned or edited.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum OptimizeError {
    #[error(
        "`{}` has an unknown extension\n  help: configs are read from .json, .toml, .yaml and .yml; export the settings of a \
         script to one of them",
        path.display()
    )]
    Format { path: PathBuf },
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Mistakes in a file, each with the text of the file.
    #[error("{}", mistakes_by_line(.0))]
    Mistakes(Vec<(FileError, Arc<str>)>),
    #[error(
        "the config has no batch size\n  help: name its key: --at batch_size=KEY; in {dialect} configs it is {usual} \
         ({documentation})"
    )]
    NoBatch { dialect: String, usual: String, documentation: String },
    #[error(
        "the file is no training config{}\n  help: looked for a batch size (batch_size, per_device_train_batch_size, \
         train_micro_batch_size_per_gpu, …) beside other settings of training, such as learning_rate or epochs; if it is one, \
         name the key: --at batch_size=KEY",
        if found.is_empty() { String::new() } else { format!(": {found}") }
    )]
    NotTraining { found: String },
    #[error(
        "configs of {name} are not read, as the memory of their models is unknown\n  help: name the keys of the samples on each \
         device: --at batch_size=KEY; and the model: --model KIND"
    )]
    NotRead { name: String },
    #[error("`{key}` is no key of the config{hint}\n  help: keys in tables have dots: {option}train.batch_size")]
    NoKey { option: String, key: String, hint: String },
    #[error("`{name}` is no setting{hint}\n  help: --at takes {names}")]
    NoSetting { name: String, hint: String, names: String },
    #[error("a batch of {batch} x {accumulation} x {ranks} rank(s) is more than 2^30 samples, the most of a step")]
    TooLarge { batch: u64, accumulation: u64, ranks: u64 },
    #[error(
        "there is no kind of model `{name}`{hint}\n  help: kinds are {}\n  help: {}",
        ModelKind::requestable().collect::<Vec<_>>().join(", "),
        ModelKind::MEASURE
    )]
    UnknownKind { name: String, hint: String },
    #[error(
        "the config does not identify its kind of model{}\n  help: {}name it with --model KIND, and missing dimensions with \
         --dim NAME=VALUE; or --model-config FILE, or --workload NAME of the package",
        alternatives(readings),
        model_file(file.as_ref())
    )]
    NoKind { readings: Vec<String>, file: Option<String> },
    #[error(
        "the config lacks dimensions that a {kind} needs:\n    {}\n  help: {}add {options}; or describe the model otherwise: \
         --model KIND, --model-config FILE, --workload NAME",
        missing.join("\n    "), model_file(file.as_ref())
    )]
    MissingDims { kind: &'static str, missing: Vec<String>, options: String, file: Option<String> },
    #[error(
        "{what} is not modelled, and the planner plans no smaller model in its place\n  help: {}\n  help: name what was \
         measured with --workload NAME, or give the costs: --model declared --dim …",
        ModelKind::MEASURE
    )]
    NotModelled { what: String },
    #[error("{kind}: there is no dimension `{name}`{hint}\n  help: there is {names}")]
    UnknownDim { kind: &'static str, name: String, hint: String, names: String },
    #[error(
        "`{key}` is in a table with a YAML anchor, and other tables would change with it\n  help: write the key in the table of \
         training, or leave it as it is: --leave {key}"
    )]
    Shared { key: String },
    #[error("{message}")]
    Dimension { message: String },
    #[error(
        "the config cannot express {what}\n  help: choose with --precision or --global-batch, or leave the key: --leave KEY"
    )]
    Inexpressible { what: String },
    #[error(
        "a global batch of {global} cannot be divided evenly by {ranks} rank(s)\n  help: change --world-size or --global-batch"
    )]
    Ranks { global: u64, ranks: u64 },
    #[error("{workload}: {source}")]
    Plan { workload: String, source: PlanError },
}

/// Most mistakes of a kind that are collected.
pub(crate) const MOST_MISTAKES: usize = 100;

fn mistakes_by_line(mistakes: &[(FileError, Arc<str>)]) -> String {
    mistakes.iter().map(|(mistake, _)| mistake.to_string()).collect::<Vec<_>>().join("\n")
}

fn model_file(file: Option<&String>) -> String {
    file.map_or_else(String::new, |named| {
        format!("{named} names the model: give its config.json with --model-config; or ")
    })
}

fn alternatives(readings: &[String]) -> String {
    if readings.is_empty() { String::new() } else { format!(": it could be {}", readings.join(", or ")) }
}
