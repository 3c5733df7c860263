//! What would bring more than a plan, and changes what the run means: a larger step, 16 bits.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::{Goal, Pins, Precision, Provenance};
use serde::Serialize;

use super::planned::Task;
use crate::error::Error;

/// A gain that is worth telling the user about.
const WORTHWHILE: f64 = 1.05;

/// What would bring more.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct More {
    /// The smallest step that fills the device.
    pub larger_batch: Option<Gain>,
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
        // Where something is fixed the planner says less.
        let unpinned = Goal { pins: Pins::default(), ..goal.clone() };
        let gain = |goal: &Goal| -> Result<Option<Gain>, Error> {
            let outcome = task.outcome(facts, goal)?;
            let more = outcome.plan().map(|more| Gain {
                global_batch: more.schedule.global_batch,
                samples_per_s_ratio: more.samples_per_s / plan.samples_per_s,
                provenance: more.samples_per_s_provenance.max(plan.samples_per_s_provenance),
            });
            Ok(more.filter(|gain| gain.samples_per_s_ratio >= WORTHWHILE))
        };
        let is_whole = plan.schedule.micro_steps() == 1 && !task.workload.batch_statistics;
        let larger = if is_whole { gain(&Goal { global_batch: None, ..unpinned.clone() })? } else { None };
        let is_f32 = plan.settings.precision == Precision::F32 && facts.has_bf16 && task.precision.is_none();
        let mixed =
            if is_f32 { gain(&Goal { precision: Some(Precision::MixedBf16), ..unpinned.clone() })? } else { None };
        let advice = if task.workload.batch_statistics { Vec::new() } else { said(task, facts, &unpinned)? };
        Ok(Self {
            larger_batch: larger.filter(|gain| gain.global_batch > plan.schedule.global_batch),
            mixed_bf16: mixed,
            advice,
        })
    }
}

fn said(task: &Task<'_>, facts: &DeviceFacts, goal: &Goal) -> Result<Vec<String>, Error> {
    Ok(task.outcome(facts, goal)?.plan().map_or_else(Vec::new, |plan| plan.advice.clone()))
}
