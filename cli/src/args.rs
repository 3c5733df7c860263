//! The command line.

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Parser, Subcommand, ValueEnum};
use gpu_tuned_core::device::ComputeCapability;
use gpu_tuned_core::{Goal, Precision};

use crate::bench::BenchArgs;
use crate::export::ExportArgs;
use crate::monitor::MonitorArgs;
use crate::project::{ModelOrWorkloadArgs, WorkloadArgs};
use crate::recording::is_standard;
use crate::trace::TraceArgs;

/// What stands below the help of a command: an example, and how it ends.
macro_rules! below {
    ($example:literal, $($code:literal: $meaning:literal),+) => {
        concat!("Example:\n  ", $example, "\n\nExit codes:", $("\n  ", $code, "  ", $meaning),+)
    };
}

const CODES: &str = "\
Exit codes, of which each command has those that its help lists:
  0  fine
  1  the answer is no: does not fit, stale, would not hold, findings
  2  bad input or usage, such as a program that cannot be started
  3  a program that was started failed, or did not do what it was run for";

const INIT_HELP: &str = "\
Example:
  cargo gpu-tuned init --target rtx4090 --target h200 --dry-run

Exit codes:
  0  written, nothing to do, or only shown as --dry-run asks
  1  not written: the answer was no, or there was no terminal to ask on
  2  bad input or usage, or a file that cannot be written: all are as they were";

/// Measures workloads, plans them for GPUs, explains the plans, and checks that they hold.
#[derive(Debug, Parser)]
#[command(name = "cargo-gpu-tuned", bin_name = "cargo gpu-tuned", version, after_help = CODES, max_term_width = 100)]
pub(crate) struct Args {
    #[command(flatten)]
    pub common: Common,
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(InitArgs),
    Measure(MeasureArgs),
    Bench(BenchArgs),
    Warm(WarmArgs),
    Targets(TargetsArgs),
    Plan(PlanArgs),
    Explain(ExplainArgs),
    Optimize(Box<crate::optimize::OptimizeArgs>),
    Check(CheckArgs),
    Diagnose(crate::diagnose::DiagnoseArgs),
    Report(crate::report::ReportArgs),
    Monitor(MonitorArgs),
    Trace(TraceArgs),
    Export(ExportArgs),
}

/// What every subcommand takes.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// The Cargo.toml of the package, or of its workspace
    #[arg(long, global = true, value_name = "PATH")]
    pub manifest_path: Option<PathBuf>,
    /// The package, where the workspace has several
    #[arg(long, short, global = true, value_name = "NAME")]
    pub package: Option<String>,
    /// Print JSON; errors and notes stay text on standard error
    #[arg(long, global = true)]
    pub json: bool,
    /// When to use colours: on a terminal, always, or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub color: Colour,
}

impl Common {
    /// Whether it is said which package is meant.
    pub(crate) const fn names_a_package(&self) -> bool {
        self.manifest_path.is_some() || self.package.is_some()
    }
}

/// When to use colours.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Colour {
    Auto,
    Always,
    Never,
}

impl Colour {
    /// The word for it, which is cargo's too.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Always => "always",
            Self::Never => "never",
        }
    }
}

/// Set a package up: dependencies, features, build script and gpu-tuned.toml, shown as a diff before they are written
///
/// What is there is kept: formatting, comments, features and the build script, which gets one line where that is safe. The
/// build script's crate comes from where the package has `gpu-tuned` from: the folder beside it, the same repository, or the
/// release. A package that is set up is not changed. Training configs among its structs are named with the annotation that
/// they could have, which is only shown.
#[derive(Debug, clap::Args)]
#[command(after_help = INIT_HELP)]
pub(crate) struct InitArgs {
    /// GPUs to declare as features, such as `h200`; by default the GPU in this machine, `h200` and `rtx4090`, unless the
    /// package declares one
    #[arg(long = "target", value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub targets: Vec<String>,
    /// Write without asking
    #[arg(long, short, conflicts_with = "dry_run")]
    pub yes: bool,
    /// Show the changes and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Depend on the crates of this checkout of gpu-tuned, in place of the release or of another checkout
    #[arg(long, value_name = "DIR")]
    pub checkout: Option<PathBuf>,
}

