//! The report of `optimize`: as text and as JSON.

use gpu_tuned_core::grouped;
use gpu_tuned_core::plan::{SpeedError, with_interval};
use gpu_tuned_optimize::{
    Change as Edit, ChangeState, Config, ConfigText, Dimension, Expectation, Format, Framework, Gain, Origin, Role,
    Step, Tuned,
};
use serde::Serialize;

use super::{CopyReport, OptimizeArgs, Training, is_copy};
use crate::files::Change;
use crate::output::{BAD, BOLD, FAINT, GOOD, MARKED, PLAIN, Table, Verbosity, or_dash, styled, verbosity, wrapped};

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
    pub framework: Framework,
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
    /// Keys of the config that no plan uses.
    unused: Vec<&'a str>,
    targets: Vec<TargetJson<'a>>,
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
    /// Notes beside the warnings.
    notes: Vec<String>,
    #[serde(flatten)]
    copy: CopyReport<'a>,
}

impl Report<'_> {
    pub(super) fn json(&self) -> Json<'_> {
        let training = self.training;
        let dry_run = self.args.write.dry_run;
        let targets = self.targets.iter().map(|one| {
            let copy = CopyReport::new(one.copy.as_ref(), self.file, dry_run);
            let notes = on_target(self, &one.tuned, true).split_off(one.tuned.warnings.len());
            TargetJson { tuned: &one.tuned, notes, copy }
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
            unused: self.unused(),
            targets: targets.collect(),
        }
    }

    pub(super) fn text(&self) -> String {
        format!("{}{}\n{}{}", self.heading(), self.dimensions(), targets_table(self.targets), remarks(self))
    }

    /// Keys of the config that no plan uses. The key that names the model is in the heading.
    fn unused(&self) -> Vec<&str> {
        let mut unused = self.config.unused(&self.training.dims);
        let is_named = |key: &str| ["`", " "].iter().any(|end| self.training.because.contains(&format!("`{key}{end}")));
        unused.retain(|key| !is_named(key));
        unused
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
        for (name, value, source) in self.config.defaults(self.step.ranks) {
            let from = format!("the default of {}: {source}", self.config.dialect.release());
            table.row(MARKED, [name.to_owned(), value.to_owned()], styled(FAINT, from));
        }
        let unused = self.unused().join(", ");
        let remark = wrapped(&format!("without effect on the plan: {unused}"), 4);
        let unused = if unused.is_empty() { unused } else { format!("    {remark}\n") };
        table.print() + &styled(FAINT, unused)
    }
}

fn ratio(ratio: f64) -> String {
    if (ratio - 1.0).abs() < 0.005 { "the same".to_owned() } else { format!("{ratio:.2}x") }
}

fn speed(expected: &Expectation) -> String {
    or_dash(expected.samples_per_s.map(|speed| with_interval(speed, expected.samples_per_s_interval)))
}

