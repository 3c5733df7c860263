//! The last of several runs, and the steps that belong to it.

use super::{Record, Run, StepRecord};

/// Returns the run that began last, wherever it stands in the file.
pub(crate) fn last_run(records: &[Record]) -> Option<&Run> {
    let runs = records.iter().filter_map(|record| match record {
        Record::Run(run) => Some(&**run),
        _ => None,
    });
    runs.max_by(|a, b| a.at.total_cmp(&b.at))
}

/// Returns whether the run's process took the step. Steps and runs of older versions name no process and always match.
pub(crate) fn is_of_process(run: &Run, step: &StepRecord) -> bool {
    run.pid == 0 || step.pid.is_none_or(|pid| pid == run.pid)
}

/// Returns whether the run took the step. Without a recorded run every step matches.
pub(crate) fn belongs_to(run: Option<&Run>, step: &StepRecord) -> bool {
    run.is_none_or(|run| step.at >= run.at && is_of_process(run, step))
}
