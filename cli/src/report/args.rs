//! The options of `report`.

use std::path::PathBuf;

use crate::args::{GoalArgs, TargetArgs};
use crate::project::WorkloadArgs;

const HELP: &str = "\
Examples:
  cargo gpu-tuned report h200                        plans and measurements for one GPU
  cargo gpu-tuned report --recording run.jsonl       with what happened in a training run

Exit codes:
  0  written
  2  bad input or usage, or a file that cannot be read or written";

/// Write a page with plans, measurements, pictures of them, and recorded runs: one HTML file that needs nothing else
///
/// Without a target, for those that the package declares as features. Of recordings it shows what ran, what holds it up, and
/// the steps, the GPUs and the host over time; for these alone no package is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// A recording of a training run, `-` for standard input; several can be given
    #[arg(long = "recording", value_name = "FILE")]
    pub recordings: Vec<PathBuf>,
    /// Where the page goes, `-` for standard output
    #[arg(long, short, value_name = "FILE", default_value = "gpu-tuned.report.html")]
    pub output: PathBuf,
    #[command(flatten)]
    pub goal: GoalArgs,
}

impl ReportArgs {
    /// Whether something of plans is said.
    pub(super) fn asks_for_plans(&self) -> bool {
        let Self { targets, workload, goal, .. } = self;
        targets.here || !targets.names().is_empty() || workload.is_given() || goal.is_said()
    }
}
