//! The command line of `optimize`.

use std::path::PathBuf;

use crate::args::{GoalArgs, ProgramArgs, no_standard_stream};

const HELP: &str = "\
Examples:
  cargo gpu-tuned optimize config.json --target rtx4090,h200 --dry-run
  cargo gpu-tuned optimize train.yaml --here --model recurrent --dim inputs=8
  cargo gpu-tuned optimize args.json --target h200 --model-config model/config.json
  cargo gpu-tuned optimize config.toml --workload lm --benchmark -F h200,cuda

Exit codes:
  0  fine: written, or nothing to change
  1  the answer is no: the model does not fit one of the targets, whose copy is not written
  2  bad input or usage
  3  the program of --benchmark failed, or did not do what it was run for";

/// Plan a training config for GPUs, and write a copy of it with the planned settings
///
/// Reads JSON, TOML or YAML; knows the usual names of keys, and takes the model's dimensions from it. Batch times
/// accumulation times devices stays what it is, and so does the model. Values are changed in place: order, formatting and
/// comments stay. Beside `config.json` the copy for an RTX 4090 is `config.rtx4090.json`.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct OptimizeArgs {
    /// The config
    #[arg(value_name = "CONFIG", value_parser = no_standard_stream())]
    pub config: PathBuf,
    /// GPUs to plan for, such as `h200`; by default those that the package declares
    #[arg(long = "target", value_name = "NAME", num_args = 1.., value_delimiter = ',', conflicts_with = "here")]
    pub targets: Vec<String>,
    /// Plan for the GPUs in this machine, or for its CPU where there is none
    #[arg(long)]
    pub here: bool,
    #[command(flatten)]
    pub goal: GoalArgs,
    /// Which key is of a setting, where the file leaves that open, such as `batch_size=train.batch_size`; `train_samples=…`
    /// is the key that says how many samples there are
    #[arg(long = "at", value_name = "SETTING=KEY", value_parser = pair)]
    pub at: Vec<(String, String)>,
    /// Add keys that the file lacks, which its program must read
    #[arg(long)]
    pub add: bool,
    /// Run the package's program so that it measures itself, as `measure` does, and plan by that
    #[arg(long)]
    pub benchmark: bool,
    #[command(flatten)]
    pub model: ModelArgs,
    #[command(flatten)]
    pub write: WriteArgs,
    #[command(flatten, next_help_heading = "Program of --benchmark")]
    pub program: ProgramArgs,
}

/// What the config trains.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Model")]
pub(crate) struct ModelArgs {
    /// A workload of the package, in place of the config's dimensions
    #[arg(long, value_name = "NAME", conflicts_with_all = ["model", "model_config", "dims"])]
    pub workload: Option<String>,
    /// The kind of model: transformer, convnet, unet, mlp, recurrent (or lstm, gru), declared
    #[arg(long, value_name = "KIND")]
    pub model: Option<String>,
    /// Another file that has the model's dimensions
    #[arg(long, value_name = "FILE", value_parser = no_standard_stream())]
    pub model_config: Option<PathBuf>,
    /// A dimension of the model or its training, such as `seq=512`, in place of what the config says
    #[arg(long = "dim", value_name = "NAME=VALUE", value_parser = pair)]
    pub dims: Vec<(String, String)>,
}

/// Where the copy goes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Writing")]
pub(crate) struct WriteArgs {
    /// Write the copy here, `-` for standard output; for one target
    #[arg(long, short, value_name = "FILE", conflicts_with_all = ["in_place", "dry_run"])]
    pub output: Option<PathBuf>,
    /// Change the config itself; for one target
    #[arg(long, conflicts_with = "dry_run")]
    pub in_place: bool,
    /// Show what would change and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Write over a copy that is there and is another
    #[arg(long)]
    pub force: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or_else(|| "expected NAME=VALUE".to_owned())?;
    let (name, value) = (name.trim(), value.trim());
    if name.is_empty() || value.is_empty() {
        Err("expected NAME=VALUE".to_owned())
    } else {
        Ok((name.to_owned(), value.to_owned()))
    }
}
