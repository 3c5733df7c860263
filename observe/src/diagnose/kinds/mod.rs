//! What is looked for, one file for each kind or two that are told apart by one question.

mod amp;
mod batch;
mod checkpointing;
mod fragmentation;
mod global_batch;
mod host_bound;
mod idle;
mod leak;
mod loader;
mod loop_time;
mod model_size;
mod not_finite;
mod other_process;
mod pcie;
mod power;
mod prefetch;
mod sync;
mod target;
mod tf32;
mod thermal;

use gpu_tuned_core::{Setting, SettingValue};

use super::curve::Curve;
use super::finding::{Change, Finding, Kind, Prediction, Quantity, SettingChange, Severity};
use super::model::{StepModel, WhatIf};
use super::run_stats::RunStats;
use super::words;

/// What findings are made from.
pub(super) struct DiagnosisInput<'a> {
    pub stats: RunStats<'a>,
    /// `None` where no steps were recorded, or too few.
    pub model: Option<StepModel>,
}

/// Looks for one thing.
pub(super) type Find = fn(&DiagnosisInput<'_>) -> Option<Finding>;

/// All that is looked for. Of what counts the same, the first here is the first to be read.
pub(super) const ALL: [Find; 21] = [
    leak::of_device,
    not_finite::find,
    loader::find,
    sync::find,
    other_process::find,
    batch::find,
    prefetch::find,
    loop_time::find,
    leak::of_host,
    target::find,
    thermal::find,
    power::find,
    pcie::find,
    host_bound::find,
    global_batch::find,
    checkpointing::find,
    fragmentation::find,
    amp::find,
    tf32::find,
    idle::find,
    model_size::find,
];

impl<'a> DiagnosisInput<'a> {
    pub(super) fn new(stats: RunStats<'a>) -> Self {
        let model = stats.steps.as_ref().ok().map(|steps| StepModel::of(&stats, steps));
        Self { stats, model }
    }

    /// The planner's curve for how the run trains.
    pub(super) fn curve(&self) -> Option<Curve<'_>> {
        let run = self.stats.run?;
        Curve::of(run, run.settings.is_some_and(|settings| settings.gradient_checkpointing))
    }

    /// The prediction for a step that is other than it was.
    fn predict(&self, step: WhatIf, how: impl Into<String>) -> Option<Prediction> {
        let model = self.model.as_ref()?;
        let (now, then) = (model.rate_now(), model.rate(step));
        then.is_finite().then(|| Prediction::new(Quantity::SamplesPerS, now, then, how))
    }

    /// `steps 12 to 480`.
    fn over(&self) -> String {
        self.stats.steps.as_ref().map_or_else(
            |_| format!("over {}", words::seconds(self.stats.span.1 - self.stats.span.0)),
            |steps| format!("steps {} to {}", steps.numbers.0, steps.numbers.1),
        )
    }

    /// A setting's change, where the settings are known.
    fn change(&self, setting: Setting, to: SettingValue) -> Option<SettingChange> {
        let settings = self.stats.run?.settings.as_ref()?;
        Some(SettingChange { setting, from: settings.get(setting), to })
    }

    /// Micro-batches of so many samples, with the accumulation that keeps the step.
    fn regrouping(&self, batch: u64) -> Vec<SettingChange> {
        let share = self.model.as_ref().map_or(batch, |model| model.share_of_rank().round() as u64);
        let batches = share.div_ceil(batch.max(1)).max(1);
        let size = self.change(Setting::BatchSize, SettingValue::Count(batch));
        let number = self.change(Setting::GradientAccumulation, SettingValue::Count(batches));
        size.into_iter().chain(number).collect()
    }
}
