//! The planner: from a device, a workload and a goal to settings, each with its reason.

mod calibration;
mod choice;
mod curve;
mod error;
mod expected;
mod explain;
mod filling;
mod global;
mod host;
mod memory;
mod misfit;
mod pools;
mod precision;
mod reference;
mod report;
mod schedule;
mod split;
mod time;

use serde::{Deserialize, Serialize};

pub use curve::curve;
pub use error::PlanError;
pub use expected::Expected;
pub use explain::{Considered, Explanation, Item, Outcome, TimeTerm, Verdict, explain};
pub use filling::{Filling, filling};
pub use host::ASSUMED_CORES;
pub use memory::{MemoryEstimate, largest_piece};
pub use misfit::{Misfit, Remedy, TooLarge};
pub use schedule::Schedule;

use crate::device::DeviceFacts;
use crate::workload::Workload;
use crate::{Goal, Pins, Provenance, Setting, Settings};
use choice::Choice;

/// Settings for one device, and why they are what they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// What the device is called.
    pub device: String,
    /// The values.
    pub settings: Settings,
    /// How an optimizer step is made of micro-batches.
    pub schedule: Schedule,
    /// The memory that training is predicted to take.
    pub memory: MemoryEstimate,
    /// Predicted samples per second on this device. Good for ranking, not for promises, unless it is measured.
    pub samples_per_s: f64,
    /// What stands behind [`samples_per_s`](Self::samples_per_s).
    pub samples_per_s_provenance: Provenance,
    /// The reason for each setting, in the order of [`Setting::ALL`].
    pub reasons: Vec<Reason>,
    /// Threads that train, where the device is a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_threads: Option<u64>,
    /// What the user could do for a better run, and the planner must not.
    pub advice: Vec<String>,
}

/// Why a setting has its value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The setting.
    pub setting: Setting,
    /// What stands behind the value.
    pub provenance: Provenance,
    /// The reason in words.
    pub why: String,
}

/// Plans a training run.
///
/// Enumerates checkpointing and the splits of the global batch, drops what does not fit into the memory left after the
/// headroom, and takes the smallest micro-batch within the goal's tolerance of the best predicted throughput, preferring
/// one without checkpointing and one that splits evenly. Loader settings follow from that.
///
/// Every number of micro-batches up to 64 is considered and every micro-batch of up to 64 samples, with that all of a step
/// of 4096 samples; between them doublings, and the largest that fits. Without a global batch, powers of two, and where they do not do as well
/// seven steps between them. What was measured at is always considered.
///
/// # Errors
///
/// When the goal contradicts itself, asks for a precision that cannot be carried out, or when no micro-batch fits: then with
/// every byte of the one that needs the least, and the cheapest change that would make it fit.
pub fn plan(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<Plan, PlanError> {
    if let Some((_, message)) = goal.mistakes().into_iter().next() {
        return Err(PlanError::Goal { message });
    }
    let goal = &goal.in_samples(workload)?;
    let precision = precision::decide(device, goal)?;
    let Some(choice) = Choice::find(device, workload, goal, precision.value)? else {
        return Err(PlanError::DoesNotFit(Box::new(Misfit::of(device, workload, goal, precision.value)?)));
    };
    let best = &choice.best;
    let workers = host::workers(device, workload, best.samples_per_s / goal.world_size as f64);
    #[allow(clippy::needless_update, reason = "the table may have settings that the planner does not plan yet")]
    let mut settings = Settings {
        batch_size: best.batch,
        gradient_accumulation: best.micro_steps,
        precision: precision.value,
        allow_tf32: device.has_tf32,
        gradient_checkpointing: best.checkpointing,
        prefetch_depth: host::prefetch_depth(workload, goal, best.batch),
        num_workers: workers.count,
        eval_batch_size: host::eval_batch(best, workload),
        ..Settings::DEFAULT
    };
    let reasons = [
        choice.batch_reason(workload, goal),
        choice.accumulation_reason(goal),
        precision.reason,
        precision::tf32_reason(device),
        choice.checkpointing_reason(workload),
        host::prefetch_reason(workload, goal, &settings),
        workers.reason,
        host::eval_reason(&settings),
    ];
    goal.pins.over(&mut settings);
    let advice = choice.advice(device, workload, goal, precision.value);
    Ok(Plan {
        device: device.name.clone(),
        cpu_threads: host::cpu_threads(device, &settings),
        settings,
        schedule: choice.schedule(goal),
        memory: best.memory.clone(),
        samples_per_s: best.samples_per_s,
        samples_per_s_provenance: best.provenance,
        advice: advice.into_iter().chain(workers.advice).collect(),
        reasons: Setting::ALL.map(|setting| Reason::new(setting, &goal.pins, &reasons)).into(),
    })
}

/// Returns true if the device has a plan.
pub fn fits(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> bool {
    let Ok(goal) = goal.in_samples(workload) else { return false };
    let precision = precision::decide(device, &goal);
    precision.is_ok_and(|precision| Choice::exists(device, workload, &goal, precision.value))
}

impl Plan {
    /// The same training run on a device that was looked at: its memory, of which the share `headroom` (0 to 1) is left
    /// alone, and no more workers than its host feeds.
    #[must_use]
    pub fn on(mut self, device: &DeviceFacts, workload: &Workload, headroom: f64) -> Self {
        self.device.clone_from(&device.name);
        self.memory.on(device, workload, headroom);
        let workers = host::workers(device, workload, self.samples_per_s / self.schedule.world_size as f64);
        self.settings.num_workers = self.settings.num_workers.min(workers.count);
        self.advice.extend(workers.advice);
        for reason in &mut self.reasons {
            if reason.setting == Setting::NumWorkers {
                *reason = workers.reason.clone();
            }
        }
        self
    }
}

impl Reason {
    /// The pin of a setting, the planner's reason, or the reason for the default value.
    fn new(setting: Setting, pins: &Pins, planned: &[Self]) -> Self {
        let found = planned.iter().find(|reason| reason.setting == setting);
        match (found, setting.row().unplanned) {
            _ if pins.has(setting) => Self::pinned(setting, "set in the config"),
            (Some(reason), _) => reason.clone(),
            (None, note) => {
                Self { setting, provenance: Provenance::Derived, why: note.unwrap_or("the default").to_owned() }
            }
        }
    }

    /// The reason for a value that the user pinned in `source`.
    pub fn pinned(setting: Setting, source: &str) -> Self {
        Self { setting, provenance: Provenance::Declared, why: setting.pinned_by(source) }
    }
}

#[cfg(test)]
mod fits_tests;
#[cfg(test)]
mod measured_tests;
#[cfg(test)]
mod replayed_tests;
#[cfg(test)]
mod tests;
