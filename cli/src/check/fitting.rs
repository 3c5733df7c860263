//! Whether the declared GPUs hold a workload.

use gpu_tuned_core::plan;
use gpu_tuned_core::plan::PlanError;

use super::finding::{Finding, Level};
use crate::plan::misfit_in_words;
use crate::project::{Described, Project};
use crate::targets::Target;

/// What does not fit, one finding each; or that all fits.
pub(super) fn of(project: &Project, described: &Described<'_>) -> Vec<Finding> {
    let targets = Target::declared(project);
    if targets.is_empty() {
        let message = "the package declares no GPU as a feature: nothing to hold it against";
        return vec![Finding::new(Level::Note, message).of(described.name)];
    }
    let mut found = Vec::new();
    for target in &targets {
        let Err(error) =
            plan(&target.facts, &described.workload_on(&target.facts), &target.goal(described.goal.clone()))
        else {
            continue;
        };
        let finding = match &error {
            PlanError::DoesNotFit(misfit) => {
                let explain = format!("see `cargo gpu-tuned explain {} --workload {}`", target.name, described.name);
                Finding::new(Level::Misfit, misfit_in_words(misfit)).on(&target.name).mended_by(explain)
            }
            PlanError::PrecisionUnsupported { .. } => Finding::new(Level::Misfit, error.to_string()).on(&target.name),
            // What no target could mend is a mistake of the goal.
            _ => return vec![Finding::new(Level::Mistake, error.to_string()).of(described.name)],
        };
        found.push(finding.of(described.name));
    }
    if found.is_empty() {
        let message = match targets.as_slice() {
            [target] => format!("fits {}", target.name),
            several => format!("fits all {} declared GPUs", several.len()),
        };
        found.push(Finding::new(Level::Fine, message).of(described.name));
    }
    found
}
