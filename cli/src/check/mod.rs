//! `cargo gpu-tuned check`.

mod finding;
mod fitting;
mod freshness;

use gpu_tuned_core::source::without_controls;

use crate::args::{Common, help};
use crate::error::Error;
use crate::output::{Answer, Code, Table, pretty};
use crate::project::{Project, WorkloadArgs};
use finding::{Finding, Level};

/// Check that the files are valid and up to date, and that workloads fit the GPUs
///
/// Nothing is built. A workload is stale when gpu-tuned.lock has others and not this one, when its dimensions in
/// gpu-tuned.toml are no longer the measured ones, and when it was measured with other releases of Burn or `CubeCL`
/// than Cargo.lock has. A Cargo.lock that cannot be read is a mistake; without one, a note says that releases are not
/// compared.
#[derive(Debug, clap::Args)]
#[command(after_help = help!(
    "cargo gpu-tuned check --workload digits",
    0: "everything holds",
    1: "something is stale, or does not fit a declared GPU",
    2: "bad input or usage, such as a mistake in a file"
))]
pub(crate) struct CheckArgs {
    #[command(flatten)]
    workload: WorkloadArgs,
}

/// Checks without building: the files, that measurements are of the present model, and that workloads fit the GPUs.
pub(crate) fn run(common: &Common, args: &CheckArgs) -> Result<Answer, Error> {
    let found = match Project::read(common) {
        Ok(project) => findings(&project, &args.workload)?,
        // With --json, mistakes are findings, too.
        Err(Error::Files { mistakes }) if common.json => mistakes.iter().map(|(mistake, _)| mistake.into()).collect(),
        Err(error @ Error::Read { .. }) if common.json => {
            vec![Finding::new(Level::Mistake, without_controls(&error.to_string()))]
        }
        Err(error) => return Err(error),
    };
    let code = found.iter().map(|finding| finding.level.code()).max().unwrap_or(Code::Ok);
    let text = if common.json { pretty(&found) } else { lines(&found) };
    Ok(Answer { text, notes: Vec::new(), code })
}

fn findings(project: &Project, wanted: &WorkloadArgs) -> Result<Vec<Finding>, Error> {
    let mut found: Vec<Finding> = project.struct_mistakes().map(|(mistake, _)| mistake.into()).collect();
    let workloads = match project.workloads(wanted) {
        Err(Error::Files { .. }) if !found.is_empty() => return Ok(found),
        other => other?,
    };
    found.extend(freshness::undescribed(project, wanted));
    found.extend(freshness::without_releases(project, &workloads));
    for described in &workloads {
        found.extend(freshness::of(project, described));
        found.extend(fitting::of(project, described));
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