/// Run the program so that it measures its workloads, and keep what comes of it in gpu-tuned.lock
///
/// The program is built in release mode and run with `GPU_TUNED_MEASURE` set: where it asks for a measurement, it measures
/// itself and exits. Without a GPU, memory is counted on the CPU.
#[derive(Debug, clap::Args)]
#[command(after_help = below!(
    "cargo gpu-tuned measure --features h200,cuda -- --epochs 1",
    0: "measured",
    2: "bad input or usage",
    3: "the program failed, was killed, or measured nothing"
))]
pub(crate) struct MeasureArgs {
    #[command(flatten)]
    pub program: ProgramArgs,
}

/// Run the program so that it makes a bundle of what its planned steps compile and tune
///
/// The program is built in release mode and run with `GPU_TUNED_WARM` set: where it calls `session.measure_if_asked`, it
/// takes the planned steps, writes the bundle into `gpu-tuned.warm`, and exits; without that call the first step of a
/// session's trainer ends it, and there is no bundle. The bundle is for GPUs, drivers and releases as they are here, and its kernels are for this build:
/// enable the features that the program will run with.
#[derive(Debug, clap::Args)]
#[command(after_help = below!(
    "cargo gpu-tuned warm --features h200,cuda",
    0: "there is a bundle",
    2: "bad input or usage",
    3: "the program failed, was killed, or made no bundle"
))]
pub(crate) struct WarmArgs {
    #[command(flatten)]
    pub program: ProgramArgs,
}

/// Which program is run, and how it is built.
#[derive(Debug, clap::Args)]
pub(crate) struct ProgramArgs {
    /// The binary to run, where the package has several
    #[arg(long, value_name = "NAME", conflicts_with = "example")]
    pub bin: Option<String>,
    /// The example to run
    #[arg(long, value_name = "NAME")]
    pub example: Option<String>,
    /// Features of the package to enable, separated by commas
    #[arg(long, short = 'F', value_name = "FEATURES", value_delimiter = ',')]
    pub features: Vec<String>,
    /// Do not enable the default features
    #[arg(long)]
    pub no_default_features: bool,
    /// What the program gets
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<std::ffi::OsString>,
}

const TARGETS_EXAMPLES: &str = "\
Examples:
  cargo gpu-tuned targets                        all profiles
  cargo gpu-tuned targets rtx 40 --bf16          those that have both words in their names
  cargo gpu-tuned targets --min-memory 80        those with 80 GiB or more, as advertised
  cargo gpu-tuned targets rtx4090                all that is known of one, with sources
  cargo gpu-tuned targets --here                 the GPUs of this machine

Exit codes:
  0  fine
  1  the answer is no: nothing matches, or there is no GPU here that can be used
  2  bad input or usage";

/// Show the GPUs to build for: search them, see what is known of one and from where, and which one is here
///
/// Without a word, all of them: the shipped profiles and those of the package's gpu-tuned.toml. With the name of one, all
/// that is known of it: each figure with its source, what a plan has to keep to, and the feature to add to Cargo.toml. No
/// package is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = TARGETS_EXAMPLES)]
pub(crate) struct TargetsArgs {
    /// What to look for in the names of profiles, products, architectures, chips and memory; of several words, all
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// All that is known of each
    #[arg(long)]
    pub details: bool,
    /// The GPUs of this machine: which profiles they are, how sure that is, and what differs
    #[arg(long, conflicts_with_all = ["words", "min_memory", "compute_capability", "bf16", "project", "details"])]
    pub here: bool,
}

/// Which profiles are left out.
#[derive(Debug, clap::Args)]
pub(crate) struct FilterArgs {
    /// Those with so much memory at least, as advertised
    #[arg(long, value_name = "GIB", value_parser = gib)]
    pub min_memory: Option<f64>,
    /// Those of this compute capability, such as 8.9
    #[arg(long, value_name = "MAJOR.MINOR")]
    pub compute_capability: Option<ComputeCapability>,
    /// Those with bf16 tensor cores
    #[arg(long)]
    pub bf16: bool,
    /// Those that the package declares as features
    #[arg(long)]
    pub project: bool,
}

/// A path that cannot be the standard input or output, which has something else or cannot say what it is.
pub(crate) fn no_standard_stream() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if is_standard(&path) { Err("expected a name; a file that is called so is `./-`") } else { Ok(path) }
    })
}

/// An amount of memory.
fn gib(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok().filter(|gib: &f64| gib.is_finite() && *gib >= 0.0);
    amount.ok_or_else(|| "expected an amount in GiB, such as 24".to_owned())
}

