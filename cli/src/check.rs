//! `cargo gpu-tuned check`.

use std::collections::BTreeSet;

use anstyle::Style;
use gpu_tuned_core::grouped;
use gpu_tuned_core::measured::MeasuredOn;
use gpu_tuned_core::plan;
use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::source::FileError;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_project::lock::{Lock, LockedWorkload, SpecChange};
use gpu_tuned_project::workspace::CargoLock;
use serde::Serialize;

use crate::args::{Common, GpuNames};
use crate::error::Error;
use crate::output::{Answer, BAD, Code, FAINT, GOOD, MARKED, Table};
use crate::project::{Described, Project, WorkloadArgs};
use crate::target::Target;

/// Check that the files are valid and up to date, and that workloads fit the GPUs
///
/// Nothing is built. Measurements of a workload are stale if its dimensions changed since, or if Cargo.lock has another
/// release of Burn or `CubeCL` now. A workload is also stale if gpu-tuned.lock has measurements of other workloads only. A
/// Cargo.lock that cannot be read is an error; without one, a note reports that releases are not compared. Without a GPU,
/// those that the package declares as features are checked.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("check/help.txt"))]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    targets: GpuNames,
    #[command(flatten)]
    workload: WorkloadArgs,
}

#[derive(Serialize)]
struct Findings<'a> {
    findings: &'a [Finding],
}

/// Checks without building: the files, that measurements are of the present model, and that workloads fit the GPUs.
pub(crate) fn run(common: &Common, args: &CheckArgs) -> Result<Answer, Error> {
    let found = match Project::read(common) {
        Ok(project) => findings(&project, args)?,
        // With --json, mistakes are findings, too.
        Err(Error::Files { mistakes }) if common.json => mistakes.iter().map(|(mistake, _)| mistake.into()).collect(),
        Err(error @ Error::Read { .. }) if common.json => {
            vec![Finding::new(Level::Mistake, error.to_string())]
        }
        Err(error) => return Err(error),
    };
    let code = found.iter().map(|finding| finding.level.row().2).max().unwrap_or(Code::Ok);
    Ok(Answer::new(("check", common.json), &Findings { findings: &found }, || lines(&found), Vec::new(), code))
}

fn findings(project: &Project, args: &CheckArgs) -> Result<Vec<Finding>, Error> {
    let CheckArgs { targets, workload: wanted } = args;
    let targets =
        if targets.is_given() { Target::all_named(&project.profiles(), targets)? } else { Target::declared(project) };
    let mut found: Vec<Finding> = project.struct_mistakes().map(|(mistake, _)| mistake.into()).collect();
    let workloads = match project.workloads(wanted) {
        Err(Error::Files { .. }) if !found.is_empty() => return Ok(found),
        other => other?,
    };
    found.extend(project.unread().map(|unread| {
        let advice = "`cargo check` shows why; a struct that a macro makes is planned with --workload or --model";
        Finding::new(Level::Mistake, unread).with_fix(advice)
    }));
    found.extend(undescribed(project, wanted));
    found.extend(without_releases(project, &workloads));
    for described in &workloads {
        found.extend(freshness(project, described));
        found.extend(misfits(&targets, described));
    }
    Ok(found)
}

fn lines(found: &[Finding]) -> String {
    let mut table = Table::new(0, [""]);
    for finding in found {
        let (name, style, _) = finding.level.row();
        table.row(style, [name.to_owned()], finding.describe());
    }
    table.print()
}