fn targets_table(targets: &[OnTarget]) -> String {
    let all: Vec<&Tuned> = targets.iter().map(|one| &one.tuned).collect();
    let mut table = columns(all.len() + 1);
    let mut row = |style, name: &str, now: String, cells: Vec<String>| {
        table.row(style, [vec![name.to_owned(), now], cells].concat(), "");
    };
    let each = |cell: &dyn Fn(&Tuned) -> String| all.iter().map(|tuned| cell(tuned)).collect::<Vec<_>>();
    row(BOLD, "key", "now".to_owned(), each(&|tuned| tuned.target.clone()));
    let keys = keys(&all);
    for key in &keys {
        let now = all.iter().find_map(|tuned| change(tuned, key)?.before.clone());
        let is_edit = |it: &Edit| matches!(it.state, ChangeState::Changed | ChangeState::Added);
        let style = if all.iter().any(|tuned| change(tuned, key).is_some_and(is_edit)) { GOOD } else { FAINT };
        row(style, key, or_dash(now), each(&|tuned| or_dash(change(tuned, key).map(marked))));
    }
    let framework = all.first().map_or(Framework::Burn, |tuned| tuned.framework);
    let needed = format!("needed in {}", framework.name());
    row(PLAIN, "needed now", String::new(), each(&|tuned| or_dash(tuned.before.memory_bytes)));
    row(PLAIN, &needed, String::new(), each(&|tuned| or_dash(tuned.after.memory_bytes)));
    if all.iter().any(|tuned| tuned.after.reserved_bytes.is_some()) {
        let cell = |tuned: &Tuned| or_dash(tuned.after.reserved_bytes);
        row(PLAIN, "reserved, at most, where lengths vary", String::new(), each(&cell));
    }
    row(PLAIN, "available", String::new(), each(&|tuned| or_dash(tuned.after.available_bytes)));
    if framework == Framework::Burn {
        row(PLAIN, "samples/s now", String::new(), each(&|tuned| speed(&tuned.before)));
        row(PLAIN, "samples/s", String::new(), each(&|tuned| speed(&tuned.after)));
        row(PLAIN, "ratio", String::new(), each(&|tuned| or_dash(tuned.speedup.map(ratio))));
    }
    let provenance = |tuned: &Tuned| tuned.after.samples_per_s_provenance.or(tuned.after.memory_provenance);
    row(PLAIN, "figures", String::new(), each(&|tuned| or_dash(provenance(tuned))));
    let has_by_hand = all.iter().flat_map(|tuned| &tuned.changes).any(|change| change.state == ChangeState::ByHand);
    let legend = if has_by_hand { styled(FAINT, "  * by hand: the config has no such key\n") } else { String::new() };
    let legend = legend + &errors(&all);
    let problem = |(target, when, problem): (&str, &str, &Option<String>)| {
        Some(format!("  {target} ({when}): {}\n", styled(BAD, wrapped(problem.as_ref()?, 4))))
    };
    let problems = all.iter().flat_map(|tuned| {
        let target = tuned.target.as_str();
        [(target, "now", &tuned.before.problem), (target, "planned", &tuned.after.problem)]
    });
    let problems: String = problems.filter_map(problem).collect();
    format!("{}{legend}{problems}{}\n{}", table.print(), suggestions(&all), reasons(&keys, &all))
}

/// Names what the interval of each target's speed is the error of: a line for each error.
fn errors(all: &[&Tuned]) -> String {
    let mut targets: Vec<(SpeedError, Vec<&str>)> = Vec::new();
    for tuned in all.iter().filter(|tuned| tuned.framework == Framework::Burn) {
        let Some(error) = tuned.after.samples_per_s_error else { continue };
        match targets.iter_mut().find(|(other, _)| *other == error) {
            Some((_, names)) => names.push(&tuned.target),
            None => targets.push((error, vec![&tuned.target])),
        }
    }
    let line = |(error, names): &(SpeedError, Vec<&str>)| {
        let of = if names.len() == all.len() { String::new() } else { format!(": {}", names.join(", ")) };
        styled(FAINT, format!("  ± {error}{of}\n"))
    };
    targets.iter().map(line).collect()
}

/// A table with one column of names and several of figures.
fn columns(figures: usize) -> Table {
    Table::new(2, core::iter::once("").chain(core::iter::repeat_n(">", figures)))
}

/// Keys that a plan of any target sets, in the order of their first occurrence.
fn keys<'t>(all: &[&'t Tuned]) -> Vec<&'t str> {
    let mut keys = Vec::new();
    for change in all.iter().flat_map(|tuned| &tuned.changes) {
        if !keys.contains(&change.key.as_str()) {
            keys.push(change.key.as_str());
        }
    }
    keys
}

fn change<'t>(tuned: &'t Tuned, key: &str) -> Option<&'t Edit> {
    tuned.changes.iter().find(|change| change.key == key)
}

fn marked(change: &Edit) -> String {
    if change.state == ChangeState::ByHand { format!("{} *", change.after) } else { change.after.clone() }
}

