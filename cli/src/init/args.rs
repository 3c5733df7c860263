//! Arguments of `init`.

use std::path::PathBuf;

const HELP: &str = "\
Example:
  cargo gpu-tuned init --target rtx4090 --target h200 --dry-run

Exit codes:
  0  written, nothing to do, or a dry run
  1  not written: the answer was no, or there was no terminal to ask on
  2  bad input or usage, or a file that cannot be written: all files are unchanged";

/// Set up a package: dependencies, features, build script and gpu-tuned.toml, shown as a diff before they are written
///
/// Formatting, comments, features and the build script are kept; the build script gets one line where that is safe. The crate
/// for the build script has the origin of `gpu-tuned`: the folder beside it, the same repository, or the release. A package that
/// is set up is not changed. For structs that look like training configs, an annotation is shown.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP)]
pub(crate) struct InitArgs {
    /// GPUs to declare as features, such as `h200`; by default this machine's GPU, `h200` and `rtx4090`, unless the package
    /// declares one
    #[arg(long = "target", value_name = "NAME", num_args = 1.., value_delimiter = ',')]
    pub targets: Vec<String>,
    /// Write without asking
    #[arg(long, short, conflicts_with = "dry_run")]
    pub yes: bool,
    /// Show the changes and write nothing
    #[arg(long)]
    pub dry_run: bool,
    /// Depend on this checkout of gpu-tuned, in place of the release or another checkout
    #[arg(long, value_name = "DIR")]
    pub checkout: Option<PathBuf>,
}
