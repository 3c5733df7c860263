//! Workloads that do not fit a declared GPU.

use gpu_tuned_core::plan;
use gpu_tuned_core::plan::PlanError;

use super::finding::{Finding, Level};
use crate::project::{Described, Project};
use crate::target::Target;

/// A finding for each GPU that a workload does not fit; or one that it fits all.
pub(super) fn of(project: &Project, described: &Described<'_>) -> Vec<Finding> {
    let targets = Target::declared(project);
    if targets.is_empty() {
        let message = "the package declares no GPU as a feature: nothing to check against";
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
                let message = misfit.in_one_line();
                let message = message.trim_start_matches("does not fit: ");
                Finding::new(Level::Misfit, message).on(&target.name).with_fix(explain)
            }
            PlanError::PrecisionUnsupported { .. } => Finding::new(Level::Misfit, error.to_string()).on(&target.name),
            // Other errors are mistakes in the goal.
            _ => return vec![Finding::new(Level::Mistake, error.to_string()).of(described.name)],
        };
        found.push(finding.of(described.name));
    }
    if found.is_empty() {
        let message = match targets.as_slice() {
            [target] => format!("fits {}", target.name),
            several => format!("fits all {} declared GPUs", several.len()),
        };
        found.push(Finding::new(Level::Ok, message).of(described.name));
    }
    found
}
