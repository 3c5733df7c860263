//! Errors of `optimize`.

use std::path::PathBuf;

use gpu_tuned_optimize::OptimizeError as ConfigError;
use thiserror::Error;

use crate::error::Error;

#[derive(Debug, Error)]
pub(crate) enum OptimizeError {
    #[error(transparent)]
    Shared(#[from] Error),
    #[error(transparent)]
    Config(ConfigError),
    #[error("no GPU is named\n  help: name some, as in --target h200,rtx4090, or take --here")]
    NoTargets,
    #[error("{what} is for one target, and there are {count}\n  help: without it, each target gets a copy")]
    OneTarget { what: &'static str, count: usize },
    #[error("{what} is for the program of --benchmark\n  help: add --benchmark, or leave {what} out")]
    OnlyForBenchmark { what: &'static str },
    #[error("--{option} needs a package\n  help: run this in its folder, or name it with --manifest-path")]
    NoPackage { option: &'static str },
    #[error("`{}` exists and differs\n  help: overwrite it with --force, or choose another file with --output", path.display())]
    Exists { path: PathBuf },
}

impl From<ConfigError> for OptimizeError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Mistakes(mistakes) => Error::Files { mistakes }.into(),
            ConfigError::Read { path, source } => Error::Read { path, source }.into(),
            ConfigError::Plan { workload, source } => Error::Plan { workload, source }.into(),
            other => Self::Config(other),
        }
    }
}
