//! Arguments that several commands share.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use gpu_tuned_core::{Goal, PrecisionPolicy};

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
}

impl Common {
    /// Returns true if the user names a package.
    pub(crate) const fn names_a_package(&self) -> bool {
        self.manifest_path.is_some() || self.package.is_some()
    }
}

/// The user's program and its build.
#[derive(Debug, clap::Args)]
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
    /// Do not enable the default features
    #[arg(long)]
    pub no_default_features: bool,
    /// Arguments passed to your program
    #[arg(last = true, value_name = "ARGS")]
    pub args: Vec<std::ffi::OsString>,
}

/// GPUs to plan for; by default those that the package declares as features.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    /// GPUs to plan for: names of profiles, such as `h200`
    #[arg(value_name = "TARGET", conflicts_with_all = ["here", "gpu"])]
    pub names: Vec<String>,
    /// GPUs to plan for, as an option
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with_all = ["names", "here", "gpu"])]
    pub target: Vec<String>,
    #[command(flatten)]
    pub here: HereArgs,
}

impl TargetArgs {
    /// The names, as arguments or as an option.
    pub(crate) fn names(&self) -> &[String] {
        if self.names.is_empty() { &self.target } else { &self.names }
    }
}

/// This machine in place of named GPUs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct HereArgs {
    /// Plan for the GPU that a program takes in this machine, or for its CPU where there is none
    #[arg(long)]
    pub here: bool,
    /// Plan for this GPU of the machine, by its number in CUDA's order, or for `all` of them
    #[arg(long, value_name = "NUMBER", value_parser = which)]
    pub gpu: Option<WhichGpu>,
}

impl HereArgs {
    /// Returns true if this machine is asked for.
    pub(crate) const fn is_given(self) -> bool {
        self.here || self.gpu.is_some()
    }
}

/// GPU of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WhichGpu {
    All,
    Number(usize),
}

fn which(text: &str) -> Result<WhichGpu, String> {
    match text {
        "all" => Ok(WhichGpu::All),
        number => number.parse().map(WhichGpu::Number).map_err(|_| "expected a number, or `all`".to_owned()),
    }
}

/// Goals that override those of the files.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct GoalArgs {
    /// Samples of one optimizer step over all ranks
    #[arg(long, value_name = "SAMPLES")]
    pub global_batch: Option<u64>,
    /// Ranks that train together
    #[arg(long, value_name = "RANKS")]
    pub world_size: Option<u64>,
    /// Precision: `auto` (the planner chooses), `f32`, `mixed_bf16` (bf16 AMP), `mixed_f16` (fp16 AMP) or `bf16_params`
    /// (pure bf16)
    #[arg(long)]
    pub precision: Option<PrecisionPolicy>,
    /// Memory headroom as a fraction, 0 to 0.9
    #[arg(long, value_name = "SHARE")]
    pub headroom: Option<f64>,
}

impl GoalArgs {
    /// Returns true if any goal is given.
    pub(crate) const fn is_given(&self) -> bool {
        let Self { global_batch, world_size, precision, headroom } = self;
        global_batch.is_some() || world_size.is_some() || precision.is_some() || headroom.is_some()
    }

    /// Overrides a goal by the given ones.
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

/// Parses a time with its unit; seconds without one.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let mistake = || "expected a time, such as 500ms, 2s, 1.5m or 1h".to_owned();
    let digits = text.find(|character: char| !character.is_ascii_digit() && character != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let scale = match unit.trim() {
        "ms" => 1e-3,
        "" | "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(mistake()),
    };
    let seconds = number.parse::<f64>().map_err(|_| mistake())? * scale;
    Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(mistake)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::parse_time;

    #[test]
    fn times_have_units() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("2s", 2000),
            ("2", 2000),
            ("1.5s", 1500),
            ("3m", 180_000),
            ("1h", 3_600_000),
            ("1 min", 60_000),
        ] {
            assert_eq!(parse_time(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "s", "-1s", "0s", "1d", "nan", "1e999", "1.2.3s", "99999999999999999999999h", "٣s"] {
            assert!(parse_time(text).is_err(), "{text}");
        }
    }
}
