//! Arguments that several commands share.

mod goal;
mod gpus;
mod numbers;

use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};

pub(crate) use goal::{GoalArgs, precision};
pub(crate) use gpus::{GpuNames, HereArgs, TargetArgs, WhichGpu};
pub(crate) use numbers::{count, gib, number, parse_time};

/// Arguments of every command.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// Cargo.toml of the package or of its workspace
    #[arg(long, global = true, value_name = "PATH")]
    pub manifest_path: Option<PathBuf>,
    /// Package, where the workspace has several
    #[arg(long, short, global = true, value_name = "NAME")]
    pub package: Option<String>,
    /// Print JSON; errors and notes stay text on standard error
    #[arg(long, global = true)]
    pub json: bool,
    /// Use of colors: on a terminal, always, or never
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto", hide_possible_values = true)]
    pub color: clap::ColorChoice,
    /// Print results and errors only, without notes and progress
    #[arg(long, short, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Print the files that are read, the commands that are run, and the time taken
    #[arg(long, short, global = true)]
    pub verbose: bool,
}

impl Common {
    /// Returns true if the user names a package.
    pub(crate) const fn names_a_package(&self) -> bool {
        self.manifest_path.is_some() || self.package.is_some()
    }
}

/// The user's program and its build.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
pub(crate) struct ProgramArgs {
    /// Binary to run, where the package has several
    #[arg(long, value_name = "NAME", conflicts_with = "example")]
    pub bin: Option<String>,
    /// Example to run
    #[arg(long, value_name = "NAME")]
    pub example: Option<String>,
    /// Features of the package to enable, separated by commas
    #[arg(long, short = 'F', value_name = "FEATURES", value_delimiter = ',')]
    pub features: Vec<String>,
    /// Enable all features of the package
    #[arg(long)]
    pub all_features: bool,
    /// Do not enable the default features
    #[arg(long)]
    pub no_default_features: bool,
    /// Folder of the build
    #[arg(long, value_name = "DIR")]
    pub target_dir: Option<PathBuf>,
    /// Fail if Cargo.lock would change
    #[arg(long)]
    pub locked: bool,
    /// Download nothing
    #[arg(long)]
    pub offline: bool,
    /// Arguments passed to your program
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<std::ffi::OsString>,
}

impl ProgramArgs {
    /// Options that all commands of cargo take.
    pub(crate) fn of_cargo(&self) -> Vec<String> {
        let options = [("--locked", self.locked), ("--offline", self.offline)];
        options.into_iter().filter(|(_, is_given)| *is_given).map(|(option, _)| option.to_owned()).collect()
    }
}

/// Parses a path that cannot be the standard input or output.
pub(crate) fn no_standard_stream() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().try_map(|path| {
        if path.as_os_str() == "-" { Err("expected a name; a file of this name is `./-`") } else { Ok(path) }
    })
}

/// Parses a name and its value.
pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    let pair = pair.filter(|(name, value)| !name.is_empty() && !value.is_empty());
    pair.ok_or_else(|| "expected NAME=VALUE, such as seq=512".to_owned())
}
