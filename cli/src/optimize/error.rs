//! Why a config cannot be optimised.

use std::path::PathBuf;

use thiserror::Error;

/// Why a config cannot be optimised; mistakes in the file itself have their places elsewhere.
#[derive(Debug, Error)]
#[non_exhaustive]
pub(crate) enum OptimizeError {
    #[error(
        "`{}` has an extension that says nothing of its format\n  help: configs are read from .json, .toml, .yaml and .yml",
        path.display()
    )]
    Format { path: PathBuf },
    #[error(
        "nothing in the config says how many samples are in a batch\n  help: name the key: --at batch_size=KEY; known ones \
         are batch_size, per_device_train_batch_size, micro_batch_size and others"
    )]
    NoBatch,
    #[error("`{key}` is no key of the config{hint}\n  help: keys in tables have dots: --at {setting}=train.batch_size")]
    NoKey { setting: String, key: String, hint: String },
    #[error("`{name}` is no setting{hint}\n  help: --at takes {names}")]
    NoSetting { name: String, hint: String, names: String },
    #[error(
        "{batch} x {accumulation} x {ranks} rank(s) are {product} samples, and `{key}` says {said}\n  help: mend the config, \
         or say what is meant with --global-batch or --world-size"
    )]
    GlobalBatch { batch: u64, accumulation: u64, ranks: u64, product: String, key: String, said: u64 },
    #[error("a batch of {batch} x {accumulation} x {ranks} rank(s) is more than the 2^30 samples that a step may have")]
    TooLarge { batch: u64, accumulation: u64, ranks: u64 },
    #[error(
        "there is no kind of model `{name}`{hint}\n  help: transformer, convnet, unet, mlp, recurrent (lstm, gru) or declared"
    )]
    UnknownKind { name: String, hint: String },
    #[error(
        "nothing in the config tells which kind of model it trains{}\n  help: say it with --model KIND, and what the config \
         does not have with --dim NAME=VALUE; or --model-config FILE, or --workload NAME of the package",
        readings_in_words(readings)
    )]
    NoKind { readings: Vec<String> },
    #[error(
        "the config does not say all that a {kind} needs:\n    {}\n  help: say it with {options}; or take another \
         description: --model KIND, --model-config FILE, --workload NAME",
        missing.join("\n    ")
    )]
    MissingDims { kind: &'static str, missing: Vec<String>, options: String },
    #[error("{kind}: there is no dimension `{name}`{hint}\n  help: there is {names}")]
    UnknownDim { kind: &'static str, name: String, hint: String, names: String },
    #[error("{message}")]
    Dimension { message: String },
    #[error("no GPU is named\n  help: name some, as in --target h200,rtx4090, or take --here")]
    NoTargets,
    #[error("{what} is for one target, and there are {count}\n  help: without it there is a copy for each")]
    OneTarget { what: &'static str, count: usize },
    #[error("{what} is for the program that --benchmark runs, and it is not asked for")]
    OnlyForBenchmark { what: &'static str },
    #[error("--{option} needs a package\n  help: run this in its folder, or name it with --manifest-path")]
    NoPackage { option: &'static str },
    #[error("`{}` is there and is another\n  help: write over it with --force, or elsewhere with --output", path.display())]
    Exists { path: PathBuf },
    #[error("the config cannot say {asked}\n  help: {help}")]
    Unsaid { asked: String, help: String },
    #[error(
        "a global batch of {global} cannot be cut evenly: {ranks} rank(s) do not divide it\n  help: --world-size or --global-batch"
    )]
    Ranks { global: u64, ranks: u64 },
}

fn readings_in_words(readings: &[String]) -> String {
    match readings {
        [] => String::new(),
        some => format!(": it could be {}", some.join(", or ")),
    }
}
