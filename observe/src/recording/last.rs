//! Which of several runs is meant, and whose steps are whose.

use crate::recording::{Record, Run, StepRecord};

/// The run that began last, wherever it stands.
pub(crate) fn last_run(records: &[Record]) -> Option<&Run> {
    let runs = records.iter().filter_map(|record| match record {
        Record::Run(run) => Some(&**run),
        _ => None,
    });
    runs.max_by(|a, b| a.at.total_cmp(&b.at))
}

/// Whether a step is of the run's process, as far as it is said: older versions did not, and then the clock alone tells.
pub(crate) fn is_of_process(run: &Run, step: &StepRecord) -> bool {
    run.pid == 0 || step.pid.is_none_or(|pid| pid == run.pid)
}

/// Whether a step is one of the run's; every step is where no run is recorded.
pub(crate) fn is_of(run: Option<&Run>, step: &StepRecord) -> bool {
    run.is_none_or(|run| step.at >= run.at && is_of_process(run, step))
}
