//! The search for each kind of finding. A file has the kinds that one question tells apart.

mod batch;
mod clocks;
mod host;
mod leak;
mod loader;
mod not_finite;
mod other_process;
mod prefetch;
mod settings;
mod slow_rank;
mod utilization;

use gpu_tuned_core::{Setting, SettingValue};

use super::curve::Curve;
use super::finding::{Change, Finding, Prediction, Quantity, SettingChange};
use super::kind::{Kind, Severity};
use super::model::{StepModel, WhatIf};
use super::run_stats::RunStats;
use super::words;

/// Input of the search.
pub(super) struct DiagnosisInput<'a> {
    pub stats: RunStats<'a>,
    /// `None` without steps, or with too few.
    pub model: Option<StepModel>,
}

/// A search for one or two kinds.
pub(super) type Find = fn(&DiagnosisInput<'_>) -> Option<Finding>;

/// All searches. Among findings of equal weight, the first of these is listed first.
pub(super) const ALL: [Find; 22] = [
    leak::of_device,
    not_finite::find,
    loader::find,
    host::sync,
    other_process::find,
    slow_rank::find,
    batch::too_small,
    prefetch::find,
    host::slow_loop,
    leak::of_host,
    settings::wrong_target,
    clocks::thermal,
    clocks::power,
    clocks::pcie,
    host::bound,
    batch::no_accumulation,
    settings::needless_checkpointing,
    leak::fragmentation,
    settings::no_amp,
    settings::no_tf32,
    utilization::idle,
    utilization::model_too_small,
];

impl<'a> DiagnosisInput<'a> {
    pub(super) fn new(stats: RunStats<'a>) -> Self {
        let model = stats.steps.as_ref().ok().map(|steps| StepModel::new(&stats, steps));
        Self { stats, model }
    }

    /// Returns the planner's curve for the run's checkpointing.
    pub(super) fn curve(&self) -> Option<Curve<'_>> {
        let run = self.stats.run?;
        Curve::new(run, run.settings.is_some_and(|settings| settings.gradient_checkpointing))
    }

    /// Predicts the speed with another step.
    fn predict(&self, step: WhatIf, how: impl Into<String>) -> Option<Prediction> {
        let model = self.model.as_ref()?;
        let (now, then) = (model.rate_now(), model.rate(step));
        then.is_finite().then(|| Prediction::new(Quantity::SamplesPerS, now, then, how))
    }

    /// Formats the judged range: `steps 12 to 480`.
    fn range(&self) -> String {
        self.stats.steps.as_ref().map_or_else(
            |_| format!("over {}", words::seconds(self.stats.span.1 - self.stats.span.0)),
            |steps| format!("steps {} to {}", steps.numbers.0, steps.numbers.1),
        )
    }

    /// Returns the change of a setting, where the settings are recorded.
    fn change(&self, setting: Setting, to: SettingValue) -> Option<SettingChange> {
        let settings = self.stats.run?.settings.as_ref()?;
        Some(SettingChange { setting, from: settings.get(setting), to })
    }

    /// Returns the settings for micro-batches of `batch` samples, with the accumulation that keeps the step.
    fn regrouping(&self, batch: u64) -> Vec<SettingChange> {
        let share = self.model.as_ref().map_or(batch, |model| model.share_of_rank().round() as u64);
        let batches = share.div_ceil(batch.max(1)).max(1);
        let size = self.change(Setting::BatchSize, SettingValue::Count(batch));
        let number = self.change(Setting::GradientAccumulation, SettingValue::Count(batches));
        size.into_iter().chain(number).collect()
    }
}
