//! A device that waits for data: the loader is too slow, or its batches are not ready in time.

use gpu_tuned_core::{Setting, SettingValue};

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::finding::{percent, seconds};
use crate::diagnose::kinds::settings::{Better, better};
use crate::diagnose::model::{LITTLE, StepModel, Waiting, WhatIf};

/// Samples that workers deliver over those that the trainer takes: the planner's margin.
const MARGIN: f64 = 1.25;
/// Workers that are proposed at most.
const MAX_WORKERS: f64 = 64.0;
/// CPU time of workers over their time, below which they wait for storage.
const COMPUTING: f64 = 0.5;
/// Loading time over the rest of the step, above which the training thread mostly waits.
const MOSTLY_WAITS: f64 = 2.0;
/// Speed-up for which more workers are proposed.
const WORTH_IT: f64 = 1.1;

/// A step with enough workers.
struct Feeding {
    pub workers: f64,
    /// The workers keep up with the trainer.
    pub is_enough: bool,
    pub step: WhatIf,
}

pub(super) fn slow_loader(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref()?;
    let waited = model.parts.waited.unwrap_or(0.0);
    let is_loader = match model.waiting {
        Waiting::Slower | Waiting::SlowerBehind => true,
        Waiting::TakingTurns => waited > model.parts.training(),
        Waiting::Little | Waiting::Unsteady => false,
    };
    if !is_loader {
        return None;
    }
    let kind = if waits_for_storage(input, model) { Kind::SlowStorage } else { Kind::LoaderBound };
    // A worker that waits for storage takes no core.
    let most = if kind == Kind::SlowStorage { MAX_WORKERS } else { spare_cores(input, model) };
    let feeding = feeding(model, most);
    let (change, step, how) = if feeding.workers > workers(model)
        && model.waiting != Waiting::SlowerBehind
        && model.rate(feeding.step) >= WORTH_IT * model.rate_now()
    {
        with_workers(input, model, &feeding, kind)
    } else {
        without_waiting(model)
    };
    let prediction = input.predict(step, how)?;
    let share = model.parts.share(waited);
    let severity = prediction.severity().min(Severity::Warning);
    let finding = Finding::new(kind, severity, headline(kind, model, share), change).with_evidence(
        format!(
            "waits {} of each {} step for the next batch, {}",
            seconds(waited),
            seconds(model.parts.seconds),
            input.range()
        ),
        [("waited_s_per_step", waited), ("step_s", model.parts.seconds), ("waited_share", share)],
    );
    Some(with_usage(input, model, finding).with_prediction(prediction))
}

/// Adds the time of the workers, of the GPU and of the CPU cores.
fn with_usage(input: &DiagnosisInput<'_>, model: &StepModel, mut finding: Finding) -> Finding {
    if let Some((computing, prepared)) = model.parts.prepared_cpu.zip(model.parts.prepared) {
        let (in_all, of_it) = (seconds(prepared), seconds(computing));
        finding = finding.with_evidence(
            format!("workers take {in_all} for the samples of a step, {of_it} of it computing"),
            [("prepared_s_per_step", prepared), ("prepared_cpu_s_per_step", computing)],
        );
    }
    if let Some(busy) = input.stats.busy() {
        let words = format!("the GPU is busy {} of the time", percent(busy));
        finding = finding.with_evidence(words, [("gpu_busy_share", busy)]);
    }
    finding.with_busy_cores(input.stats.busy_cores().zip(input.stats.cores()))
}

fn headline(kind: Kind, model: &StepModel, share: f64) -> String {
    let part = percent(share);
    match (kind, model.waiting) {
        (Kind::SlowStorage, _) => {
            format!("storage limits training: {part} of each step waits for data that workers wait for")
        }
        (_, Waiting::TakingTurns) => {
            format!("the loader limits training: it has no workers, and {part} of each step waits for it")
        }
        _ => format!("the loader limits training: {part} of each step waits for it"),
    }
}