/// A finding for each GPU that a workload does not fit; or one that it fits all.
fn misfits(targets: &[Target], described: &Described<'_>) -> Vec<Finding> {
    if targets.is_empty() {
        let message = "the package declares no GPU as a feature: nothing to check against";
        let note = Finding::new(Level::Note, message).with_fix("`cargo gpu-tuned init` declares GPUs");
        return vec![note.of(described.name)];
    }
    let mut found = Vec::new();
    for target in targets {
        let Err(error) =
            plan(&target.facts, &described.workload_on(&target.facts), &target.goal(described.goal.clone()))
        else {
            continue;
        };
        let finding = match &error {
            PlanError::DoesNotFit(misfit) => {
                let explain = format!("see `cargo gpu-tuned explain {} --workload {}`", target.name, described.name);
                let message = misfit.in_one_line();
                let message = message.trim_start_matches("does not fit: ");
                Finding::new(Level::Misfit, message).on(&target.name).with_fix(explain)
            }
            error if error.is_of_device() => Finding::new(Level::Misfit, error.to_string()).on(&target.name),
            // Other errors are mistakes in the goal.
            _ => return vec![Finding::new(Level::Mistake, error.to_string()).of(described.name)],
        };
        found.push(finding.of(described.name));
    }
    if found.is_empty() {
        let message = match targets {
            [target] => format!("fits {}", target.name),
            several => format!("fits all {} GPUs", several.len()),
        };
        found.push(Finding::new(Level::Ok, message).of(described.name));
    }
    found
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Finding {
    #[serde(rename = "kind")]
    pub level: Level,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    pub message: String,
    /// Command or change that fixes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fix: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    /// A file is wrong, or a goal in it.
    Mistake,
    /// A measurement is of another model or release.
    Stale,
    Misfit,
    /// A remark without consequences.
    Note,
    Ok,
}

impl Finding {
    fn new(level: Level, message: impl Into<String>) -> Self {
        Self { level, workload: None, target: None, message: message.into(), fix: None }
    }

    fn of(self, workload: &str) -> Self {
        Self { workload: Some(workload.to_owned()), ..self }
    }

    fn on(self, target: &str) -> Self {
        Self { target: Some(target.to_owned()), ..self }
    }

    fn with_fix(self, fix: impl Into<String>) -> Self {
        Self { fix: Some(fix.into()), ..self }
    }

    /// The finding without its level.
    fn describe(&self) -> String {
        let of = match (&self.workload, &self.target) {
            (Some(workload), Some(target)) => format!("{workload} on {target}: "),
            (Some(name), None) | (None, Some(name)) => format!("{name}: "),
            (None, None) => String::new(),
        };
        let fix = self.fix.as_ref().map_or_else(String::new, |fix| format!("; {fix}"));
        format!("{of}{}{fix}", self.message)
    }
}

impl From<&FileError> for Finding {
    fn from(mistake: &FileError) -> Self {
        Self::new(Level::Mistake, mistake.to_string())
    }
}

impl Level {
    /// Returns the name in messages, its style, and the exit code.
    const fn row(self) -> (&'static str, Style, Code) {
        match self {
            Self::Mistake => ("mistake", BAD, Code::Input),
            Self::Stale => ("stale", MARKED, Code::No),
            Self::Misfit => ("does not fit", BAD, Code::No),
            Self::Note => ("note", FAINT, Code::Ok),
            Self::Ok => ("ok", GOOD, Code::Ok),
        }
    }
}

/// Measured workloads without a description, which cannot be planned without building the program.
fn undescribed(project: &Project, wanted: &WorkloadArgs) -> Vec<Finding> {
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
fn without_releases(project: &Project, workloads: &[Described<'_>]) -> Option<Finding> {
    let is_measured = |described: &Described<'_>| described.locked.is_some_and(|locked| !locked.measured.on.is_empty());
    let is_open = project.cargo_lock.as_ref().is_none() && workloads.iter().any(is_measured);
    let message = format!("no {}: releases of Burn and CubeCL are not compared", CargoLock::NAME);
    is_open.then(|| Finding::new(Level::Note, message).with_fix("run `cargo generate-lockfile`"))
}

/// A finding for each reason why measurements are stale; or one that they are not.
fn freshness(project: &Project, described: &Described<'_>) -> Vec<Finding> {
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
