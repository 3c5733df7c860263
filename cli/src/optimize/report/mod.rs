//! The report of `optimize`: as text and as JSON.

mod remarks;
mod several;
mod single;

use gpu_tuned_core::{grouped, three_digits};
use gpu_tuned_optimize::{Config, ConfigText, Dimension, Expectation, Format, Origin, Role, Step, Tuned};
use serde::Serialize;

use super::args::OptimizeArgs;
use super::copies::CopyReport;
use super::training::Training;
use crate::files::Change;
use crate::output::{BOLD, FAINT, MARKED, PLAIN, Table, or_dash, pretty, styled, wrapped};

/// A config tuned for one target, and its copy.
pub(super) struct OnTarget {
    pub tuned: Tuned,
    /// The copy, where the training fits.
    pub copy: Option<Change>,
}

pub(super) struct Report<'a> {
    pub args: &'a OptimizeArgs,
    pub file: &'a ConfigText,
    pub config: &'a Config,
    pub step: Step,
    pub training: &'a Training,
    pub targets: &'a [OnTarget],
}

#[derive(Serialize)]
struct Json<'a> {
    config: &'a str,
    format: Format,
    model: ModelJson<'a>,
    step: Step,
    targets: Vec<TargetJson<'a>>,
    /// Keys without a counterpart in Burn, which stay.
    no_counterpart: Vec<&'a str>,
    notes: &'a [String],
}

#[derive(Serialize)]
struct ModelJson<'a> {
    name: &'a str,
    because: &'a str,
    parameters: u64,
    optimizer: String,
    dims: &'a [Dimension],
}

#[derive(Serialize)]
struct TargetJson<'a> {
    #[serde(flatten)]
    tuned: &'a Tuned,
    #[serde(flatten)]
    copy: CopyReport<'a>,
}

impl Report<'_> {
    pub(super) fn json(&self, notes: &[String]) -> String {
        let training = self.training;
        let dry_run = self.args.write.dry_run;
        let targets = self.targets.iter().map(|one| {
            let copy = CopyReport::new(one.copy.as_ref(), self.file, dry_run);
            TargetJson { tuned: &one.tuned, copy }
        });
        pretty(&Json {
            config: &self.file.name,
            format: self.file.format,
            model: ModelJson {
                name: &training.name,
                because: &training.because,
                parameters: training.workload.parameters.trained(),
                optimizer: training.workload.optimizer.to_string(),
                dims: &training.dims,
            },
            step: self.step,
            targets: targets.collect(),
            no_counterpart: self.config.keys(Role::NoCounterpart).collect(),
            notes,
        })
    }

    pub(super) fn text(&self) -> String {
        let tables = match self.targets {
            [one] => single::table(&one.tuned),
            several => several::table(several),
        };
        format!("{}{}\n{}{}", self.heading(), self.dimensions(), tables, remarks::remarks(self))
    }

    fn heading(&self) -> String {
        let Self { file, training, step, .. } = self;
        let optimizer = if training.optimizer_known { "" } else { " (assumed)" };
        let devices = if step.ranks == 1 { "1 device".to_owned() } else { format!("{} devices", step.ranks) };
        let now = step.configured();
        let kept = if now == step.global { "kept".to_owned() } else { format!("{} requested", grouped(step.global)) };
        format!(
            "{}\n  {} parameters, {}{optimizer}\n  batch {} x {} x {devices} = {} samples a step, {kept}\n",
            wrapped(&format!("{}: {}", styled(BOLD, &file.name), training.because), 2),
            grouped(training.workload.parameters.trained()),
            training.workload.optimizer,
            grouped(step.batch),
            grouped(step.accumulation),
            grouped(now)
        )
    }

    /// Dimensions of the model with their origins.
    fn dimensions(&self) -> String {
        let mut table = Table::new(4, ["", ""]);
        for dim in &self.training.dims {
            let (style, from) = match &dim.origin {
                Origin::Key(key) => (PLAIN, key.clone()),
                Origin::Option => (PLAIN, "--dim".to_owned()),
                Origin::Assumed(why) => (MARKED, format!("assumed: {why}")),
            };
            table.row(style, [dim.name.clone(), dim.value.clone()], styled(FAINT, from));
        }
        table.print()
    }
}

fn ratio(ratio: f64) -> String {
    if (ratio - 1.0).abs() < 0.005 { "the same".to_owned() } else { format!("{ratio:.2}x") }
}

fn speed(expected: &Expectation) -> String {
    or_dash(expected.samples_per_s.map(three_digits))
}

/// A share in percent; small ones with a decimal.
fn percent(share: f64) -> String {
    match share {
        share if share < 0.0005 => "under 0.1%".to_owned(),
        share if share < 0.1 => format!("{:.1}%", share * 100.0),
        share => format!("{:.0}%", share * 100.0),
    }
}
