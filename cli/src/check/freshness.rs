//! Measurements of another model or release than the present ones.

use std::collections::BTreeSet;

use gpu_tuned_core::grouped;
use gpu_tuned_core::measured::MeasuredOn;
use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_project::lock::{Lock, LockedWorkload, SpecChange};
use gpu_tuned_project::workspace::CargoLock;

use super::finding::{Finding, Level};
use crate::project::{Described, Project, WorkloadArgs};

/// Measured workloads without a description, which cannot be planned without building the program.
pub(super) fn undescribed(project: &Project, wanted: &WorkloadArgs) -> Vec<Finding> {
    let all = project.lock.workload.iter();
    let without = all.filter(|(name, locked)| {
        let is_meant = wanted.workload.as_ref().is_none_or(|only| only == *name) && wanted.structure.is_none();
        locked.described.is_none() && is_meant && !project.describes(name)
    });
    let files = (Lock::NAME, &project.config_file);
    let message = format!("neither {} nor {} describes it: it cannot be planned", files.0, files.1);
    without.map(|(name, _)| Finding::new(Level::Note, message.clone()).of(name)).collect()
}

/// A note that releases are not compared, where there is no `Cargo.lock`.
pub(super) fn without_releases(project: &Project, workloads: &[Described<'_>]) -> Option<Finding> {
    let is_measured = |described: &Described<'_>| described.locked.is_some_and(|locked| !locked.measured.on.is_empty());
    let is_open = project.cargo_lock.as_ref().is_none() && workloads.iter().any(is_measured);
    let message = format!("no {}: releases of Burn and CubeCL are not compared", CargoLock::NAME);
    is_open.then(|| Finding::new(Level::Note, message).with_fix("run `cargo generate-lockfile`"))
}

/// A finding for each reason why measurements are stale; or one that they are not.
pub(super) fn of(project: &Project, described: &Described<'_>) -> Vec<Finding> {
    let fix = format!("run `cargo gpu-tuned measure -p {}`", project.name());
    let stale = |message: String| Finding::new(Level::Stale, message).of(described.name).with_fix(&*fix);
    let Some(locked) = described.locked else {
        return vec![match project.lock.workload.get(described.name) {
            Some(LockedWorkload { described: Some(measured), .. }) => {
                stale(format!("another model was measured: {}", differences(described.spec, measured)))
            }
            Some(_) => stale("the measurement has no description to compare with".to_owned()),
            None if project.lock.older_format.is_some() => {
                stale(format!("an older release measured it: {} has another format", Lock::NAME))
            }
            None if project.lock.workload.is_empty() => {
                let message = "not measured: planned by declared or estimated costs";
                Finding::new(Level::Note, message).of(described.name).with_fix(&*fix)
            }
            None => stale(format!("not measured, though {} has others", Lock::NAME)),
        }];
    };
    let devices = &locked.measured.on;
    if devices.is_empty() {
        return vec![stale("the lock has no measurement of it".to_owned())];
    }
    let mut found: Vec<_> = devices
        .iter()
        .flat_map(|(name, on)| outdated(project, on).into_iter().map(move |why| (name, why)))
        .map(|(name, why)| stale(why).on(name))
        .collect();
    if found.is_empty() {
        found.extend(locked.measured.describe().map(|words| Finding::new(Level::Ok, words).of(described.name)));
    }
    found.extend(partial(locked).map(|finding| finding.of(described.name).with_fix(&*fix)));
    found.extend(another_model(described, locked.measured.parameters));
    found.extend(carried_over(project, described, locked));
    found
}

/// A note on each device that was measured in part.
fn partial(locked: &LockedWorkload) -> impl Iterator<Item = Finding> {
    let modes = locked.measured.on.iter().filter(|(_, on)| on.mode.values().any(|mode| mode.is_partial));
    let message = "a measurement ended early: sizes that were not tried are estimated";
    modes.map(move |(name, _)| Finding::new(Level::Note, message).on(name))
}

/// A note on a measured model whose parameters differ from the description by more than a tenth.
fn another_model(described: &Described<'_>, measured: u64) -> Option<Finding> {
    let derived = described.spec.workload().parameters.trained();
    let message = || {
        format!(
            "the description has {} parameters, and the measured model {}: costs without a measurement follow the description",
            grouped(derived),
            grouped(measured)
        )
    };
    let is_another = measured > 0 && derived.abs_diff(measured) > derived / 10;
    let fix = "correct the description, and measure again";
    is_another.then(|| Finding::new(Level::Note, message()).of(described.name).with_fix(fix))
}

fn outdated(project: &Project, on: &MeasuredOn) -> Vec<String> {
    let Some(cargo_lock) = project.cargo_lock.as_ref() else { return Vec::new() };
    let measured = [("burn", Some(&on.burn)), ("cubecl", on.cubecl.as_ref())];
    let differs = |(name, measured): (&str, Option<&String>)| {
        let now = cargo_lock.other_than(measured?, project.name(), name)?;
        Some(format!("measured with {name} {}, Cargo.lock has {now}", measured?))
    };
    measured.into_iter().filter_map(differs).collect()
}

/// A note on declared GPUs without measurements.
fn carried_over(project: &Project, described: &Described<'_>, locked: &LockedWorkload) -> Option<Finding> {
    let measured: BTreeSet<&str> = locked.measured.on.keys().map(String::as_str).collect();
    let declared = project.declared();
    let others: Vec<_> = declared.iter().map(ProfileId::as_str).filter(|id| !measured.contains(id)).collect();
    let message = match others.as_slice() {
        [] => return None,
        [one] => format!("not measured on {one}: its figures are scaled or estimated"),
        several => {
            format!("not measured on {} declared GPUs: their figures are scaled or estimated", several.len())
        }
    };
    Some(Finding::new(Level::Note, message).of(described.name))
}

/// Changed dimensions: `d_model is 512, was 256`.
fn differences(now: &WorkloadSpec, measured: &WorkloadSpec) -> String {
    let changes = SpecChange::between(measured, now).into_iter();
    changes
        .map(|change| format!("{} is {}, was {}", change.name, change.now, change.was))
        .collect::<Vec<_>>()
        .join(", ")
}
