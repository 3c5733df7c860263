//! Arguments that several commands share.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::builder::{NonEmptyStringValueParser, PathBufValueParser, TypedValueParser};
use gpu_tuned_core::plan::{Plan, Reason};
use gpu_tuned_core::{Goal, Pins, Precision, PrecisionPolicy};

/// Arguments of every command.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Common options")]
pub(crate) struct Common {
    /// Cargo.toml of the package or of its workspace
    #[arg(long, global = true, value_name = "PATH", value_parser = no_standard_stream())]
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
    /// The options that name the package.
    pub(crate) fn package_options(&self) -> Vec<String> {
        let path = self.manifest_path.as_ref().map(|path| ["--manifest-path".to_owned(), path.display().to_string()]);
        let name = self.package.as_ref().map(|name| ["--package".to_owned(), name.clone()]);
        path.into_iter().chain(name).flatten().collect()
    }

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
    #[arg(long, value_name = "DIR", value_parser = no_standard_stream())]
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

pub(crate) fn pair(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').map(|(name, value)| (name.trim().to_owned(), value.trim().to_owned()));
    let pair = pair.filter(|(name, value)| !name.is_empty() && !value.is_empty());
    pair.ok_or_else(|| "expected NAME=VALUE, such as seq=512".to_owned())
}

/// Largest whole number that a floating-point number represents exactly.
const LARGEST_EXACT: f64 = (1_u64 << 53) as f64;

/// Parses a whole number: `512`, `1_000` or `1e3`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let plain = text.trim().replace('_', "");
    let in_powers =
        || plain.parse().ok().filter(|number: &f64| number.fract() == 0.0 && (0.0..=LARGEST_EXACT).contains(number));
    let number = plain.parse().ok().or_else(|| in_powers().map(|number| number as u64));
    number.ok_or_else(|| "expected a whole number, such as 512 or 1e3".to_owned())
}

pub(crate) fn positive(text: &str) -> Result<u64, String> {
    count(text).ok().filter(|number| *number > 0).ok_or_else(|| "expected a whole number from 1, such as 2".to_owned())
}

/// Parses a number of a GPU, a process or a batch.
pub(crate) fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.trim().parse().map_err(|_| "expected a whole number, such as 2".to_owned())
}

/// Parses a fraction: `0.1` or `10%`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let text = text.trim();
    let percent = text.strip_suffix('%').map(|number| number.trim_end().parse().map(|number: f64| number / 100.0));
    let share = percent.unwrap_or_else(|| text.parse()).ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a fraction or a percentage, such as 0.1 or 10%".to_owned())
}

/// Parses an amount of memory in GiB.
pub(crate) fn gib(text: &str) -> Result<f64, String> {
    let number = text.trim().trim_end_matches(['B', 'i', 'G']).trim_end();
    let amount = number.parse().ok().filter(|gib: &f64| gib.is_finite() && *gib >= 0.0);
    amount.ok_or_else(|| "expected an amount in GiB, such as 24".to_owned())
}

/// Parses a time with its unit; seconds without one.
pub(crate) fn parse_time(text: &str) -> Result<Duration, String> {
    let mistake = || "expected a time above 0, such as 500ms, 2s, 1.5m or 1h".to_owned();
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

/// Goals that override those of the files.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct GoalArgs {
    /// Samples of one optimizer step over all ranks, such as `512` or `1e3`
    #[arg(long, value_name = "SAMPLES", value_parser = count)]
    pub global_batch: Option<u64>,
    /// The loss couples all samples of a step, as contrastive losses do: a step is one micro-batch
    #[arg(long)]
    pub whole_batch_loss: bool,
    /// Ranks that train together
    #[arg(long, value_name = "RANKS", value_parser = count)]
    pub world_size: Option<u64>,
    /// Precision: `auto` (the planner chooses), `f32`, `mixed_bf16` (bf16 AMP), `mixed_f16` (fp16 AMP) or `bf16_params`
    /// (pure bf16); names of other frameworks, such as `bf16-mixed`, are taken with a note
    #[arg(long)]
    precision: Option<PrecisionName>,
    /// Memory headroom as a fraction, 0 to 0.9, or in percent: `10%`
    #[arg(long, value_name = "FRACTION", value_parser = share)]
    pub headroom: Option<f64>,
    /// Settings that are given, by [`PinArgs`].
    #[arg(skip)]
    pins: Pins,
}

/// Settings that the planner leaves alone.
#[derive(Debug, clap::Args)]
pub(crate) struct PinArgs {
    /// Plan with given settings, as `GPU_TUNED_SET` trains with them: `gradient_checkpointing=true,batch_size=64`
    #[arg(long, value_name = "SETTING=VALUE,…")]
    set: Option<Pins>,
}

impl PinArgs {
    /// The goals, with the given settings.
    pub(crate) fn add_to(&self, goal: &GoalArgs) -> GoalArgs {
        GoalArgs { pins: self.set.clone().unwrap_or_default(), ..goal.clone() }
    }

    /// Names the option as the reason of these settings.
    pub(crate) fn mark(&self, plan: &mut Plan) {
        let is_given = |reason: &&mut Reason| self.set.as_ref().is_some_and(|set| set.has(reason.setting));
        for reason in plan.reasons.iter_mut().filter(is_given) {
            *reason = Reason::pinned(reason.setting, "given by `--set`");
        }
    }
}

