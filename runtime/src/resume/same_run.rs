//! Checks that the config still describes the saved run. The plan checks everything that depends on the device.

use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, Precision, PrecisionPolicy, Setting, SettingValue};

use super::ResumeError;
use crate::saved::SavedRun;
use crate::tuned::Tuned;

/// Compares the saved run with a config, of which `spec` and `workload` are the model and `goal` has the pins.
pub(crate) fn check<C: Tuned>(
    saved: &SavedRun,
    config: &C,
    spec: &WorkloadSpec,
    workload: &Workload,
    goal: &Goal,
) -> Result<(), ResumeError> {
    if saved.config() != C::BUILT.config {
        return Err(ResumeError::Config { then: saved.config().to_owned(), now: C::BUILT.config.to_owned() });
    }
    let changes = saved.model_changes(spec);
    if !changes.is_empty() {
        return Err(ResumeError::Model { changes });
    }
    let then = saved.schedule().global_batch;
    // The build's own batch may change between builds: without a request, the saved one applies.
    let asked = config.asked().in_samples(workload).unwrap_or_default();
    if let Some(now) = asked.global_batch.filter(|now| *now != then) {
        return Err(ResumeError::GlobalBatch { then, now });
    }
    let then = saved.schedule().drop_last;
    if goal.drop_last != then {
        return Err(ResumeError::DropLast { then, now: goal.drop_last });
    }
    check_precision(saved, goal)?;
    let then = saved.settings().batch_size;
    match goal.pins.batch_size.filter(|now| *now != then) {
        None => Ok(()),
        Some(now) => Err(ResumeError::Pinned {
            setting: Setting::BatchSize,
            then: SettingValue::Count(then),
            now: SettingValue::Count(now),
        }),
    }
}

fn check_precision(saved: &SavedRun, goal: &Goal) -> Result<(), ResumeError> {
    let then = saved.settings().precision;
    let asked = goal.precision.unwrap_or(PrecisionPolicy::Fixed(Precision::F32));
    // The planner's choice depends on the device: the saved run keeps its own.
    let Some(now) = goal.pins.precision.or(asked.fixed()) else { return Ok(()) };
    // A run whose device could not meet a request resumes as it was trained.
    let gave_way = goal.pins.precision.is_none() && goal.precision == saved.goal().precision;
    if now == then || gave_way { Ok(()) } else { Err(ResumeError::Precision { then, now }) }
}
