//! What would bring more than a plan, and changes what the run means: a larger step, 16 bits.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::{Goal, Pins, Precision, Provenance};
use serde::Serialize;

use super::config::DataSet;
use super::planned::Task;
use crate::error::Error;

/// A gain that is worth telling the user about.
const WORTHWHILE: f64 = 1.05;

/// What would bring more.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct More {
    /// The smallest step that fills the device; where the data set has fewer samples, as many as it has.
    pub larger_batch: Option<Gain>,
    /// The data set, where it has fewer samples than that step.
    pub data_set: Option<DataSet>,
    /// Mixed precision, where the config asks for f32 and the device has bf16.
    pub mixed_bf16: Option<Gain>,
    /// What the planner says: of steps that do not fill the device, and of loaders that limit it.
    pub advice: Vec<String>,
}

/// More samples per second.
#[derive(Clone, Copy, Debug, Serialize)]
pub(super) struct Gain {
    /// Samples of an optimizer step over all ranks.
    pub global_batch: u64,
    /// Samples per second, relative to the plan.
    pub samples_per_s_ratio: f64,
    pub provenance: Provenance,
}

impl More {
    /// What would bring more than this plan, which is for that goal.
    pub(super) fn than(plan: &Plan, task: &Task<'_>, facts: &DeviceFacts, goal: &Goal) -> Result<Self, Error> {
        // TF32 stays what it is: what it gains is not a larger batch's.
        let mut unpinned = Goal { pins: Pins::default(), ..goal.clone() };
        unpinned.pins.allow_tf32 = goal.pins.allow_tf32;
        let gain = |goal: &Goal| -> Result<Option<Gain>, Error> {
            let outcome = task.outcome(facts, goal)?;
            Ok(outcome.plan().map(|more| Gain {
                global_batch: more.schedule.global_batch,
                samples_per_s_ratio: more.samples_per_s / plan.samples_per_s,
                provenance: more.samples_per_s_provenance.max(plan.samples_per_s_provenance),
            }))
        };
        let now = plan.schedule.global_batch;
        let of_step = |samples: Option<u64>| gain(&Goal { global_batch: samples, ..unpinned.clone() });
        let is_whole = plan.schedule.micro_steps() == 1 && !task.workload.batch_statistics;
        let free = of_step(None)?;
        let free_samples = free.map_or(now, |gain| gain.global_batch);
        let data_set = task.config.data_set.as_ref().filter(|set| free_samples > set.samples && set.counts(now));
        let larger = free.filter(|gain| is_whole && gain.is_worth_saying() && gain.global_batch > now);
        let larger_batch = match data_set.filter(|_| larger.is_some()) {
            Some(set) => {
                let most = set.samples - set.samples % plan.schedule.world_size;
                let bounded = if most > now { of_step(Some(most))? } else { None };
                bounded.filter(Gain::is_worth_saying)
            }
            None => larger,
        };
        let is_f32 = plan.settings.precision == Precision::F32 && facts.has_bf16 && task.precision.is_none();
        let mixed =
            if is_f32 { gain(&Goal { precision: Some(Precision::MixedBf16), ..unpinned.clone() })? } else { None };
        // Where something is fixed the planner says less.
        unpinned.pins = Pins::default();
        let said = if data_set.is_some() { of_loaders(plan, &unpinned) } else { unpinned };
        let advice = if task.workload.batch_statistics { Vec::new() } else { advice(task, facts, &said)? };
        Ok(Self {
            larger_batch,
            data_set: data_set.filter(|_| larger.is_some()).cloned(),
            mixed_bf16: mixed.filter(Gain::is_worth_saying),
            advice,
        })
    }
}

impl Gain {
    fn is_worth_saying(&self) -> bool {
        self.samples_per_s_ratio >= WORTHWHILE
    }
}

/// The goal with something fixed that changes no speed: the planner then says nothing of larger steps.
fn of_loaders(plan: &Plan, goal: &Goal) -> Goal {
    let mut goal = goal.clone();
    goal.pins.num_workers = Some(plan.settings.num_workers);
    goal
}

fn advice(task: &Task<'_>, facts: &DeviceFacts, goal: &Goal) -> Result<Vec<String>, Error> {
    Ok(task.outcome(facts, goal)?.plan().map_or_else(Vec::new, |plan| plan.advice.clone()))
}
