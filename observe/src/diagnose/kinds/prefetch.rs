//! Loading and training take turns, or batches are not ready in time though the loader is fast enough.

use gpu_tuned_core::{Setting, SettingValue};

use super::batch::{Better, better};
use super::loader::{MARGIN, feeding, spare_cores};
use super::{Change, Finding, Kind, Seen, Severity};
use crate::diagnose::model::{LITTLE, StepModel, Waiting, WhatIf};
use crate::diagnose::words::{percent, seconds};

/// More batches than these are not kept ahead: they take memory of the device.
const MOST_AHEAD: f64 = 64.0;

pub(super) fn find(seen: &Seen<'_>) -> Option<Finding> {
    let model = seen.model.as_ref()?;
    match model.waiting {
        Waiting::TakingTurns if model.parts.waited? <= model.parts.training() => turns(seen, model),
        Waiting::Unsteady => unsteady(seen, model),
        _ if model.parts.share(model.parts.upload) >= LITTLE => uploads(seen, model),
        _ => None,
    }
}

/// There are no workers.
fn turns(seen: &Seen<'_>, model: &StepModel) -> Option<Finding> {
    let waited = model.parts.waited?;
    let feeding = feeding(model, spare_cores(seen, model));
    let change =
        Change::of(format!("num_workers = {:.0}: batches are prepared while the device computes", feeding.workers))
            .set(seen.change(Setting::NumWorkers, SettingValue::Count(feeding.workers as u64)));
    let headline = format!(
        "loading and training take turns: no batch is prepared ahead, and {} of each step goes to loading",
        percent(model.parts.share(waited))
    );
    let how = format!(
        "the longer of {} loading and {} training, in place of their sum",
        seconds(feeding.step.loader),
        seconds(feeding.step.serial + feeding.step.training)
    );
    found(seen, headline, change, feeding.step, &how, ("the loader", "waited_s_per_step", waited))
}

/// The queue is short for single batches that take long.
fn unsteady(seen: &Seen<'_>, model: &StepModel) -> Option<Finding> {
    let (waited, longest) = (model.parts.waited?, model.parts.longest_wait);
    let fed = model.fed();
    // What is ahead has to last for the longest wait.
    let more = (MARGIN * longest / (fed.serial + fed.training)).ceil();
    let depth = (model.settings?.prefetch_depth as f64 + more).min(MOST_AHEAD) as u64;
    let change = Change::of(format!("prefetch_depth = {depth}: batches ahead that last for the longest wait"))
        .set(seen.change(Setting::PrefetchDepth, SettingValue::Count(depth)));
    let headline = format!(
        "too few batches are prepared ahead: single ones take long, and {} of the time goes to waiting for them",
        percent(model.parts.share(waited))
    );
    let how = "the step without the waiting: the loader is as fast on average";
    let finding = found(seen, headline, change, fed, how, ("the loader", "waited_s_per_step", waited))?;
    let often = model.parts.waiting_steps;
    Some(finding.seen(
        format!("{} of the steps wait, for up to {}", percent(often), seconds(longest)),
        [("waiting_steps_share", often), ("longest_wait_s", longest)],
    ))
}

/// Batches arrive in the host's memory.
fn uploads(seen: &Seen<'_>, model: &StepModel) -> Option<Finding> {
    let upload = model.parts.upload;
    // Larger micro-batches of the same step bring the room for it, and more.
    if let (Some(Better::WithinStep(batch)), Some(curve)) = (better(seen), seen.curve())
        && model.comes_to_be_brought(&curve, batch, model.share_of_rank())
    {
        return None;
    }
    let change = Change::of(
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
    found(seen, headline, change, step, &how, ("uploads", "upload_s_per_step", upload))
}

fn found(
    seen: &Seen<'_>,
    headline: String,
    change: Change,
    step: WhatIf,
    how: &str,
    (what, name, amount): (&str, &'static str, f64),
) -> Option<Finding> {
    let model = seen.model.as_ref()?;
    let prediction = seen.predicts(step, how)?;
    let severity = Severity::of_gain(prediction.then / prediction.now);
    let words =
        format!("{} of each {} step for {what}, {}", seconds(amount), seconds(model.parts.seconds), seen.over());
    let finding = Finding::new(Kind::PrefetchMissing, severity, headline, change);
    Some(finding.seen(words, [(name, amount), ("step_s", model.parts.seconds)]).predicting(prediction))
}
