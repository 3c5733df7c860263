//! Loading and training take turns, or batches are not ready in time though the loader is fast enough.

use gpu_tuned_core::{Setting, SettingValue};

use super::batch::{Better, better};
use super::loader::{MARGIN, feeding, spare_cores};
use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::model::{LITTLE, StepModel, Waiting, WhatIf};
use crate::diagnose::words::{percent, seconds};

/// More batches than these are not kept ahead: they take memory of the device.
const MOST_AHEAD: f64 = 64.0;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref()?;
    match model.waiting {
        Waiting::TakingTurns if model.parts.waited? <= model.parts.training() => turns(input, model),
        Waiting::Unsteady => unsteady(input, model),
        _ if model.parts.share(model.parts.upload) >= LITTLE => uploads(input, model),
        _ => None,
    }
}

/// There are no workers.
fn turns(input: &DiagnosisInput<'_>, model: &StepModel) -> Option<Finding> {
    let waited = model.parts.waited?;
    let feeding = feeding(model, spare_cores(input, model));
    let change =
        Change::new(format!("num_workers = {:.0}: batches are prepared while the device computes", feeding.workers))
            .set(input.change(Setting::NumWorkers, SettingValue::Count(feeding.workers as u64)));
    let headline = format!(
        "loading and training take turns: no batch is prepared ahead, and {} of each step goes to loading",
        percent(model.parts.share(waited))
    );
    let how = format!(
        "the longer of {} loading and {} training, in place of their sum",
        seconds(feeding.step.loader),
        seconds(feeding.step.serial + feeding.step.training)
    );
    found(input, headline, change, feeding.step, &how, ("the loader", "waited_s_per_step", waited))
}

/// The queue is short for single batches that take long.
fn unsteady(input: &DiagnosisInput<'_>, model: &StepModel) -> Option<Finding> {
    let (waited, longest) = (model.parts.waited?, model.parts.longest_wait);
    let fed = model.fed();
    // What is ahead has to last for the longest wait.
    let more = (MARGIN * longest / (fed.serial + fed.training)).ceil();
    let depth = (model.settings?.prefetch_depth as f64 + more).min(MOST_AHEAD) as u64;
    let change = Change::new(format!("prefetch_depth = {depth}: batches ahead that last for the longest wait"))
        .set(input.change(Setting::PrefetchDepth, SettingValue::Count(depth)));
    let headline = format!(
        "too few batches are prepared ahead: single ones take long, and {} of the time goes to waiting for them",
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

/// Batches arrive in the host's memory.
fn uploads(input: &DiagnosisInput<'_>, model: &StepModel) -> Option<Finding> {
    let upload = model.parts.upload;
    // Larger micro-batches of the same step bring the room for it, and more.
    if let (Some(Better::WithinStep(batch)), Some(curve)) = (better(input), input.curve())
        && model.comes_to_be_brought(&curve, batch, model.share_of_rank())
    {
        return None;
    }
    let change = Change::new(
        "let the loader bring batches to the device: `session.loader`, or `PrefetchLoader` with more `device_bytes`; the \
         next one is uploaded while this one is trained on",
    );
    let was = model.as_is();
    let step = WhatIf { serial: was.serial - upload, ..was };
    let headline = format!(
        "batches are uploaded by the thread that trains: {} of each step, in which the device waits",
        percent(model.parts.share(upload))
    );
    let how = format!("the step without the {} of the upload, which happens beside it", seconds(upload));
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
    let severity = Severity::of_gain(prediction.then / prediction.now);
    let words =
        format!("{} of each {} step for {what}, {}", seconds(amount), seconds(model.parts.seconds), input.over());
    let finding = Finding::new(Kind::PrefetchMissing, severity, headline, change);
    Some(finding.with_evidence(words, [(name, amount), ("step_s", model.parts.seconds)]).with_prediction(prediction))
}