/// Plan workloads for GPUs: what fits, how it runs, and where the figures come from
///
/// Without a target, for those that the package declares as features.
#[derive(Debug, clap::Args)]
#[command(after_help = below!(
    "cargo gpu-tuned plan h200 rtx4090 --global-batch 512",
    0: "everything fits",
    1: "something does not fit a GPU, or asks for what it has not",
    2: "bad input or usage"
))]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub targets: TargetArgs,
    /// Plan for every shipped profile and your own
    #[arg(long, conflicts_with_all = ["names", "target", "here"])]
    pub all: bool,
    #[command(flatten)]
    pub workload: ModelOrWorkloadArgs,
    #[command(flatten)]
    pub goal: GoalArgs,
}

/// Explain a plan: every figure, every item of the memory, and the ways that were not taken
#[derive(Debug, clap::Args)]
#[command(after_help = below!(
    "cargo gpu-tuned explain rtx4090 --workload digits",
    0: "it fits",
    1: "it does not fit",
    2: "bad input or usage"
))]
pub(crate) struct ExplainArgs {
    /// The GPU: the name of a profile, such as `h200`; without it the one that the package declares
    #[arg(value_name = "TARGET", conflicts_with = "here")]
    pub target: Option<String>,
    /// The same as an option, as `optimize` has it
    #[arg(id = "option", long = "target", value_name = "NAME", conflicts_with_all = ["here", "target"])]
    pub option: Option<String>,
    /// Explain the plan for the first GPU in this machine, or for its CPU where there is none
    #[arg(long)]
    pub here: bool,
    #[command(flatten)]
    pub workload: ModelOrWorkloadArgs,
    #[command(flatten)]
    pub goal: GoalArgs,
}

/// Check that the files are right and still say what was measured, and that the GPUs hold it
///
/// Nothing is built. A workload is stale when gpu-tuned.lock has others and not this one, when its dimensions in
/// gpu-tuned.toml are no longer those that were measured, and when it was measured with other releases of Burn or `CubeCL`
/// than Cargo.lock has. A Cargo.lock that cannot be read is a mistake; where there is none, a note says that releases are
/// not compared.
#[derive(Debug, clap::Args)]
#[command(after_help = below!(
    "cargo gpu-tuned check --workload digits",
    0: "all of it holds",
    1: "something is stale, or a declared GPU does not hold it",
    2: "bad input or usage, such as a mistake in a file"
))]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    pub workload: WorkloadArgs,
}

/// Which GPUs are planned for; without a word, those that the package declares as features.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// GPUs to plan for: names of profiles, such as `h200`
    #[arg(value_name = "TARGET", conflicts_with = "here")]
    pub names: Vec<String>,
    /// The same as an option, as `optimize` has it
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with_all = ["names", "here"])]
    pub target: Vec<String>,
    /// Plan for the GPUs in this machine, or for its CPU where there is none
    #[arg(long)]
    pub here: bool,
}

impl TargetArgs {
    /// The names, however they were given.
    pub(crate) fn names(&self) -> &[String] {
        if self.names.is_empty() { &self.target } else { &self.names }
    }
}

/// What is asked for in place of what the files say.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct GoalArgs {
    /// Samples of one optimizer step over all ranks
    #[arg(long, value_name = "SAMPLES")]
    pub global_batch: Option<u64>,
    /// Ranks that train together
    #[arg(long, value_name = "RANKS")]
    pub world_size: Option<u64>,
    /// Number formats: `f32`, `mixed_bf16`, `mixed_f16` or `bf16_params`
    #[arg(long)]
    pub precision: Option<Precision>,
    /// Share of the memory to leave alone, 0 to 0.9
    #[arg(long, value_name = "SHARE")]
    pub headroom: Option<f64>,
}

impl GoalArgs {
    /// Whether anything is asked for.
    pub(crate) const fn is_said(&self) -> bool {
        let Self { global_batch, world_size, precision, headroom } = self;
        global_batch.is_some() || world_size.is_some() || precision.is_some() || headroom.is_some()
    }

    /// Lays what was said over a goal.
    pub(crate) fn over(&self, mut goal: Goal) -> Goal {
        if self.global_batch.is_some() {
            (goal.global_tokens, goal.mean_tokens) = (None, None);
        }
        goal.global_batch = self.global_batch.or(goal.global_batch);
        goal.world_size = self.world_size.unwrap_or(goal.world_size);
        goal.precision = self.precision.or(goal.precision);
        goal.memory_headroom = self.headroom.unwrap_or(goal.memory_headroom);
        goal
    }
}

impl From<Colour> for anstream::ColorChoice {
    fn from(colour: Colour) -> Self {
        match colour {
            Colour::Auto => Self::Auto,
            Colour::Always => Self::Always,
            Colour::Never => Self::Never,
        }
    }
}
