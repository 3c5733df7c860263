//! Notes below the tables, and the outcome of the files.

use gpu_tuned_core::grouped;
use gpu_tuned_optimize::{ChangeState, Role, Tuned};

use super::super::copies::FileOutcome;
use super::Report;
use crate::output::wrapped;

/// The notes on all targets, and the outcome of the files.
pub(super) fn remarks(report: &Report<'_>) -> String {
    let is_single = report.targets.len() == 1;
    let of_targets = report.targets.iter().flat_map(|one| {
        let notes = on_target(report, &one.tuned, is_single);
        notes.into_iter().map(|note| (Some(one.tuned.target.as_str()), note))
    });
    let general = [unknown_loading(report), by_hand(report), no_counterpart(report)];
    let general = general.into_iter().flatten().map(|note| (None, note));
    let all: String = grouped_by_text(of_targets.chain(general))
        .into_iter()
        .map(|(note, targets)| {
            let of = if is_single || targets.is_empty() { String::new() } else { format!("{}: ", targets.join(", ")) };
            format!("note: {}\n", wrapped(&format!("{of}{note}"), 6))
        })
        .collect();
    let gap = if all.is_empty() { "" } else { "\n" };
    format!("{gap}{all}\n{}", files(report))
}

/// Texts in the order of their first occurrence, each with its subjects.
pub(super) fn grouped_by_text<'a>(all: impl Iterator<Item = (Option<&'a str>, String)>) -> Vec<(String, Vec<&'a str>)> {
    let mut grouped: Vec<(String, Vec<&str>)> = Vec::new();
    for (subject, text) in all {
        match grouped.iter_mut().find(|(known, _)| *known == text) {
            Some((_, subjects)) => subjects.extend(subject),
            None => grouped.push((text, subject.into_iter().collect())),
        }
    }
    grouped
}

fn on_target(report: &Report<'_>, tuned: &Tuned, is_single: bool) -> Vec<String> {
    let mut notes = tuned.warnings.clone();
    notes.extend(host(report, tuned));
    if report.config.tf32 == Some(false) {
        let key = report.config.key(Role::Tf32).unwrap_or("tf32");
        notes.push(format!("`{key}` is off and stays off: TF32 would round the factors of f32 products to ten bits"));
    }
    notes.extend(accumulation(tuned));
    notes.extend(fits_in_pytorch(tuned));
    // For several targets, a table has these.
    if is_single {
        notes.extend(tuned.suggestions.advice.clone());
        notes.extend(bounded_batch(tuned));
        notes.extend(mixed(tuned));
    }
    notes
}

/// Gain of a key for accumulation, where the config has none.
fn accumulation(tuned: &Tuned) -> Option<String> {
    let split = tuned.with_accumulation.as_ref()?;
    let (batch, steps) = (split.settings.batch_size, split.schedule.micro_steps());
    let remedy = "have the program read gradient_accumulation, and add the key with --add";
    let Some(plan) = &tuned.plan else { return Some(format!("{steps} micro-batches of {batch} would fit: {remedy}")) };
    let ratio = split.samples_per_s / plan.samples_per_s;
    // Chosen, not measured.
    (ratio >= 1.02)
        .then(|| format!("a step in {steps} micro-batches of {batch} would run {ratio:.2}x as fast: {remedy}"))
}

/// The config as it is, where it fits in PyTorch only.
fn fits_in_pytorch(tuned: &Tuned) -> Option<String> {
    let (needed, available) = (tuned.pytorch?.before_bytes, tuned.before.available_bytes?);
    let is_only_there = !tuned.before.fits && needed <= available;
    is_only_there.then(|| format!("in PyTorch the config as it is needs {needed} by an estimate, which would fit"))
}

/// The machine whose CPU cores count for the workers.
fn host(report: &Report<'_>, tuned: &Tuned) -> Option<String> {
    let workers = tuned.changes.iter().find(|change| change.setting == "num_workers")?;
    let (key, cores) = (&workers.key, tuned.host.cores);
    if tuned.host.assumed {
        return None;
    }
    let shared = if report.step.ranks > 1 { " for each rank" } else { "" };
    let why = "which has such a GPU; memory and speed are the profile's";
    (!report.args.targets.here.is_given())
        .then(|| format!("`{key}` is planned for {cores} CPU cores{shared} of this machine, {why}"))
}

