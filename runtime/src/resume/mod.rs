//! Going on with a saved run: whether it is still the same one, and what is the same about it.

mod error;
mod same_run;

use std::fmt;

use gpu_tuned_core::plan::{Plan, Schedule};
use gpu_tuned_core::{Setting, SettingValue};
use serde::Serialize;

pub use error::ResumeError;
pub(crate) use same_run::check;

use crate::saved::SavedRun;

/// Comparison of a resumed run with the saved one. Global batch, precision and model are always equal.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Resumed {
    /// Name of the device on which the run was saved.
    pub saved_on: String,
    /// The saved schedule.
    pub then: Schedule,
    /// The schedule now.
    pub now: Schedule,
    /// The other settings that are not as saved.
    pub changes: Vec<ResumedChange>,
}

/// A setting that is not as it was saved.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ResumedChange {
    /// The setting.
    pub setting: Setting,
    /// Its value in the saved run.
    pub then: SettingValue,
    /// The value that is used.
    pub now: SettingValue,
}

impl Resumed {
    pub(crate) fn new(saved: &SavedRun, plan: &Plan) -> Self {
        let others = Setting::ALL.into_iter().filter(|setting| !setting.row().cuts_step);
        let change = |setting: Setting| ResumedChange {
            setting,
            then: saved.settings().get(setting),
            now: plan.settings.get(setting),
        };
        Self {
            saved_on: saved.device().to_owned(),
            then: *saved.schedule(),
            now: plan.schedule,
            changes: others.map(change).filter(|change| change.then != change.now).collect(),
        }
    }

    /// Returns true if every rank cuts its steps as before.
    pub fn is_same_schedule(&self) -> bool {
        self.then == self.now
    }
}

/// One line, and another one for changed settings.
impl fmt::Display for Resumed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (then, now) = (self.then.sum(), self.now.sum());
        let global_batch = self.now.global_batch;
        if self.is_same_schedule() {
            write!(f, "resumed: same schedule as saved (global batch {global_batch} = {now})")?;
        } else {
            write!(f, "resumed: same global batch as saved ({global_batch}), as {now} instead of {then}")?;
        }
        let changes: Vec<_> = self.changes.iter().map(ToString::to_string).collect();
        if changes.is_empty() { Ok(()) } else { write!(f, "\n  not as saved: {}", changes.join(", ")) }
    }
}

impl fmt::Display for ResumedChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let note = if self.setting.row().changes_results { " (changes results)" } else { "" };
        write!(f, "{} {} -> {}{note}", self.setting, self.then, self.now)
    }
}

/// Returns true if an optimizer step has the same micro-batches, whichever rank computes them.
pub(crate) fn same_micro_batches(one: &Schedule, other: &Schedule) -> bool {
    let counted = |schedule: &Schedule| {
        let samples = schedule.samples_per_rank();
        let (full, rest) = (samples / schedule.micro_batch, samples % schedule.micro_batch);
        (full * schedule.world_size, if rest == 0 { None } else { Some((rest, schedule.world_size)) })
    };
    // Unequal shares of the other ranks are unknown.
    let is_equal = one.share.is_none() && other.share.is_none();
    one == other || is_equal && one.micro_batch == other.micro_batch && counted(one) == counted(other)
}
