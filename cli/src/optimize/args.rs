//! Arguments of `optimize`.

use std::path::PathBuf;

use crate::args::{GoalArgs, ProgramArgs, TargetArgs, no_standard_stream, pair};

/// Plan a training config for GPUs, and write a copy of it with the planned settings
///
/// Reads JSON, TOML or YAML of any framework, such as Hugging Face's or Lightning's. The model's dimensions are read from
/// the config, too. The model and the global batch (batch times accumulation times devices) stay. Values are changed in
/// place: order, formatting and comments stay. The copy of `config.json` for an RTX 4090 is `config.rtx4090.json`. Without a
/// GPU, it plans for those that the package declares as features.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help.txt"))]
#[command(mut_group("ProgramArgs", |group| group.requires("benchmark")))]
pub(crate) struct OptimizeArgs {
    /// Config to tune
    #[arg(value_name = "CONFIG", value_parser = no_standard_stream())]
    pub config: PathBuf,
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Name the config key for a setting if it cannot be detected, such as `batch_size=train.batch_size`; `train_samples=KEY`
    /// names the key of the data set's size
    #[arg(long = "at", value_name = "SETTING=KEY", value_parser = pair)]
    pub at: Vec<(String, String)>,
    /// Leave a key as it is, such as one with a value that is not modelled; may be repeated
    #[arg(long, value_name = "KEY")]
    pub leave: Vec<String>,
    /// Add missing keys to a hand-written config; accumulation, checkpointing, workers and precision of an ecosystem need no --add
    #[arg(long)]
    pub add: bool,
    /// Run the package's program so that it measures itself, as `measure` does, and plan with the results
    #[arg(long)]
    pub benchmark: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub write: WriteArgs,
    #[command(flatten, next_help_heading = "Program of --benchmark")]
    pub program: ProgramArgs,
}

/// The model that the config trains.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// Workload of the package, in place of the config's dimensions
    #[arg(long, value_name = "NAME", conflicts_with_all = ["model", "model_config", "dims"])]
    pub workload: Option<String>,
    /// Kind of model: transformer, encoder_decoder, vit, convnet, unet, mlp, recurrent, lstm, gru, or declared
    #[arg(long, value_name = "KIND")]
    pub model: Option<String>,
    /// File with the model's dimensions, where the config lacks them
    #[arg(long, value_name = "FILE", value_parser = no_standard_stream())]
    pub model_config: Option<PathBuf>,
    /// Dimension of the model or its training, such as `seq=512`, in place of the config's
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = pair)]
    pub dims: Vec<(String, String)>,
}

/// Destination of the copy.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Writing")]
pub(crate) struct WriteArgs {
    /// Write the copy to this file, `-` for standard output; for one target
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["in_place", "dry_run"])]
    pub output: Option<PathBuf>,
    /// Change the config itself; for one target
    #[arg(long, conflicts_with = "dry_run")]
    pub in_place: bool,
    /// Show the changes and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Overwrite a copy that differs
    #[arg(long)]
    pub force: bool,
}
