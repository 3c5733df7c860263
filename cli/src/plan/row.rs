//! Rows of tables of plans.

use gpu_tuned_core::plan::{Misfit, Plan};
use gpu_tuned_core::{Bytes, Setting, SettingKind, SettingValue, grouped, three_digits};
use serde::Serialize;

/// Plan of one workload on one target.
#[derive(Serialize)]
pub(super) struct Row {
    pub workload: String,
    /// The annotated struct with this workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<String>,
    pub target: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Plan(Box<Plan>),
    Misfit(Box<Misfit>),
    /// The reason why the target cannot meet the goal.
    Unsupported(String),
}

/// Headings of a plan's [`cells`] after the first; `true` for columns of numbers.
pub(crate) fn headings() -> impl Iterator<Item = (&'static str, bool)> {
    let settings = listed().map(|(setting, heading)| (heading, setting.kind() == SettingKind::Count));
    settings.chain([("memory", true), ("of", true), ("samples/s", true)])
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
    let others = [memory.total().to_string(), memory.available.to_string(), three_digits(plan.samples_per_s)];
    core::iter::once(target.to_owned()).chain(settings).chain(others).collect()
}

/// Missing memory, and the cheapest remedy.
pub(crate) fn misfit_in_words(misfit: &Misfit) -> String {
    let missing = misfit.memory.total() - misfit.memory.budget();
    let missing = (missing > Bytes::ZERO).then(|| format!("{missing} too much at batch {}", misfit.memory.batch));
    let too_large = misfit.too_large.as_ref().map(ToString::to_string);
    let what: Vec<_> = missing.into_iter().chain(too_large).collect();
    format!("does not fit: {}; {}", what.join("; "), misfit.remedy)
}
