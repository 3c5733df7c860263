//! Micro-batches far below those that keep the device busy.

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::model::StepModel;
use crate::diagnose::words::{rate, times};

/// A larger micro-batch is worth a word when the device gets so much faster by it.
const WORTH_IT: f64 = 1.15;

/// A micro-batch that is worth a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Better {
    /// Within the step that was asked for.
    WithinStep(f64),
    /// Within it, for a model whose batch statistics change with it.
    OtherStatistics(f64),
    /// Beyond it: a larger step.
    BeyondStep(f64),
}

impl Better {
    pub(super) fn batch(self) -> f64 {
        match self {
            Self::WithinStep(batch) | Self::OtherStatistics(batch) | Self::BeyondStep(batch) => batch,
        }
    }
}

/// The micro-batch that keeps the device busy, where the run's is far below.
pub(super) fn better(input: &DiagnosisInput<'_>) -> Option<Better> {
    let (model, run, curve) = (input.model.as_ref()?, input.stats.run?, input.curve()?);
    let now = model.parts.micro_batch;
    // Within the step that was asked for; where that leaves nothing to gain, beyond it.
    let share = model.share_of_rank().max(run.global_batch.unwrap_or(0) as f64 / run.world_size.max(1) as f64);
    let knee = |most: u64| curve.knee(most, |point| point.fits).map(|point| point.batch as f64);
    let is_worth = |batch: &f64| *batch > now && curve.seconds(now) / curve.seconds(*batch) >= WORTH_IT;
    let within = if run.batch_statistics { Better::OtherStatistics } else { Better::WithinStep };
    let within = knee(share as u64).filter(is_worth).map(within);
    within.or_else(|| knee(u64::MAX).filter(is_worth).map(Better::BeyondStep))
}

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, curve) = (input.model.as_ref()?, input.curve()?);
    let better = better(input)?;
    let (now, batch) = (model.parts.micro_batch, better.batch());
    let step = model.regrouped(&curve, batch);
    let how = format!(
        "the planner expects {} a rank at {now:.0} and {} at {batch:.0} ({}), applied to the step that was recorded",
        rate(1.0 / curve.seconds(now)),
        rate(1.0 / curve.seconds(batch)),
        curve.provenance()
    );
    let prediction = input.predict(step, how)?;
    let severity = match Severity::of_gain(prediction.then / prediction.now) {
        severity if matches!(better, Better::WithinStep(_)) => severity,
        // Another training run is not to be had for a tenth.
        Severity::Critical => Severity::Warning,
        _ => Severity::Hint,
    };
    let headline = format!(
        "micro-batches of {now:.0} are far too small: the device takes samples {} as fast in those of {batch:.0}",
        times(curve.seconds(now) / curve.seconds(batch))
    );
    let finding = Finding::new(Kind::BatchTooSmall, severity, headline, change(input, model, better)).with_evidence(
        format!("{} in micro-batches of {now:.0}, {}", rate(model.rate_now()), input.over()),
        [("samples_per_s", model.rate_now()), ("micro_batch", now), ("better_micro_batch", batch)],
    );
    Some(with_memory(input, finding).with_prediction(prediction))
}

fn change(input: &DiagnosisInput<'_>, model: &StepModel, better: Better) -> Change {
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

/// How much memory is left unused.
fn with_memory(input: &DiagnosisInput<'_>, finding: Finding) -> Finding {
    let steps = input.stats.steps.as_ref().ok();
    let reserved = steps.and_then(|steps| steps.memory.iter().filter_map(|memory| memory.reserved).max());
    let budget = input.stats.run.and_then(|run| run.memory_budget_bytes);
    match reserved.zip(budget) {
        Some((reserved, budget)) => finding.with_evidence(
            format!(
                "the pools hold {} of the {} that they may",
                super::words::bytes(reserved as f64),
                super::words::bytes(budget as f64)
            ),
            [("reserved_bytes", reserved as f64), ("memory_budget_bytes", budget as f64)],
        ),
        None => finding,
    }
}
