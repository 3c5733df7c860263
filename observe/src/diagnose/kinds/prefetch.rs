//! Batches that are not ready in time, though the loader is fast enough.

use gpu_tuned_core::{Setting, SettingValue};

use super::batch::{Better, better};
use super::loader::{MARGIN, feeding, spare_cores};
use super::{Change, DiagnosisInput, Finding, Kind};
use crate::diagnose::model::{LITTLE, StepModel, Waiting, WhatIf};
use crate::diagnose::words::{percent, seconds};

/// Batches that are proposed to be prefetched at most: they take device memory.
const MAX_DEPTH: f64 = 64.0;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref()?;
    match model.waiting {
        Waiting::TakingTurns if model.parts.waited? <= model.parts.training() => turns(input, model),
        Waiting::Unsteady => unsteady(input, model),
        _ if model.parts.share(model.parts.upload) >= LITTLE => uploads(input, model),
        _ => None,
    }
}

/// A loader without workers.
fn turns(input: &DiagnosisInput<'_>, model: &StepModel) -> Option<Finding> {
    let waited = model.parts.waited?;
    let feeding = feeding(model, spare_cores(input, model));
    let change =
        Change::new(format!("num_workers = {:.0}: batches are prepared while the device computes", feeding.workers))
            .set(input.change(Setting::NumWorkers, SettingValue::Count(feeding.workers as u64)));
    let headline = format!(
        "loading and training take turns: no batch is prefetched, and {} of each step goes to loading",
        percent(model.parts.share(waited))
    );
    let how = format!(
        "the longer of {} loading and {} training, in place of their sum",
        seconds(feeding.step.loader),
        seconds(feeding.step.serial + feeding.step.training)
    );
    found(input, headline, change, feeding.step, &how, ("the loader", "waited_s_per_step", waited))
}

/// A queue that is too short for single slow batches.
fn unsteady(input: &DiagnosisInput<'_>, model: &StepModel) -> Option<Finding> {
    let (waited, longest) = (model.parts.waited?, model.parts.longest_wait);
    let fed = model.fed();
    // The queue has to last for the longest wait.
    let more = (MARGIN * longest / (fed.serial + fed.training)).ceil();
    let depth = (model.settings?.prefetch_depth as f64 + more).min(MAX_DEPTH) as u64;
    let change = Change::new(format!("prefetch_depth = {depth}: a queue that lasts for the longest wait"))
        .set(input.change(Setting::PrefetchDepth, SettingValue::Count(depth)));
    let headline = format!(
        "too few batches are prefetched: single batches are slow, and {} of the time goes to waiting for them",
        percent(model.parts.share(waited))
    );
    let how = "the step without the waiting: the loader is as fast on average";
    let finding = found(input, headline, change, fed, how, ("the loader", "waited_s_per_step", waited))?;
    let often = model.parts.waiting_steps;
    Some(finding.with_evidence(
        format!("{} of the steps wait, for up to {}", percent(often), seconds(longest)),
        [("waiting_steps_share", often), ("longest_wait_s", longest)],
    ))
}

/// Batches that the training thread uploads.
fn uploads(input: &DiagnosisInput<'_>, model: &StepModel) -> Option<Finding> {
    let upload = model.parts.upload;
    // Larger micro-batches of the same step make the room for prefetched batches, and gain more.
    if let (Some(Better::WithinStep(batch)), Some(curve)) = (better(input), input.curve())
        && model.gains_prefetch_room(&curve, batch, model.share_of_rank())
    {
        return None;
    }
    let change = Change::new(
        "let the loader upload batches to the device: `session.loader`, or `PrefetchLoader` with more `device_bytes`; the \
         next batch is uploaded while this one is trained on",
    );
    let was = model.as_is();
    let step = WhatIf { serial: was.serial - upload, ..was };
    let headline = format!(
        "the training thread uploads batches: {} of each step, in which the device waits",
        percent(model.parts.share(upload))
    );
    let how = format!("the step without the {} of the upload, which then overlaps with it", seconds(upload));
    found(input, headline, change, step, &how, ("uploads", "upload_s_per_step", upload))
}

fn found(
    input: &DiagnosisInput<'_>,
    headline: String,
    change: Change,
    step: WhatIf,
    how: &str,
    (what, name, amount): (&str, &'static str, f64),
) -> Option<Finding> {
    let model = input.model.as_ref()?;
    let prediction = input.predict(step, how)?;
    let words =
        format!("{} of each {} step for {what}, {}", seconds(amount), seconds(model.parts.seconds), input.range());
    let finding = Finding::new(Kind::PrefetchMissing, prediction.severity(), headline, change);
    Some(finding.with_evidence(words, [(name, amount), ("step_s", model.parts.seconds)]).with_prediction(prediction))
}
