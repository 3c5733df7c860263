//! Losses over the whole batch: one micro-batch a step, or no plan.

use super::*;
use crate::PrecisionPolicy;
use crate::plan::{Remedy, fits, plan_ranks};

fn whole(samples: u64) -> Goal {
    Goal { whole_batch_loss: true, ..global(samples) }
}

fn with_gib(gib: u64) -> DeviceFacts {
    with_free("rtx4090", gib << 10)
}

fn planned(device: &DeviceFacts, goal: &Goal) -> Plan {
    super::planned(device, &small(), goal)
}

fn refusal(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> String {
    let error = plan(device, workload, goal).expect_err("it must be refused");
    error.to_string()
}

#[test]
fn a_step_is_one_micro_batch_with_checkpointing_and_16_bits_where_needed() {
    let auto = Goal { precision: Some(PrecisionPolicy::Auto), ..whole(96) };
    let free = Goal { whole_batch_loss: true, ..Goal::default() };
    assert_plans(
        "whole_batch",
        vec![
            ("a step in parts", with_gib(22), small(), global(96)),
            ("the whole step", with_gib(22), small(), whole(96)),
            ("only with checkpointing it fits", with_gib(13), small(), whole(96)),
            ("only in 16 bits it fits", with_gib(10), small(), auto),
            ("it does not fit", with_gib(10), small(), whole(96)),
            ("without a global batch the micro-batch is the step", nominal("h200"), small(), free),
        ],
    );
}

#[test]
fn a_step_that_does_not_fit_is_refused_with_the_largest_that_does() {
    let device = with_gib(6);
    assert!(fits(&device, &small(), &global(512)) && !fits(&device, &small(), &whole(512)));
    let misfit = misfit(&device, &small(), &whole(512));
    assert_eq!(misfit.memory.batch, 512);
    assert!(misfit.in_one_line().contains("the step is not cut, because parts of the batch have another loss"));
    let smaller = misfit.remedies.iter().find_map(|remedy| match remedy {
        Remedy::Keys { keys, needed, .. } => Some((keys.strip_prefix("global_batch = ")?.parse().ok()?, *needed)),
        _ => None,
    });
    let (samples, needed) = smaller.expect("fewer samples fit");
    assert_eq!(planned(&device, &whole(samples)).memory.total(), needed);
    assert!(!fits(&device, &small(), &whole(samples * 2)), "{samples}");
    assert!(misfit.remedies.iter().any(|remedy| matches!(remedy, Remedy::LargerGpu { profile: Some(_), .. })));
    assert!(misfit.remedies.iter().all(|remedy| !remedy.to_string().contains("world_size")), "{:?}", misfit.remedies);
    assert_eq!(misfit.remedies.last(), Some(&Remedy::CacheEmbeddings));
    let tokens = Goal { global_tokens: Some(512 * 256), global_batch: None, ..whole(1) };
    let text = refusal(&device, &small(), &tokens);
    assert!(text.contains(&format!("set global_tokens = {}, which needs", samples * 256)), "{text}");
}

#[test]
fn several_ranks_and_fixed_parts_of_a_step_are_mistakes() {
    let pinned = |batch_size, gradient_accumulation| Goal {
        pins: Pins { batch_size, gradient_accumulation, ..Pins::default() },
        ..whole(64)
    };
    for (goal, what) in [
        (Goal { world_size: 4, ..whole(64) }, "4 ranks share each step, but"),
        (pinned(Some(16), None), "batch_size = 16 is less than the 64 samples of a step, but"),
        (pinned(None, Some(4)), "a step has 4 micro-batches, but"),
    ] {
        let (_, message) = goal.mistakes().into_iter().next().expect("a mistake");
        assert!(message.starts_with(what) && message.contains("GradCache"), "{message}");
        assert_eq!(plan(&nominal("h200"), &small(), &goal), Err(PlanError::Goal { message }));
        assert_eq!(Goal { whole_batch_loss: false, ..goal }.mistakes(), []);
    }
    // The samples of a step in tokens are known with the model: 64 sequences of 256 tokens.
    let tokens = Goal { global_batch: None, global_tokens: Some(64 * 256), ..pinned(Some(16), None) };
    assert_eq!(tokens.mistakes(), []);
    assert!(refusal(&nominal("h200"), &small(), &tokens).starts_with("batch_size = 16 is less than the 64 samples"));
    assert_eq!(pinned(Some(64), Some(1)).mistakes(), []);
    let ranks = plan_ranks(&[nominal("h200"), nominal("h200")], &small(), &whole(64));
    assert!(matches!(ranks, Err(PlanError::Goal { .. })), "{ranks:?}");
}
