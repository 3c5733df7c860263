//! Faster alternatives that change the results of a run: a larger step, 16 bits.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::{Goal, Pins, Precision, Provenance};
use serde::Serialize;

use crate::data_set::DataSet;
use crate::error::OptimizeError;
use crate::task::Task;

/// Smallest speedup that is reported: chosen, not measured.
const MIN_SPEEDUP: f64 = 1.05;

/// Faster alternatives that change the results of a run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Suggestions {
    /// The smallest step that fills the device; of a smaller data set, a step of all its samples.
    pub larger_batch: Option<Gain>,
    /// The data set, where it is smaller than the step that fills the device.
    pub data_set: Option<DataSet>,
    /// Mixed precision, where the config uses fp32 and the device has bf16.
    pub mixed_bf16: Option<Gain>,
    /// The planner's advice on small steps and slow loaders.
    pub advice: Vec<String>,
}

/// A speedup.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Gain {
    /// Samples of an optimizer step over all ranks.
    pub global_batch: u64,
    /// Samples per second, relative to the plan.
    pub samples_per_s_ratio: f64,
    /// Provenance of the ratio.
    pub provenance: Provenance,
}

impl Suggestions {
    /// Alternatives to a plan with this goal.
    pub(crate) fn new(plan: &Plan, task: &Task<'_>, facts: &DeviceFacts, goal: &Goal) -> Result<Self, OptimizeError> {
        // Keeps TF32, whose gain is none of a larger batch.
        let mut unpinned = Goal { pins: Pins::default(), ..goal.clone() };
        unpinned.pins.allow_tf32 = goal.pins.allow_tf32;
        let gain = |goal: &Goal| -> Result<Option<Gain>, OptimizeError> {
            let outcome = task.outcome(facts, goal)?;
            Ok(outcome.plan().map(|faster| Gain {
                global_batch: faster.schedule.global_batch,
                samples_per_s_ratio: faster.samples_per_s / plan.samples_per_s,
                provenance: faster.samples_per_s_provenance.max(plan.samples_per_s_provenance),
            }))
        };
        let with_batch = |samples: Option<u64>| gain(&Goal { global_batch: samples, ..unpinned.clone() });
        let (now, statistics) = (plan.schedule.global_batch, task.depends_on_micro_batch().is_some());
        let filling = with_batch(None)?;
        let filling_batch = filling.map_or(now, |gain| gain.global_batch);
        let small_set = task.config.data_set.as_ref().filter(|set| filling_batch > set.samples && set.can_feed(now));
        let is_whole = plan.schedule.micro_steps() == 1 && !statistics;
        let larger = filling.filter(|gain| is_whole && gain.is_worthwhile() && gain.global_batch > now);
        let data_set = small_set.filter(|_| larger.is_some());
        let larger_batch = match data_set {
            Some(set) => {
                let largest = set.samples - set.samples % plan.schedule.world_size;
                let bounded = if largest > now { with_batch(Some(largest))? } else { None };
                bounded.filter(Gain::is_worthwhile)
            }
            None => larger,
        };
        let is_f32 = plan.settings.precision == Precision::F32 && facts.has_bf16 && task.precision.is_none();
        let mixed = if is_f32 {
            gain(&Goal { precision: Some(Precision::MixedBf16.into()), ..unpinned.clone() })?
        } else {
            None
        };
        unpinned.pins = Pins::default();
        if small_set.is_some() {
            // With a pin the planner gives no advice on larger steps.
            unpinned.pins.num_workers = Some(plan.settings.num_workers);
        }
        let advice = if statistics { None } else { task.outcome(facts, &unpinned)?.plan().map(|it| it.advice.clone()) };
        Ok(Self {
            larger_batch,
            data_set: data_set.cloned(),
            mixed_bf16: mixed.filter(Gain::is_worthwhile),
            advice: advice.unwrap_or_default(),
        })
    }
}

impl Gain {
    fn is_worthwhile(&self) -> bool {
        self.samples_per_s_ratio >= MIN_SPEEDUP
    }
}