/// Gain of a larger step, where the data set is too small for one that fills the device.
fn bounded_batch(tuned: &Tuned) -> Option<String> {
    let set = tuned.suggestions.data_set.as_ref()?;
    let (samples, key, target) = (grouped(set.samples), &set.key, &tuned.target);
    let now = tuned.plan.as_ref().map_or_else(String::new, |plan| plan.schedule.global_batch.to_string());
    Some(match tuned.suggestions.larger_batch {
        Some(gain) => format!(
            "a global batch of {now} does not fill {target}. The data set of {samples} samples (`{key}`) allows {}, which would \
             run about {:.1}x as many samples per second ({}). It is kept, because it changes the results of the run",
            gain.global_batch, gain.samples_per_s_ratio, gain.provenance
        ),
        None => format!(
            "a global batch of {now} does not fill {target}. The data set of {samples} samples (`{key}`) allows no batch that is \
             noticeably faster"
        ),
    })
}

fn mixed(tuned: &Tuned) -> Option<String> {
    let gain = tuned.suggestions.mixed_bf16?;
    Some(format!(
        "mixed_bf16 would run about {:.2}x as many samples per second ({}), and changes rounding: --precision mixed_bf16",
        gain.samples_per_s_ratio, gain.provenance
    ))
}

/// A note that the figures leave out an unknown time of loading.
fn unknown_loading(report: &Report<'_>) -> Option<String> {
    let is_unknown = report.config.workers == Some(0) && report.training.workload.sample.host_ms.is_none();
    let key = report.config.key(Role::Workers).unwrap_or("num_workers");
    is_unknown.then(|| {
        format!(
            "with `{key}` = 0 training waits for each batch to be prepared. The figures leave that time out, as it is unknown: \
             give --dim host_ms_per_sample=MS, or measure it"
        )
    })
}

/// A note on settings without a key, which the plan counts on.
fn by_hand(report: &Report<'_>) -> Option<String> {
    let changes = report.targets.iter().flat_map(|one| &one.tuned.changes);
    let mut keys: Vec<_> = changes.filter(|change| change.state == ChangeState::ByHand).map(|it| &it.key).collect();
    keys.sort_unstable();
    keys.dedup();
    let key = keys.first()?;
    let all = keys.iter().map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
    Some(if report.config.dialect.adds_on_request {
        format!(
            "{all}: the program may not read such a key; a Burn `Config` ignores keys without a field. Have the program read \
             {key}, and add the key with --add"
        )
    } else {
        format!("{all}: the plan counts on it, and it is not written: add it to the config by hand")
    })
}

/// A note on switches that Burn lacks.
fn no_counterpart(report: &Report<'_>) -> Option<String> {
    let keys: Vec<_> = report.config.keys(Role::NoCounterpart).map(|key| format!("`{key}`")).collect();
    (!keys.is_empty()).then(|| format!("{}: no counterpart in Burn, unchanged", keys.join(", ")))
}

/// The outcome of each file, by outcome.
fn files(report: &Report<'_>) -> String {
    let outcomes = report.targets.iter().map(|one| {
        let Some(copy) = &one.copy else {
            return (Some(one.tuned.target.as_str()), "not written, because it does not fit".to_owned());
        };
        let outcome = match (FileOutcome::new(copy, report.file), report.args.write.dry_run) {
            (FileOutcome::Unchanged, _) => "unchanged",
            (FileOutcome::Copied, true) => "dry run, nothing to change",
            (FileOutcome::Copied, false) => "copied unchanged",
            (FileOutcome::Changed, true) => "dry run, not written",
            (FileOutcome::Changed, false) => "written",
        };
        (Some(copy.name.as_str()), outcome.to_owned())
    });
    let line = |(outcome, names): (String, Vec<&str>)| wrapped(&format!("{outcome}: {}", names.join(", ")), 0) + "\n";
    grouped_by_text(outcomes).into_iter().map(line).collect()
}
