//! Micro-batches far below those that keep the device busy.

use super::{Change, Finding, Kind, Seen, Severity};
use crate::diagnose::words::{rate, times};

/// A larger micro-batch is worth a word when the device gets so much faster by it.
const WORTH_IT: f64 = 1.15;

pub(super) fn find(seen: &Seen<'_>) -> Option<Finding> {
    let (model, run, curve) = (seen.model.as_ref()?, seen.picture.run?, seen.curve()?);
    let now = model.parts.micro_batch;
    // Within the step that was asked for; where that leaves nothing to gain, beyond it.
    let share = model.share_of_rank().max(run.global_batch.unwrap_or(0) as f64 / run.world_size.max(1) as f64);
    let most = if run.batch_statistics { now } else { share };
    let gain = |batch: f64| curve.seconds(now) / curve.seconds(batch);
    let within = curve.knee(most as u64, |point| point.fits).map(|point| point.batch as f64);
    let beyond = curve.knee(u64::MAX, |point| point.fits).map(|point| point.batch as f64);
    let is_worth = |batch: &f64| *batch > now && gain(*batch) >= WORTH_IT;
    let keeps_step = within.filter(is_worth);
    let batch = keeps_step.or(beyond.filter(is_worth))?;
    let step = model.regrouped(&curve, batch);
    let how = format!(
        "the planner expects {} a rank at {now:.0} and {} at {batch:.0} ({}), applied to the step that was recorded",
        rate(1.0 / curve.seconds(now)),
        rate(1.0 / curve.seconds(batch)),
        curve.provenance()
    );
    let prediction = seen.predicts(step, how)?;
    let change = if keeps_step.is_some() {
        let what = format!("batch_size = {batch:.0} (was {now:.0}); the samples of an optimizer step stay the same");
        Change::of(what).set(seen.regrouping(batch as u64))
    } else {
        let global = batch * model.ranks;
        let why = if run.batch_statistics { "; the model's batch statistics change with it" } else { "" };
        Change::of(format!(
            "global_batch = {global:.0} (was {:.0}): another training run, whose learning rate has to fit it{why}",
            model.parts.samples
        ))
    };
    let severity = match Severity::of_gain(prediction.then / prediction.now) {
        // Another training run is not to be had for a tenth.
        severity if keeps_step.is_some() => severity,
        Severity::Critical => Severity::Warning,
        _ => Severity::Hint,
    };
    let headline = format!(
        "micro-batches of {now:.0} are far too small: the device takes samples {} as fast in those of {batch:.0}",
        times(gain(batch))
    );
    let finding = Finding::new(Kind::BatchTooSmall, severity, headline, change).seen(
        format!("{} in micro-batches of {now:.0}, {}", rate(model.rate_now()), seen.over()),
        [("samples_per_s", model.rate_now()), ("micro_batch", now), ("better_micro_batch", batch)],
    );
    Some(with_memory(seen, finding).predicting(prediction))
}

/// How much memory is left unused.
fn with_memory(seen: &Seen<'_>, finding: Finding) -> Finding {
    let steps = seen.picture.steps.as_ref().ok();
    let reserved = steps.and_then(|steps| steps.memory.iter().filter_map(|memory| memory.reserved).max());
    let budget = seen.picture.run.and_then(|run| run.memory_budget_bytes);
    match reserved.zip(budget) {
        Some((reserved, budget)) => finding.seen(
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
