//! `cargo gpu-tuned check`.

mod finding;
mod fitting;
mod freshness;

use gpu_tuned_core::source::without_controls;

use crate::args::{CheckArgs, Common};
use crate::error::Error;
use crate::project::{Project, WorkloadArgs};
use crate::table::{Align, Table};
use crate::{Answer, Code};
use finding::{Finding, Level};

/// Checks what can be checked without building: the files, that what was measured is still what would be built, and that
/// the declared GPUs hold the workloads.
pub(crate) fn run(common: &Common, args: &CheckArgs) -> Result<Answer, Error> {
    let found = match Project::read(common) {
        Ok(project) => findings(&project, &args.workload)?,
        // A program that reads the findings reads these, too.
        Err(Error::Files { mistakes }) if common.json => mistakes.iter().map(|(mistake, _)| mistake.into()).collect(),
        Err(error @ Error::Read { .. }) if common.json => {
            vec![Finding::new(Level::Mistake, without_controls(&error.to_string()))]
        }
        Err(error) => return Err(error),
    };
    let code = found.iter().map(|finding| finding.level.code()).max().unwrap_or(Code::Fine);
    let text = if common.json {
        format!("{}\n", serde_json::to_string_pretty(&found).expect("BUG: findings are always JSON"))
    } else {
        lines(&found)
    };
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
    let mut table = Table::new(0, [("", Align::Left)]);
    for finding in found {
        table.row(finding.level.style(), [finding.level.name().to_owned()], finding.in_words());
    }
    table.print()
}