impl GoalArgs {
    pub(crate) const fn is_given(&self) -> bool {
        let Self { global_batch, whole_batch_loss, world_size, precision, headroom, pins: _ } = self;
        *whole_batch_loss || global_batch.is_some() || world_size.is_some() || precision.is_some() || headroom.is_some()
    }

    pub(crate) fn precision(&self) -> Option<PrecisionPolicy> {
        self.precision.as_ref().map(|name| name.policy)
    }

    /// Note on a precision that has another name here.
    pub(crate) fn note(&self) -> Option<String> {
        self.precision.as_ref().and_then(|name| name.note.clone())
    }

    /// Overrides a goal by the given ones.
    pub(crate) fn over(&self, mut goal: Goal) -> Goal {
        if self.global_batch.is_some() {
            (goal.global_tokens, goal.mean_tokens) = (None, None);
        }
        goal.global_batch = self.global_batch.or(goal.global_batch);
        goal.whole_batch_loss |= self.whole_batch_loss;
        goal.world_size = self.world_size.unwrap_or(goal.world_size);
        goal.precision = self.precision().or(goal.precision);
        goal.memory_headroom = self.headroom.unwrap_or(goal.memory_headroom);
        goal.pins = self.pins.or(&goal.pins);
        goal
    }
}

/// A precision by its name here, or by its name in another framework.
#[derive(Clone, Debug)]
struct PrecisionName {
    policy: PrecisionPolicy,
    note: Option<String>,
}

impl FromStr for PrecisionName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(policy) = text.parse() {
            return Ok(Self { policy, note: None });
        }
        let precision = precision(text).map_err(|expected| format!("{expected}, or auto: the planner chooses"))?;
        let meaning = match precision {
            Precision::F32 => None,
            Precision::MixedBf16 => Some("bf16 AMP, with weights in fp32; pure bf16 is bf16_params"),
            Precision::MixedF16 => Some("fp16 AMP, with weights in fp32"),
            Precision::Bf16Params => Some("pure bf16, weights included"),
        };
        let note = meaning.map(|meaning| format!("--precision {text} is {precision} here: {meaning}"));
        Ok(Self { policy: precision.into(), note })
    }
}

/// Parses a precision by any of its usual names.
pub(crate) fn precision(text: &str) -> Result<Precision, String> {
    const AMP: [&str; 3] = ["amp", "mixed", "mixed_precision"];
    let unknown = || match text.trim() {
        name if AMP.contains(&name) => {
            "AMP is mixed precision in bf16 or fp16: take mixed_bf16 or mixed_f16".to_owned()
        }
        _ => "expected f32, mixed_bf16 (bf16 AMP), mixed_f16 (fp16 AMP) or bf16_params (pure bf16)".to_owned(),
    };
    Precision::spelled(text).ok_or_else(unknown)
}

/// Parses names of GPUs, at least one.
fn gpu_list(text: &str) -> Result<String, String> {
    let has_name = text.contains(char::is_alphanumeric);
    has_name.then(|| text.to_owned()).ok_or_else(|| "expected names of GPUs, such as h200".to_owned())
}

/// Names of GPUs, as arguments or as an option.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct GpuNames {
    /// GPUs in any spelling, such as `h200`, `RTX 4090` or `rtx4090,h200`
    #[arg(value_name = "GPU", value_parser = NonEmptyStringValueParser::new())]
    names: Vec<String>,
    /// GPUs, as an option; repeatable
    #[arg(long, value_name = "GPU", value_parser = gpu_list)]
    target: Vec<String>,
}

impl GpuNames {
    pub(crate) const fn is_given(&self) -> bool {
        !self.names.is_empty() || !self.target.is_empty()
    }

    /// The words of each item of the list. A comma ends an item; so does an option.
    pub(crate) fn items(&self) -> Vec<Vec<&str>> {
        let mut items = vec![Vec::new()];
        for text in &self.names {
            for (index, part) in text.split(',').enumerate() {
                if index > 0 {
                    items.push(Vec::new());
                }
                items.last_mut().into_iter().for_each(|item| item.extend(part.split_whitespace()));
            }
        }
        items.extend(self.target.iter().flat_map(|text| text.split(',')).map(|part| part.split_whitespace().collect()));
        items.retain(|item| !item.is_empty());
        items
    }
}

/// GPUs to plan for: named ones, or those of this machine.
#[derive(Debug, clap::Args)]
pub(crate) struct TargetArgs {
    #[command(flatten)]
    pub names: GpuNames,
    #[command(flatten)]
    pub here: HereArgs,
}

impl TargetArgs {
    pub(crate) const fn is_given(&self) -> bool {
        self.here.is_given() || self.names.is_given()
    }
}

/// This machine in place of named GPUs.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(crate) struct HereArgs {
    /// Plan for the GPU that a program takes in this machine, or for its CPU where there is none
    #[arg(long, conflicts_with_all = ["names", "target"])]
    pub here: bool,
    /// Plan for this GPU of the machine, by its number in CUDA's order, or for `all` of them
    #[arg(long, value_name = "NUMBER", value_parser = which, conflicts_with_all = ["names", "target"])]
    pub gpu: Option<WhichGpu>,
}

impl HereArgs {
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