/// Faster alternatives for each target.
fn suggestions(all: &[&Tuned]) -> String {
    let (mut table, mut rows) = (columns(all.len()), 0);
    let mut row = |style, name: &str, cell: &dyn Fn(&Tuned) -> Option<String>| {
        let cells: Vec<_> = all.iter().map(|tuned| cell(tuned)).collect();
        if cells.iter().any(Option::is_some) {
            rows += 1;
            table.row(style, [vec![name.to_owned()], cells.into_iter().map(or_dash).collect()].concat(), "");
        }
    };
    row(BOLD, "faster alternatives", &|tuned| Some(tuned.target.clone()));
    row(PLAIN, "global batch that fills it", &|tuned| Some(grouped(tuned.suggestions.larger_batch?.global_batch)));
    let times = |gain: Gain| format!("{:.2}x", gain.samples_per_s_ratio);
    row(PLAIN, "  samples/s with it", &|tuned| tuned.suggestions.larger_batch.map(times));
    row(PLAIN, "samples/s in mixed_bf16", &|tuned| tuned.suggestions.mixed_bf16.map(times));
    if rows == 1 {
        return String::new();
    }
    let remark = "these change the results of the run, so that nothing is changed";
    format!("\n{}  {}\n", table.print(), styled(FAINT, wrapped(remark, 2)))
}

/// The reasons for each key with their targets.
fn reasons(keys: &[&str], all: &[&Tuned]) -> String {
    let mut lines = String::new();
    for key in keys {
        let by_reason = grouped_by_text(all.iter().filter_map(|tuned| {
            let change = change(tuned, key)?;
            let effect = match change.state {
                ChangeState::Added => "added; ",
                ChangeState::Implied => "implied by the other keys; ",
                _ => "",
            };
            let reason = format!("{effect}{} ({})", without_figures(&change.why), change.provenance);
            Some((Some(tuned.target.as_str()), reason))
        }));
        lines += &format!("  {}\n", styled(BOLD, key));
        for (reason, targets) in by_reason {
            let of = if targets.len() == all.len() { String::new() } else { format!("{}: ", targets.join(", ")) };
            lines += &format!("    {}\n", wrapped(&format!("{of}{reason}"), 4));
        }
    }
    lines
}

/// A reason without throughput, which differs between targets and is in the table.
fn without_figures(why: &str) -> String {
    let mut left = why.to_owned();
    while let Some(end) = left.find(" samples/s") {
        let (Some(start), Some(close)) = (left[..end].rfind(" ("), left[end..].find(')')) else { break };
        left.replace_range(start..=end + close, "");
    }
    left
}

/// The notes on all targets, and the outcome of the files.
fn remarks(report: &Report<'_>) -> String {
    let is_single = report.targets.len() == 1;
    let of_targets = report.targets.iter().flat_map(|one| {
        let notes = on_target(report, &one.tuned, is_single);
        notes.into_iter().map(|note| (Some(one.tuned.target.as_str()), note))
    });
    let general = [unknown_loading(report), by_hand(report)];
    let general = general.into_iter().flatten().map(|note| (None, note));
    let is_quiet = verbosity() == Verbosity::Quiet;
    let all: String = grouped_by_text(of_targets.chain(general).filter(|_| !is_quiet))
        .into_iter()
        .map(|(note, targets)| {
            let of = if is_single || targets.is_empty() { String::new() } else { format!("{}: ", targets.join(", ")) };
            format!("note: {}\n", wrapped(&format!("{of}{note}"), 6))
        })
        .collect();
    let gap = if all.is_empty() { "" } else { "\n" };
    format!("{gap}{all}\n{}", files(report))
}

/// Texts in the order of their first occurrence, each with its subjects.
fn grouped_by_text<'a>(all: impl Iterator<Item = (Option<&'a str>, String)>) -> Vec<(String, Vec<&'a str>)> {
    let mut grouped: Vec<(String, Vec<&str>)> = Vec::new();
    for (subject, text) in all {
        match grouped.iter_mut().find(|(known, _)| *known == text) {
            Some((_, subjects)) => subjects.extend(subject),
            None => grouped.push((text, subject.into_iter().collect())),
        }
    }
    grouped
}

