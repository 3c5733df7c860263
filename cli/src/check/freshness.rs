//! Whether what was measured of a workload is still what would be built.

use std::collections::BTreeSet;

use gpu_tuned_core::grouped;
use gpu_tuned_core::measured::MeasuredOn;
use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_project::cargo_lock::CargoLock;
use gpu_tuned_project::lock::{Lock, LockedWorkload};

use super::finding::{Finding, Level};
use crate::project::{Described, Project, WorkloadArgs};

/// Measured workloads that nothing describes: they cannot be planned without building the program.
pub(super) fn undescribed(project: &Project, wanted: &WorkloadArgs) -> Vec<Finding> {
    let all = project.lock().workload.iter();
    let without = all.filter(|(name, locked)| {
        let is_meant = wanted.workload.as_ref().is_none_or(|only| only == *name) && wanted.structure.is_none();
        locked.described.is_none() && is_meant && !project.describes(name)
    });
    let message = format!(
        "{} has no description of it, and neither has {}: it cannot be planned",
        Lock::NAME,
        project.config_file()
    );
    without.map(|(name, _)| Finding::new(Level::Note, message.clone()).of(name)).collect()
}

/// That there is nothing to hold the releases against that workloads were measured with.
pub(super) fn without_releases(project: &Project, workloads: &[Described<'_>]) -> Option<Finding> {
    let is_measured = |described: &Described<'_>| described.locked.is_some_and(|locked| !locked.measured.on.is_empty());
    let is_open = project.cargo_lock().is_none() && workloads.iter().any(is_measured);
    let message = format!("no {}: releases of Burn and CubeCL are not compared", CargoLock::NAME);
    is_open.then(|| Finding::new(Level::Note, message).mended_by("run `cargo generate-lockfile`"))
}

/// What is stale, one finding for each reason; or that nothing is.
pub(super) fn of(project: &Project, described: &Described<'_>) -> Vec<Finding> {
    let mend = format!("run `cargo gpu-tuned measure -p {}`", project.name());
    let stale = |message: String| Finding::new(Level::Stale, message).of(described.name).mended_by(&*mend);
    let Some(locked) = described.locked else {
        return vec![match project.lock().workload.get(described.name) {
            Some(LockedWorkload { described: Some(measured), .. }) => {
                stale(format!("what was measured is another model: {}", differences(described.spec, measured)))
            }
            Some(_) => stale("what was measured has no description to compare with".to_owned()),
            None if project.lock().workload.is_empty() => {
                let message = "not measured: planned by costs that are declared or derived";
                Finding::new(Level::Note, message).of(described.name).mended_by(&*mend)
            }
            None => stale(format!("not measured, though {} has others", Lock::NAME)),
        }];
    };
    let devices = &locked.measured.on;
    if devices.is_empty() {
        return vec![stale("nothing is on record of it but its name".to_owned())];
    }
    let mut found: Vec<_> = devices
        .iter()
        .flat_map(|(name, on)| outdated(project, on).into_iter().map(move |why| (name, why)))
        .map(|(name, why)| stale(why).on(name))
        .collect();
    if found.is_empty() {
        found.extend(locked.measured.in_words().map(|words| Finding::new(Level::Fine, words).of(described.name)));
    }
    found.extend(another_model(described, locked.measured.parameters));
    found.extend(carried_over(project, described, locked));
    found
}

/// That a model was measured which has other parameters than its description, by more than a tenth.
fn another_model(described: &Described<'_>, measured: u64) -> Option<Finding> {
    let derived = described.spec.workload().parameters.trained();
    let message = || {
        format!(
            "the description has {} parameters, and the model that was measured {}: what was not measured is planned by the \
             description",
            grouped(derived),
            grouped(measured)
        )
    };
    let is_another = measured > 0 && derived.abs_diff(measured) > derived / 10;
    let mend = "mend the description, and measure again";
    is_another.then(|| Finding::new(Level::Note, message()).of(described.name).mended_by(mend))
}

/// Releases that were measured and are no longer those of `Cargo.lock`.
fn outdated(project: &Project, on: &MeasuredOn) -> Vec<String> {
    let Some(cargo_lock) = project.cargo_lock() else { return Vec::new() };
    let measured = [("burn", Some(&on.burn)), ("cubecl", on.cubecl.as_ref())];
    let differs = |(name, measured): (&str, Option<&String>)| {
        let now = cargo_lock.other_than(measured?, project.name(), name)?;
        Some(format!("measured with {name} {}, Cargo.lock has {now}", measured?))
    };
    measured.into_iter().filter_map(differs).collect()
}

/// The declared GPUs on which nothing was measured.
fn carried_over(project: &Project, described: &Described<'_>, locked: &LockedWorkload) -> Option<Finding> {
    let measured: BTreeSet<&str> = locked.measured.on.keys().map(String::as_str).collect();
    let declared = project.declared();
    let others: Vec<_> = declared.iter().map(ProfileId::as_str).filter(|id| !measured.contains(id)).collect();
    let message = match others.as_slice() {
        [] => return None,
        [one] => format!("not measured on {one}: its figures are carried over or derived"),
        several => {
            format!("not measured on {} declared GPUs: their figures are carried over or derived", several.len())
        }
    };
    Some(Finding::new(Level::Note, message).of(described.name))
}

/// Each dimension that is not the same: `d_model is 512, was 256`.
fn differences(now: &WorkloadSpec, measured: &WorkloadSpec) -> String {
    let changes = now.changes_since(measured).into_iter();
    changes
        .map(|change| format!("{} is {}, was {}", change.name, change.now, change.was))
        .collect::<Vec<_>>()
        .join(", ")
}
