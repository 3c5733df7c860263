//! The report of `optimize`: as text and as JSON.

mod remarks;
mod several;

use gpu_tuned_core::plan::with_interval;
use gpu_tuned_core::{Provenance, grouped};
use gpu_tuned_optimize::{ChangeState, Config, ConfigText, Dimension, Expectation, Format, Origin, Role, Step, Tuned};
use serde::Serialize;

use super::args::OptimizeArgs;
use super::copies::CopyReport;
use super::training::Training;
use crate::files::Change;
use crate::output::{BAD, BOLD, FAINT, GOOD, MARKED, PLAIN, Table, or_dash, styled, wrapped};

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
pub(super) struct Json<'a> {
    config: &'a str,
    format: Format,
    model: ModelJson<'a>,
    step: Step,
    targets: Vec<TargetJson<'a>>,
    /// Keys without a counterpart in Burn, which stay.
    no_counterpart: Vec<&'a str>,
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
    pub(super) fn json(&self) -> Json<'_> {
        let training = self.training;
        let dry_run = self.args.write.dry_run;
        let targets = self.targets.iter().map(|one| {
            let copy = CopyReport::new(one.copy.as_ref(), self.file, dry_run);
            TargetJson { tuned: &one.tuned, copy }
        });
        Json {
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
        }
    }

    pub(super) fn text(&self) -> String {
        let tables = match self.targets {
            [one] => single_table(&one.tuned),
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
        let dialect = self.config.dialect;
        let ecosystem = format!("  read as a config of {}: {}\n", dialect.name, dialect.documentation);
        let ecosystem = if dialect.is_plain() { String::new() } else { ecosystem };
        format!(
            "{}\n{ecosystem}  {} parameters, {}{optimizer}\n  batch {} x {} x {devices} = {} samples a step, {kept}\n",
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
            // A long list is beside its key.
            let (value, from) = match dim.value.len() {
                0..40 => (dim.value.clone(), from),
                _ => (String::new(), format!("{} ({from})", dim.value)),
            };
            table.row(style, [dim.name.clone(), value], styled(FAINT, from));
        }
        table.print()
    }
}

fn ratio(ratio: f64) -> String {
    if (ratio - 1.0).abs() < 0.005 { "the same".to_owned() } else { format!("{ratio:.2}x") }
}

fn speed(expected: &Expectation) -> String {
    or_dash(expected.samples_per_s.map(|speed| with_interval(speed, expected.samples_per_s_interval)))
}

fn single_table(tuned: &Tuned) -> String {
    let mut table = Table::new(2, ["key", ">before", ">after"]);
    for change in &tuned.changes {
        let style = match change.state {
            ChangeState::Same | ChangeState::Implied => FAINT,
            ChangeState::Changed | ChangeState::Added => GOOD,
            ChangeState::ByHand => MARKED,
        };
        let cells = [change.key.clone(), or_dash(change.before.as_ref()), change.after.clone()];
        table.row(style, cells, reason(change));
    }
    let changes = if tuned.plan.is_some() { format!("{}\n", table.print()) } else { String::new() };
    format!("{changes}{}", expected(tuned))
}

fn reason(change: &gpu_tuned_optimize::Change) -> String {
    let effect = match change.state {
        ChangeState::ByHand => styled(MARKED, "by hand: the config has no such key; "),
        ChangeState::Added => styled(GOOD, "added; "),
        ChangeState::Implied => "implied by the other keys; ".to_owned(),
        ChangeState::Same | ChangeState::Changed => String::new(),
    };
    format!("{effect}{} {}", change.why, styled(FAINT, format!("({})", change.provenance)))
}

/// Memory and throughput before and after.
fn expected(tuned: &Tuned) -> String {
    let (before, after) = (&tuned.before, &tuned.after);
    let columns = ["expected in Burn", ">before", ">after"];
    let mut table = Table::new(2, columns);
    let label = |it: Option<Provenance>| it.map_or_else(String::new, |it| styled(FAINT, format!("({it})")));
    let available = after.available_bytes.or(before.available_bytes);
    let available = available.map_or_else(String::new, |bytes| format!("of {bytes} "));
    let provenance = label(after.memory_provenance.max(before.memory_provenance));
    let cells = ["memory".to_owned(), or_dash(before.memory_bytes), or_dash(after.memory_bytes)];
    table.row(PLAIN, cells, format!("{available}{provenance}"));
    if let Some(pytorch) = tuned.pytorch {
        let cells = ["memory in PyTorch".to_owned(), pytorch.before_bytes.to_string(), or_dash(pytorch.after_bytes)];
        table.row(PLAIN, cells, styled(FAINT, "(estimate)"));
    }
    let speedup = after.ratio_to(before);
    let times = speedup.map_or_else(String::new, |(times, _)| format!("{} ", ratio(times)));
    let provenance = label(speedup.map(|(_, provenance)| provenance).or(after.samples_per_s_provenance));
    let cells = ["samples/s".to_owned(), speed(before), speed(after)];
    table.row(PLAIN, cells, format!("{times}{provenance}"));
    let problem = |(when, problem): (&str, &Option<String>)| {
        Some(format!("  {when}: {}\n", styled(BAD, wrapped(problem.as_ref()?, when.len() + 4))))
    };
    let problems = [("before", &before.problem), ("after", &after.problem)].into_iter().filter_map(problem);
    table.print() + &problems.collect::<String>()
}
