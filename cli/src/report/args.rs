//! Arguments of `report`.

use std::path::PathBuf;

use crate::args::{GoalArgs, TargetArgs};
use crate::project::WorkloadArgs;

const HELP: &str = "\
Examples:
  cargo gpu-tuned report h200                        plans and measurements for one GPU
  cargo gpu-tuned report --recording run.jsonl       with a recorded training run

Exit codes:
  0  written
  2  bad input or usage, or a file that cannot be read or written";

/// Write one self-contained HTML page with plans, measurements, pictures, and recorded runs
///
/// Without a target, for those that the package declares as features. A recording adds the run, its findings, and the steps,
/// GPUs and host over time. A page of recordings only needs no package.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    #[command(flatten)]
    pub workload: WorkloadArgs,
    /// Recording of a training run, `-` for standard input; may be given several times
    #[arg(long = "recording", value_name = "FILE")]
    pub recordings: Vec<PathBuf>,
    /// File of the page, `-` for standard output
    #[arg(long, short, value_name = "FILE", default_value = "gpu-tuned.report.html")]
    pub output: PathBuf,
    #[command(flatten)]
    pub goal: GoalArgs,
}

impl ReportArgs {
    /// Returns true if any argument concerns plans.
    pub(super) fn asks_for_plans(&self) -> bool {
        let Self { targets, workload, goal, .. } = self;
        targets.here || !targets.names().is_empty() || workload.is_given() || goal.is_given()
    }
}