fn on_target(report: &Report<'_>, tuned: &Tuned, is_single: bool) -> Vec<String> {
    let mut notes = tuned.warnings.clone();
    notes.extend(host(report, tuned));
    if report.config.tf32 == Some(false) {
        let key = report.config.key(Role::Tf32).unwrap_or("tf32");
        notes.push(format!("`{key}` is off and stays off: TF32 would round the factors of f32 products to ten bits"));
    }
    notes.extend(accumulation(tuned));
    // For several targets, a table has it.
    notes.extend(tuned.suggestions.advice.iter().filter(|_| is_single).cloned());
    notes
}

/// Gain of a key for accumulation, where the config has none.
fn accumulation(tuned: &Tuned) -> Option<String> {
    let split = tuned.with_accumulation.as_ref()?;
    let (batch, steps) = (split.settings.batch_size, split.schedule.micro_steps());
    let remedy = "have the program read gradient_accumulation, and add the key with --add";
    let Some(plan) = &tuned.plan else { return Some(format!("{steps} micro-batches of {batch} would fit: {remedy}")) };
    let ratio = split.samples_per_s / plan.samples_per_s;
    // Chosen, not measured.
    (ratio >= 1.02)
        .then(|| format!("a step in {steps} micro-batches of {batch} would run {ratio:.2}x as fast: {remedy}"))
}

/// The machine whose CPU cores count for the workers.
fn host(report: &Report<'_>, tuned: &Tuned) -> Option<String> {
    let workers = tuned.changes.iter().find(|change| change.setting == "num_workers")?;
    let (key, cores) = (&workers.key, tuned.host.cores);
    if tuned.host.assumed {
        return None;
    }
    let shared = if report.step.ranks > 1 { " for each rank" } else { "" };
    let why = "which has such a GPU; memory and speed are the profile's";
    (!report.args.targets.here.is_given())
        .then(|| format!("`{key}` is planned for {cores} CPU cores{shared} of this machine, {why}"))
}

/// A note that the figures leave out an unknown time of loading.
fn unknown_loading(report: &Report<'_>) -> Option<String> {
    let is_unknown = report.framework == Framework::Burn
        && report.config.workers == Some(0)
        && report.training.workload.sample.host_ms.is_none();
    let key = report.config.key(Role::Workers).unwrap_or("num_workers");
    is_unknown.then(|| {
        format!(
            "with `{key}` = 0 training waits for each batch to be prepared. The figures leave that time out, as it is unknown: \
             give --dim host_ms_per_sample=MS, or measure it"
        )
    })
}

/// A note on settings without a key, which the plan counts on.
fn by_hand(report: &Report<'_>) -> Option<String> {
    let changes = report.targets.iter().flat_map(|one| &one.tuned.changes);
    let mut keys: Vec<_> = changes.filter(|change| change.state == ChangeState::ByHand).map(|it| &it.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let key = keys.first()?;
    let all = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    Some(if report.config.dialect.adds_on_request {
        format!(
            "{all}: the program may not read such a key; a Burn `Config` ignores keys without a field. Have the program read \
             {key}, and add the key with --add"
        )
    } else {
        format!("{all}: the plan counts on it, and it is not written: add it to the config by hand")
    })
}

/// The outcome of each file, by outcome.
fn files(report: &Report<'_>) -> String {
    let outcomes = report.targets.iter().map(|one| {
        let Some(copy) = &one.copy else {
            return (Some(one.tuned.target.as_str()), "not written, because it does not fit".to_owned());
        };
        let (is_needed, is_copy) = (copy.is_needed(), is_copy(copy, report.file));
        let outcome = match report.args.write.dry_run {
            _ if !is_needed => "unchanged",
            true if is_copy => "dry run, nothing to change",
            true => "dry run, not written",
            false if is_copy => "copied unchanged",
            false => "written",
        };
        (Some(copy.name.as_str()), outcome.to_owned())
    });
    let line = |(outcome, names): (String, Vec<&str>)| wrapped(&format!("{outcome}: {}", names.join(", ")), 0) + "\n";
    grouped_by_text(outcomes).into_iter().map(line).collect()
}