/// Recorded workers; 1 where they are unknown.
fn workers(model: &StepModel) -> f64 {
    model.settings.map_or(1.0, |settings| settings.num_workers as f64)
}

/// Returns the CPU cores for workers: all but the one that launches, and that one too where it would mostly wait.
fn spare_cores(input: &DiagnosisInput<'_>, model: &StepModel) -> f64 {
    let Some(cores) = input.stats.cores() else { return MAX_WORKERS };
    let fed = model.fed();
    let alone = model.loader * workers(model).max(1.0) / cores;
    let launches = if alone >= MOSTLY_WAITS * (fed.serial + fed.training) { 0.0 } else { 1.0 };
    (cores - launches).clamp(1.0, MAX_WORKERS)
}

/// Returns the workers that keep up with the trainer, at most `most`.
fn feeding(model: &StepModel, most: f64) -> Feeding {
    let fed = model.fed();
    // Time of one worker: without workers, the thread that asks is one.
    let work = model.loader * workers(model).max(1.0);
    let needed = (work / (fed.serial + fed.training) * MARGIN).ceil().max(1.0);
    let workers = needed.min(most.max(workers(model)));
    let step = WhatIf { loader: work / workers, ..fed };
    Feeding { workers, is_enough: step.loader <= step.serial + step.training, step }
}

fn with_workers(
    input: &DiagnosisInput<'_>,
    model: &StepModel,
    feeding: &Feeding,
    kind: Kind,
) -> (Change, WhatIf, String) {
    let setting = input.change(Setting::NumWorkers, SettingValue::Count(feeding.workers as u64));
    let was = model.settings.map(|settings| format!(" (was {})", settings.num_workers)).unwrap_or_default();
    let more = format!("num_workers = {:.0}{was}", feeding.workers);
    let what = match kind {
        Kind::SlowStorage => format!(
            "keep the samples in memory or on a local disk (`CachedDataset`), or have more reads under way: {more}"
        ),
        _ if feeding.is_enough => more,
        _ => format!(
            "{more}; the host has no more cores: for more, prepare samples once and keep them (`CachedDataset`)"
        ),
    };
    let fed = model.fed();
    let how = format!(
        "{} of one worker for the samples of a step{}, divided by {:.0} workers, against {} for the rest of the step",
        seconds(feeding.step.loader * feeding.workers),
        if model.settings.is_some() { "" } else { ", if there is one worker now" },
        feeding.workers,
        seconds(fed.serial + fed.training)
    );
    (Change::new(what).set(setting), feeding.step, how)
}

/// More workers would not help: the slow part comes behind them, or the host has no cores for more.
fn without_waiting(model: &StepModel) -> (Change, WhatIf, String) {
    let what = if model.waiting == Waiting::SlowerBehind {
        "the workers idle, so the slow part comes behind them: the copy to the device (smaller samples: bytes in place of \
         floats, converted there), or a batch strategy that fetches items in one place"
    } else {
        "the host has no cores left for more workers: prepare samples once and keep them (`CachedDataset`), make the batcher \
         cheaper, or use a host with more cores"
    };
    let fed = model.fed();
    let how = format!("the step without the waiting: {}", seconds(fed.serial + fed.training));
    (Change::new(what), fed, how)
}

/// Returns whether workers hardly compute while the trainer waits for them.
fn waits_for_storage(input: &DiagnosisInput<'_>, model: &StepModel) -> bool {
    if model.waiting == Waiting::SlowerBehind {
        return false;
    }
    if let Some((computing, prepared)) = model.parts.prepared_cpu.zip(model.parts.prepared) {
        return computing < COMPUTING * prepared;
    }
    let Some(busy) = input.stats.busy_cores() else { return false };
    let computing = (busy * model.parts.seconds - model.host).max(0.0);
    computing < COMPUTING * model.loader * workers(model).max(1.0)
}

/// Batches that are proposed to be prefetched at most: they take device memory.
const MAX_DEPTH: f64 = 64.0;

pub(super) fn prefetch_missing(input: &DiagnosisInput<'_>) -> Option<Finding> {
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
