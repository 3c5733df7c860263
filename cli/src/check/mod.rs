//! `cargo gpu-tuned check`.

mod finding;
mod freshness;

use gpu_tuned_core::plan;
use gpu_tuned_core::plan::PlanError;
use serde::Serialize;

use crate::args::{Common, GpuNames};
use crate::error::Error;
use crate::output::{Answer, Code, Table};
use crate::project::{Described, Project, WorkloadArgs};
use crate::target::Target;
use finding::{Finding, Level};

/// Check that the files are valid and up to date, and that workloads fit the GPUs
///
/// Nothing is built. Measurements of a workload are stale if its dimensions changed since, or if Cargo.lock has another
/// release of Burn or `CubeCL` now. A workload is also stale if gpu-tuned.lock has measurements of other workloads only. A
/// Cargo.lock that cannot be read is an error; without one, a note reports that releases are not compared. Without a GPU,
/// those that the package declares as features are checked.
#[derive(Debug, clap::Args)]
#[command(after_help = include_str!("help.txt"))]
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
    let code = found.iter().map(|finding| finding.level.code()).max().unwrap_or(Code::Ok);
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
    found.extend(freshness::undescribed(project, wanted));
    found.extend(freshness::without_releases(project, &workloads));
    for described in &workloads {
        found.extend(freshness::of(project, described));
        found.extend(misfits(&targets, described));
    }
    Ok(found)
}

fn lines(found: &[Finding]) -> String {
    let mut table = Table::new(0, [""]);
    for finding in found {
        table.row(finding.level.style(), [finding.level.name().to_owned()], finding.describe());
    }
    table.print()
}

/// A finding for each GPU that a workload does not fit; or one that it fits all.
fn misfits(targets: &[Target], described: &Described<'_>) -> Vec<Finding> {
    if targets.is_empty() {
        let message = "the package declares no GPU as a feature: nothing to check against";
        return vec![Finding::new(Level::Note, message).of(described.name)];
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
