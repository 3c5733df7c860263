//! Goals: from the build, and from config fields that the user set.

use gpu_tuned_core::plan::{Plan, Reason, Schedule};
use gpu_tuned_core::{Goal, Pins};

use crate::tuned::{Built, Tuned};

/// The build's goal, with pins for the fields that the user set.
pub(super) fn goal<C: Tuned>(config: &C) -> Goal {
    let mut goal = config.asked();
    goal.pins = pins(&config.tuned(), &C::BUILT);
    // The build's global batch keeps the run the same on every machine. A micro-batch set by the user replaces it.
    let own_batch = goal.pins.batch_size.is_some() || goal.pins.gradient_accumulation.is_some();
    if goal.global_batch.is_none() && goal.global_tokens.is_none() && !own_batch {
        goal.global_batch = Some(C::BUILT.global_batch);
    }
    goal
}

/// Advice to state a global batch, where neither the attribute nor a field does. The build's target then decides it.
pub(super) fn nothing_stated<C: Tuned>(config: &C, schedule: &Schedule) -> Option<String> {
    let asked = config.asked();
    let pins = pins(&config.tuned(), &C::BUILT);
    let is_stated = [asked.global_batch, asked.global_tokens, pins.batch_size, pins.gradient_accumulation];
    is_stated.iter().all(Option::is_none).then(|| {
        format!(
            "no global batch is asked for: an optimizer step has {} samples, chosen for {}; a build for another GPU may choose \
             another number. Add `global_batch = …` to `#[gpu_tuned(…)]`, or to `[goal]` of gpu-tuned.toml",
            schedule.global_batch,
            C::BUILT.target
        )
    })
}

/// Tuned values that differ from the build's values: the user set them.
pub(super) fn pins(tuned: &Pins, built: &Built) -> Pins {
    tuned.keep(|setting| tuned.get(setting) != Some(built.settings.get(setting)))
}

/// Gives the settings pinned for this start alone their own reason, in place of the config's.
pub(super) fn name_the_source(plan: &mut Plan, set: &Pins) {
    for reason in plan.reasons.iter_mut().filter(|reason| set.has(reason.setting)) {
        *reason = Reason::pinned(reason.setting, "set for this start");
    }
}
