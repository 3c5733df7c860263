//! The device waits for the loader: too few workers, or a storage that is too slow for them.

use gpu_tuned_core::{Setting, SettingValue};

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::model::{StepModel, Waiting, WhatIf};
use crate::diagnose::words::{percent, seconds};

/// The planner's margin: workers deliver so much more than is taken.
pub(super) const MARGIN: f64 = 1.25;
/// More threads are not proposed.
const MOST_WORKERS: f64 = 64.0;
/// Workers that compute for less of their time wait for the storage.
const COMPUTING: f64 = 0.5;

/// A trainer that takes so many times less than the workers mostly waits.
const MOSTLY_WAITS: f64 = 2.0;

/// What it takes to feed the trainer.
pub(super) struct Feeding {
    pub workers: f64,
    /// Whether it is reached with them.
    pub is_enough: bool,
    pub step: WhatIf,
}

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
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
    // Who waits for the storage takes no processor.
    let most = if kind == Kind::SlowStorage { MOST_WORKERS } else { spare_cores(input, model) };
    let feeding = feeding(model, most);
    let (change, step, how) = if model.waiting == Waiting::SlowerBehind {
        behind(model)
    } else if feeding.workers > workers(model) && brings_much(model, &feeding) {
        with_workers(input, model, &feeding, kind)
    } else {
        prepared_once(model)
    };
    let prediction = input.predict(step, how)?;
    let share = model.parts.share(waited);
    let severity = Severity::of_gain(prediction.then / prediction.now).min(Severity::Warning);
    let mut finding = Finding::new(kind, severity, headline(kind, model, share), change).with_evidence(
        format!(
            "waits {} of each {} step for the next batch, {}",
            seconds(waited),
            seconds(model.parts.seconds),
            input.over()
        ),
        [("waited_s_per_step", waited), ("step_s", model.parts.seconds), ("waited_share", share)],
    );
    if let Some((computing, prepared)) = model.parts.prepared_cpu.zip(model.parts.prepared) {
        finding = finding.with_evidence(
            format!(
                "workers take {} for the samples of a step, {} of it computing",
                seconds(prepared),
                seconds(computing)
            ),
            [("prepared_s_per_step", prepared), ("prepared_cpu_s_per_step", computing)],
        );
    }
    if let Some(busy) = input.stats.busy() {
        finding =
            finding.with_evidence(format!("the GPU is busy {} of the time", percent(busy)), [("gpu_busy_share", busy)]);
    }
    if let Some((busy, cores)) = input.stats.busy_cores().zip(input.stats.cores()) {
        finding = finding.with_evidence(
            format!("the program keeps {busy:.1} of {cores:.0} processors busy"),
            [("busy_cores", busy), ("cores", cores)],
        );
    }
    Some(finding.with_prediction(prediction))
}

fn headline(kind: Kind, model: &StepModel, share: f64) -> String {
    let part = percent(share);
    match (kind, model.waiting) {
        (Kind::SlowStorage, _) => {
            format!("the storage limits training: {part} of each step waits for data that workers wait for")
        }
        (_, Waiting::TakingTurns) => {
            format!("the loader limits training: it has no workers, and {part} of each step waits for it")
        }
        _ => format!("the loader limits training: {part} of each step waits for it"),
    }
}

/// Workers now; where they are not known, one.
fn workers(model: &StepModel) -> f64 {
    model.settings.map_or(1.0, |settings| settings.num_workers as f64)
}

/// Processors that workers may have: all but the one that launches, and that one, too, where it would mostly wait for them.
pub(super) fn spare_cores(input: &DiagnosisInput<'_>, model: &StepModel) -> f64 {
    let Some(cores) = input.stats.cores() else { return MOST_WORKERS };
    let fed = model.fed();
    let alone = model.loader * workers(model).max(1.0) / cores;
    let launches = if alone >= MOSTLY_WAITS * (fed.serial + fed.training) { 0.0 } else { 1.0 };
    (cores - launches).clamp(1.0, MOST_WORKERS)
}

/// Workers that feed the trainer, at most so many.
pub(super) fn feeding(model: &StepModel, most: f64) -> Feeding {
    let fed = model.fed();
    // Of one worker: with none, the thread that asks is one.
    let work = model.loader * workers(model).max(1.0);
    let needed = (work / (fed.serial + fed.training) * MARGIN).ceil().max(1.0);
    let workers = needed.min(most.max(workers(model)));
    let step = WhatIf { loader: work / workers, ..fed };
    Feeding { workers, is_enough: step.loader <= step.serial + step.training, step }
}

/// Whether the workers that there can be make a difference.
fn brings_much(model: &StepModel, feeding: &Feeding) -> bool {
    model.rate(feeding.step) >= 1.1 * model.rate_now()
}

fn with_workers(
    input: &DiagnosisInput<'_>,
    model: &StepModel,
    feeding: &Feeding,
    kind: Kind,
) -> (Change, WhatIf, String) {
    let now = workers(model);
    let setting = input.change(Setting::NumWorkers, SettingValue::Count(feeding.workers as u64));
    let more = format!("num_workers = {:.0} (was {now:.0})", feeding.workers);
    let what = match kind {
        Kind::SlowStorage => format!(
            "keep the samples in memory or on a local disk (`CachedDataset`), or have more reads under way: {more}"
        ),
        _ if feeding.is_enough => more,
        _ => {
            format!("{more}; that is what the host has: prepare samples once and keep them (`CachedDataset`) for more")
        }
    };
    let fed = model.fed();
    let how = format!(
        "{} of one worker for the samples of a step, divided by {:.0} workers, against {} that the rest of the step takes",
        seconds(feeding.step.loader * feeding.workers),
        feeding.workers,
        seconds(fed.serial + fed.training)
    );
    (Change::new(what).set(setting), feeding.step, how)
}

/// The workers have time to spare.
fn behind(model: &StepModel) -> (Change, WhatIf, String) {
    let fed = model.fed();
    let what = "the workers idle: what comes behind them is slow, which is the copy to the device (smaller samples: bytes \
                in place of floats, converted there), or a batch strategy that fetches items in one place";
    let how = format!("the step without the waiting: {}", seconds(fed.serial + fed.training));
    (Change::new(what), fed, how)
}

/// The host has no more to give.
fn prepared_once(model: &StepModel) -> (Change, WhatIf, String) {
    let fed = model.fed();
    let what = "the host has no processors left for more workers: prepare samples once and keep them (`CachedDataset`), \
                make the batcher cheaper, or use a host with more cores";
    let how = format!("the step without the waiting: {}", seconds(fed.serial + fed.training));
    (Change::new(what), fed, how)
}

/// Whether workers hardly compute while the trainer waits for them.
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
