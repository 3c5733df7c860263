//! Micro-batches and optimizer steps that are too small.

use gpu_tuned_core::{Setting, SettingValue};

use super::{Change, DiagnosisInput, Finding, Kind, Severity, WhatIf};
use crate::diagnose::model::StepModel;
use crate::diagnose::words::{bytes, rate, seconds, times};

/// Speed-up of the device for which a larger micro-batch is worth a finding.
const WORTH_IT: f64 = 1.15;
/// Samples of a step over the global batch that are enough: the last steps of epochs may have fewer.
const REACHED: f64 = 0.9;

/// A better micro-batch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Better {
    /// Within the requested step.
    WithinStep(f64),
    /// Within the requested step, for a model whose batch statistics depend on the micro-batch.
    OtherStatistics(f64),
    /// Larger than the requested step.
    BeyondStep(f64),
}

impl Better {
    pub(super) fn batch(self) -> f64 {
        match self {
            Self::WithinStep(batch) | Self::OtherStatistics(batch) | Self::BeyondStep(batch) => batch,
        }
    }
}

/// Returns the micro-batch that keeps the device busy, where the run's is far below.
pub(super) fn better(input: &DiagnosisInput<'_>) -> Option<Better> {
    let (model, run, curve) = (input.model.as_ref()?, input.stats.run?, input.curve()?);
    let now = model.parts.micro_batch;
    // Within the requested step; larger where that gains nothing.
    let share = model.share_of_rank().max(run.global_batch.unwrap_or(0) as f64 / run.world_size.max(1) as f64);
    let near_best = |most: u64| curve.smallest_near_best(most, |point| point.fits).map(|point| point.batch as f64);
    let is_worth = |batch: &f64| *batch > now && curve.seconds(now) / curve.seconds(*batch) >= WORTH_IT;
    let within = if run.batch_statistics { Better::OtherStatistics } else { Better::WithinStep };
    let within = near_best(share as u64).filter(is_worth).map(within);
    within.or_else(|| near_best(u64::MAX).filter(is_worth).map(Better::BeyondStep))
}

/// Micro-batches far below the size that keeps the device busy.
pub(super) fn too_small(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, curve) = (input.model.as_ref()?, input.curve()?);
    let better = better(input)?;
    let (now, batch) = (model.parts.micro_batch, better.batch());
    let step = model.regrouped(&curve, batch);
    let how = format!(
        "the planner expects {} a rank at {now:.0} and {} at {batch:.0} ({}), applied to the recorded step",
        rate(1.0 / curve.seconds(now)),
        rate(1.0 / curve.seconds(batch)),
        curve.provenance()
    );
    let prediction = input.predict(step, how)?;
    let severity = match prediction.severity() {
        severity if matches!(better, Better::WithinStep(_)) => severity,
        // The change makes another training run, which needs more than a tenth to be worth it.
        Severity::Critical => Severity::Warning,
        _ => Severity::Hint,
    };
    let headline = format!(
        "micro-batches of {now:.0} are far too small: the device takes samples {} as fast in those of {batch:.0}",
        times(curve.seconds(now) / curve.seconds(batch))
    );
    let finding = Finding::new(Kind::BatchTooSmall, severity, headline, larger(input, model, better)).with_evidence(
        format!("{} in micro-batches of {now:.0}, {}", rate(model.rate_now()), input.range()),
        [("samples_per_s", model.rate_now()), ("micro_batch", now), ("better_micro_batch", batch)],
    );
    Some(with_memory(input, finding).with_prediction(prediction))
}

fn larger(input: &DiagnosisInput<'_>, model: &StepModel, better: Better) -> Change {
    let (now, batch) = (model.parts.micro_batch, better.batch());
    let of_batch = format!("batch_size = {batch:.0} (was {now:.0}); the samples of an optimizer step stay the same");
    match better {
        Better::WithinStep(_) => Change::new(of_batch).set(input.regrouping(batch as u64)),
        Better::OtherStatistics(_) => {
            let what = format!("{of_batch}, and the model's batch statistics change: another training run");
            Change::new(what).set(input.regrouping(batch as u64))
        }
        Better::BeyondStep(_) => Change::new(format!(
            "global_batch = {:.0} (was {:.0}): another training run, whose learning rate has to fit it",
            batch * model.ranks,
            model.parts.samples
        )),
    }
}

/// Adds the memory that is left unused.
fn with_memory(input: &DiagnosisInput<'_>, finding: Finding) -> Finding {
    let budget = input.stats.run.and_then(|run| run.memory_budget_bytes);
    let Some((reserved, budget)) = input.stats.reserved().zip(budget) else { return finding };
    let (reserved, budget) = (reserved as f64, budget as f64);
    finding.with_evidence(
        format!("the pools reserve {} of a budget of {}", bytes(reserved), bytes(budget)),
        [("reserved_bytes", reserved), ("memory_budget_bytes", budget)],
    )
}

/// Optimizer steps over fewer samples than the global batch.
pub(super) fn no_accumulation(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, run) = (input.model.as_ref()?, input.stats.run?);
    let (asked, taken) = (run.global_batch? as f64, model.parts.samples);
    if taken >= REACHED * asked {
        return None;
    }
    let of_rank = asked / run.world_size.max(1) as f64;
    // The trainer cuts its batch into planned micro-batches, which may be larger than the batch.
    let now = model.parts.micro_batch.max(1.0);
    let planned = run.settings.map_or(now, |settings| (settings.batch_size as f64).min(of_rank).max(now));
    let batches = (of_rank / planned).ceil().max(1.0);
    let slower = input.curve().map_or(1.0, |curve| curve.seconds(planned) / curve.seconds(now));
    let larger = asked / taken;
    let was = model.as_is();
    // The optimizer and the program's loop come once for all samples.
    let once = model.parts.update;
    let step = WhatIf {
        samples: asked,
        loader: was.loader * larger,
        serial: was.serial + model.parts.upload * (larger - 1.0),
        training: once + (was.training - once) * larger * slower,
        ..was
    };
    let how = format!(
        "{larger:.1} times the samples in micro-batches of {planned:.0}, with one update of {} for all of them",
        seconds(once)
    );
    let prediction = input.predict(step, how)?;
    let headline =
        format!("optimizer steps take {taken:.0} samples in place of {asked:.0}: it is another training run");
    let change = Change::new(format!(
        "give the trainer batches of {of_rank:.0} samples, as `session.loader` does: the trainer cuts them into \
         {batches:.0} micro-batches and accumulates"
    ))
    .set(input.change(Setting::GradientAccumulation, SettingValue::Count(batches as u64)));
    let words = format!("{taken:.0} samples in a step over all ranks, {}", input.range());
    let finding = Finding::new(Kind::NoAccumulation, Severity::Warning, headline, change);
    let figures = [("samples_per_step", taken), ("global_batch", asked)];
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}
