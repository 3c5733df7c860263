//! Arguments of `targets`.

use gpu_tuned_core::device::ComputeCapability;

const HELP: &str = "\
Examples:
  cargo gpu-tuned targets                        all profiles
  cargo gpu-tuned targets rtx 40 --bf16          names with both words
  cargo gpu-tuned targets --min-memory 80        80 GiB or more, as advertised
  cargo gpu-tuned targets rtx4090                one profile in full, with sources
  cargo gpu-tuned targets --here                 the GPUs of this machine

Exit codes:
  0  ok
  1  the answer is no: nothing matches, or this machine has no usable GPU
  2  bad input or usage";

/// List GPUs to build for: search profiles, show one with its sources, detect this machine's
///
/// Without a word, all shipped profiles and those of the package's gpu-tuned.toml. With the name of a profile, all of its
/// figures with their sources, the limits of plans, and the feature to add to Cargo.toml. No package is needed.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct TargetsArgs {
    /// Words to search for in names of profiles, products, architectures, chips and memory; every word must match
    #[arg(value_name = "WORD")]
    pub words: Vec<String>,
    #[command(flatten)]
    pub filter: FilterArgs,
    /// Show profiles in full
    #[arg(long)]
    pub details: bool,
    /// Show the GPUs of this machine: their profiles, how certain those are, and the differences
    #[arg(long, conflicts_with_all = ["words", "min_memory", "compute_capability", "bf16", "project", "details"])]
    pub here: bool,
}

/// Filters of profiles.
#[derive(Debug, clap::Args)]
pub(crate) struct FilterArgs {
    /// Minimum memory, as advertised
    #[arg(long, value_name = "GIB", value_parser = gib)]
    pub min_memory: Option<f64>,
    /// Compute capability, such as 8.9
    #[arg(long, value_name = "MAJOR.MINOR")]
    pub compute_capability: Option<ComputeCapability>,
    /// Only with bf16 tensor cores
    #[arg(long)]
    pub bf16: bool,
    /// Only those that the package declares as features
    #[arg(long)]
    pub project: bool,
}

/// Parses an amount of memory in GiB.
fn gib(text: &str) -> Result<f64, String> {
    let amount = text.parse().ok().filter(|gib: &f64| gib.is_finite() && *gib >= 0.0);
    amount.ok_or_else(|| "expected an amount in GiB, such as 24".to_owned())
}
