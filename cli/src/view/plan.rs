//! Plans in tables, and workloads in one line.

use gpu_tuned_core::plan::{Plan, with_interval};
use gpu_tuned_core::{Provenance, Setting, SettingKind, SettingValue, grouped};

use crate::args::GoalArgs;
use crate::output::{BOLD, styled, wrapped};
use crate::project::Described;

/// Headings of a plan's [`cells`]; those of numbers begin with `>`.
pub(crate) fn headings(first: &str) -> Vec<String> {
    let mark = |setting: Setting| if setting.kind() == SettingKind::Count { ">" } else { "" };
    let settings = listed().map(|(setting, heading)| format!("{}{heading}", mark(setting)));
    let others = [">needed", ">available", ">samples/s"].map(str::to_owned);
    core::iter::once(first.to_owned()).chain(settings).chain(others).collect()
}

/// Settings that tables of plans have a column for.
fn listed() -> impl Iterator<Item = (Setting, &'static str)> {
    Setting::ALL.into_iter().filter_map(|setting| Some((setting, setting.row().heading?)))
}

/// The target, then the cells of a plan.
pub(crate) fn cells(target: &str, plan: &Plan) -> Vec<String> {
    let settings = listed().map(|(setting, _)| match plan.settings.get(setting) {
        SettingValue::Count(count) => grouped(count),
        SettingValue::Flag(flag) => if flag { "on" } else { "off" }.to_owned(),
        SettingValue::Precision(precision) => precision.to_string(),
    });
    let memory = &plan.memory;
    let speed = with_interval(plan.samples_per_s, plan.samples_per_s_interval);
    let others = [memory.total().to_string(), memory.available.to_string(), speed];
    core::iter::once(target.to_owned()).chain(settings).chain(others).collect()
}

/// End of a row for a plan with CUDA graphs, which have no column of their own.
pub(crate) const fn with_graphs(plan: &Plan) -> &'static str {
    if plan.settings.cuda_graphs { ", with CUDA graphs" } else { "" }
}

/// Note on workloads whose micro-batch a program keeps on any machine.
pub(crate) fn kept_from_builds(workloads: &[Described<'_>], here: bool) -> Option<String> {
    let with_statistics = |described: &&Described<'_>| described.workload().batch_statistics;
    let names: Vec<_> =
        workloads.iter().filter(with_statistics).map(|described| format!("`{}`", described.name)).collect();
    (here && !names.is_empty()).then(|| {
        format!(
            "{}: a model with statistics over the micro-batch keeps the micro-batch of its build wherever that fits; this is \
             the plan of a build for this machine",
            names.join(", ")
        )
    })
}

/// Parameters, optimizer, step size and origin of the costs of a workload.
pub(crate) fn heading(described: &Described<'_>, goal: &GoalArgs) -> String {
    let (workload, goal) = (described.workload(), goal.over(described.goal.clone()));
    let step = match (goal.global_batch, goal.global_tokens) {
        (Some(samples), _) => format!("global batch {}", grouped(samples)),
        (None, Some(tokens)) => format!("{} tokens a step", grouped(tokens)),
        (None, None) => "no global batch".to_owned(),
    };
    let costs = match (workload.measured.describe(), workload.provenance) {
        (Some(measured), _) => measured,
        (None, Provenance::Declared) => "costs as declared".to_owned(),
        (None, _) => "costs from its dimensions".to_owned(),
    };
    let parameters = grouped(workload.trained_parameters().0);
    let name = styled(BOLD, described.name);
    wrapped(&format!("{name}: {parameters} parameters, {}, {step}, {costs}", workload.optimizer), 2)
}
