//! What is asked for: by the build, and by fields of the config that the user set.

use gpu_tuned_core::plan::{Plan, Schedule};
use gpu_tuned_core::{Goal, Pins, Provenance};

use crate::tuned::{Built, Tuned};

/// The build's goal, with what the user set in the config fixed.
pub(super) fn goal<C: Tuned>(config: &C) -> Goal {
    let mut goal = config.asked();
    goal.pins = pins(&config.tuned(), &C::BUILT);
    // Without a global batch of the user's, that of the build keeps the run the same everywhere; unless the user has
    // set the micro-batch, which then is the batch.
    let own_batch = goal.pins.batch_size.is_some() || goal.pins.gradient_accumulation.is_some();
    if goal.global_batch.is_none() && goal.global_tokens.is_none() && !own_batch {
        goal.global_batch = Some(C::BUILT.global_batch);
    }
    goal
}

/// That nobody says what an optimizer step is, if so: then it is what suits the build's target, or what the user's own batch makes.
pub(super) fn nothing_stated<C: Tuned>(config: &C, schedule: &Schedule) -> Option<String> {
    let asked = config.asked();
    let pins = pins(&config.tuned(), &C::BUILT);
    let is_stated = [asked.global_batch, asked.global_tokens, pins.batch_size, pins.gradient_accumulation];
    is_stated.iter().all(Option::is_none).then(|| {
        format!(
            "no global batch is asked for: an optimizer step has {} samples, which suits {}; a build for another GPU may make it \
             another run. Say `global_batch = …` in `#[gpu_tuned(…)]`, or `[goal]` of gpu-tuned.toml",
            schedule.global_batch,
            C::BUILT.target
        )
    })
}

/// The tuned values that are not those of the build: the user's.
pub(super) fn pins(tuned: &Pins, built: &Built) -> Pins {
    macro_rules! differing {
        ($($field:ident),*) => {{
            let mut pins = Pins::default();
            $( pins.$field = tuned.$field.filter(|value| *value != built.settings.$field); )*
            pins
        }};
    }
    differing!(
        batch_size,
        gradient_accumulation,
        precision,
        allow_tf32,
        gradient_checkpointing,
        prefetch_depth,
        num_workers,
        eval_batch_size
    )
}

/// Says of the settings that were fixed for this start alone that it was not the config.
pub(super) fn name_the_source(plan: &mut Plan, set: &Pins) {
    for reason in plan.reasons.iter_mut().filter(|reason| set.has(reason.setting)) {
        reason.provenance = Provenance::Declared;
        "set for this start".clone_into(&mut reason.why);
    }
}
