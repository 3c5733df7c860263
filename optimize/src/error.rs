//! Errors of reading and planning a training config.

use std::io;
use std::path::PathBuf;

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
        "`{}` has an unknown extension\n  help: configs are read from .json, .toml, .yaml and .yml",
        path.display()
    )]
    Format { path: PathBuf },
    #[error("cannot read `{}`: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    /// Mistakes in a file, each with the text of the file.
    #[error("{}", mistakes_by_line(.0))]
    Mistakes(Vec<(FileError, String)>),
    #[error(
        "the config has no batch size\n  help: name its key: --at batch_size=KEY; usual ones are batch_size, \
         per_device_train_batch_size and micro_batch_size"
    )]
    NoBatch,
    #[error("`{key}` is no key of the config{hint}\n  help: keys in tables have dots: --at {setting}=train.batch_size")]
    NoKey { setting: String, key: String, hint: String },
    #[error("`{name}` is no setting{hint}\n  help: --at takes {names}")]
    NoSetting { name: String, hint: String, names: String },
    #[error(
        "{batch} x {accumulation} x {ranks} rank(s) are {product} samples, but `{key}` is {configured}\n  help: correct the \
         config, or choose with --global-batch or --world-size"
    )]
    GlobalBatch { batch: u64, accumulation: u64, ranks: u64, product: String, key: String, configured: u64 },
    #[error("a batch of {batch} x {accumulation} x {ranks} rank(s) is more than 2^30 samples, the most of a step")]
    TooLarge { batch: u64, accumulation: u64, ranks: u64 },
    #[error(
        "there is no kind of model `{name}`{hint}\n  help: kinds are {}",
        ModelKind::requestable().collect::<Vec<_>>().join(", ")
    )]
    UnknownKind { name: String, hint: String },
    #[error(
        "the config does not identify its kind of model{}\n  help: name it with --model KIND, and missing dimensions with \
         --dim NAME=VALUE; or --model-config FILE, or --workload NAME of the package",
        alternatives(readings)
    )]
    NoKind { readings: Vec<String> },
    #[error(
        "the config lacks dimensions that a {kind} needs:\n    {}\n  help: add {options}; or describe the model otherwise: \
         --model KIND, --model-config FILE, --workload NAME",
        missing.join("\n    ")
    )]
    MissingDims { kind: &'static str, missing: Vec<String>, options: String },
    #[error("{kind}: there is no dimension `{name}`{hint}\n  help: there is {names}")]
    UnknownDim { kind: &'static str, name: String, hint: String, names: String },
    #[error("{message}")]
    Dimension { message: String },
    #[error("the config cannot express {what}\n  help: --dry-run shows the plan and writes nothing")]
    Inexpressible { what: String },
    #[error(
        "a global batch of {global} cannot be divided evenly by {ranks} rank(s)\n  help: change --world-size or --global-batch"
    )]
    Ranks { global: u64, ranks: u64 },
    #[error("{workload}: {source}")]
    Plan { workload: String, source: PlanError },
}

fn mistakes_by_line(mistakes: &[(FileError, String)]) -> String {
    mistakes.iter().map(|(mistake, _)| mistake.to_string()).collect::<Vec<_>>().join("\n")
}

fn alternatives(readings: &[String]) -> String {
    if readings.is_empty() { String::new() } else { format!(": it could be {}", readings.join(", or ")) }
}
