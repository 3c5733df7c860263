//! The search for each kind of finding. A file has the kinds that one question tells apart.

mod gpu;
mod loader;
mod memory;
mod settings;
mod steps;

use gpu_tuned_core::{Setting, SettingValue};

use super::finding::{Change, Finding, Kind, Prediction, Quantity, SettingChange, Severity, seconds};
use super::model::{Curve, StepModel, WhatIf};
use super::run_stats::RunStats;

pub(super) struct DiagnosisInput<'a> {
    pub stats: RunStats<'a>,
    /// `None` without steps, or with too few.
    pub model: Option<StepModel>,
}

/// A search for one or two kinds.
pub(super) type Find = fn(&DiagnosisInput<'_>) -> Option<Finding>;

/// All searches. Among findings of equal weight, the first of these is listed first.
pub(super) const ALL: [Find; 26] = [
    memory::device_leak,
    steps::not_finite,
    loader::slow_loader,
    steps::loss_sync,
    memory::other_process,
    steps::slow_rank,
    settings::batch_too_small,
    loader::prefetch_missing,
    steps::slow_loop,
    memory::host_leak,
    settings::no_cuda,
    settings::wrong_target,
    gpu::low_clocks,
    gpu::low_memory_clock,
    gpu::power,
    gpu::thermal,
    gpu::pcie,
    steps::host_bound,
    settings::no_accumulation,
    settings::needless_checkpointing,
    memory::fragmentation,
    settings::no_library,
    settings::no_amp,
    settings::no_tf32,
    gpu::idle,
    gpu::model_too_small,
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
            |_| format!("over {}", seconds(self.stats.span.1 - self.stats.span.0)),
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
