//! Parts of an optimizer step, here and on other numbers of ranks.

use std::path::Path;

use gpu_tuned::{Decision, Fallback, Options, ResumeError, StartError, Tuned};
use proptest::prelude::*;
use serde_json::json;
use tempfile::TempDir;

use crate::launched::launched;

use super::{Free, Lm, WithStatistics, begin, edit, machine, micro_batches, refused, resume, saved, saved_there};

/// Decision of the first rank that resumes a run with others, or the error of the rank that fails first.
fn on<C: Tuned + Sync>(ranks: usize, config: &C, directory: &Path) -> Result<Decision, StartError> {
    let decided = launched(ranks, |_, as_rank| {
        as_rank(Options::default().machine(machine("eight-free-h100")).resume(directory)).decide(config)
    });
    let is_own = |decided: &Result<_, StartError>| !matches!(decided, Err(StartError::Ranks(_)));
    decided.into_iter().find(is_own).expect("an error is of a rank")
}

/// A run on one rank with such steps.
fn saved_steps(global_batch: u64, micro_batch: u64) -> (Free, TempDir) {
    let (config, _, directory) = saved_there::<Free>();
    edit(&directory, |run| {
        run["schedule"] = json!({ "global_batch": global_batch, "world_size": 1, "micro_batch": micro_batch });
        run["settings"]["batch_size"] = micro_batch.into();
        run["settings"]["gradient_accumulation"] = global_batch.div_ceil(micro_batch).into();
    });
    (config, directory)
}

#[test]
fn another_number_of_ranks_may_go_on_when_it_divides_the_global_batch() {
    let (config, _, directory) = saved_there::<Lm>();
    for ranks in [1, 2, 4, 8] {
        let again = on(ranks, &config, directory.path()).unwrap_or_else(|error| panic!("{ranks}: {error}"));
        assert_eq!(again.plan.schedule.world_size, ranks as u64);
        assert_eq!(micro_batches(&again).iter().sum::<u64>(), 512);
    }
    let error = on(3, &config, directory.path()).expect_err("512 / 3");
    let StartError::Resume(ResumeError::WorldSize { would_do, .. }) = &error else { panic!("{error}") };
    assert_eq!(*would_do, [2, 4]);
}

#[test]
fn a_rank_with_fewer_samples_than_the_saved_micro_batch_says_so() {
    let (config, directory) = saved_steps(64, 64);
    let again = on(8, &config, directory.path()).expect("8 samples each");
    assert_eq!(micro_batches(&again).iter().sum::<u64>(), 64);
    let reported = |fallback: &Fallback| matches!(fallback, Fallback::SavedShare { saved: 64, share: 8, .. });
    assert!(again.selection.fallbacks.iter().any(reported), "{}", again.selection);
}

#[test]
fn batch_statistics_keep_their_micro_batch_or_are_refused() {
    let of = |batch_size| {
        let config = WithStatistics { batch_size };
        saved(&config, &begin(&config, "h200"))
    };
    assert!(resume(&WithStatistics::default(), "h200", &of(32)).is_ok());
    for scenario in ["neighbour", "a100-mig-slice"] {
        let error = refused(&WithStatistics::default(), scenario, &of(32));
        assert!(matches!(error, ResumeError::BatchStatistics { micro_batch: 32, .. }), "{scenario}: {error}");
    }
    // 256 samples are 10 x 24 + 16, and on two ranks twice 5 x 24 + 8; eight ranks have 32 each.
    for (batch_size, gpus, is_kept) in [(32, 8, true), (24, 1, true), (24, 2, false), (64, 8, false)] {
        let result = on(gpus, &WithStatistics::default(), of(batch_size).path());
        let is_refused = matches!(result, Err(StartError::Resume(ResumeError::BatchStatistics { .. })));
        assert_eq!((result.is_ok(), is_refused), (is_kept, !is_kept), "{batch_size} on {gpus}: {result:?}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_resumed_step_is_made_of_the_same_samples(global_batch in 1u64..4096, micro_batch in 1u64..4096) {
        let micro_batch = micro_batch.min(global_batch);
        let (config, directory) = saved_steps(global_batch, micro_batch);
        let again = resume(&config, "rtx4090", &directory).expect("one sample at a time fits");
        let sizes = micro_batches(&again);
        prop_assert_eq!(sizes.iter().sum::<u64>(), global_batch);
        let reported = again.selection.fallbacks.iter().any(|one| matches!(one, Fallback::SavedMicroBatch { .. }));
        // Full micro-batches and a rest, counted without the schedule's own arithmetic.
        let mut expected = vec![micro_batch; (global_batch / micro_batch) as usize];
        expected.extend(Some(global_batch % micro_batch).filter(|rest| *rest > 0));
        expected.sort_unstable();
        prop_assert_eq!(reported, sizes != expected);
        // Saved again and resumed again, nothing moves any more.
        let twice = resume(&config, "rtx4090", &saved(&config, &again)).expect("it fits");
        prop_assert_eq!(twice.plan.schedule, again.plan.schedule);
    }

    #[test]
    fn any_ranks_share_a_step_evenly_or_are_told_who_could(global_batch in 1u64..4096, gpus in 2u64..9) {
        let (config, directory) = saved_steps(global_batch, 1);
        match on(gpus as usize, &config, directory.path()) {
            Ok(decision) => {
                prop_assert_eq!(decision.plan.schedule.world_size, gpus);
                prop_assert_eq!(decision.plan.schedule.samples_per_rank() * gpus, global_batch);
                prop_assert_eq!(micro_batches(&decision).iter().sum::<u64>(), global_batch);
            }
            Err(StartError::Resume(ResumeError::WorldSize { would_do, .. })) => {
                prop_assert!(global_batch % gpus != 0);
                let divides = |ranks: &u64| global_batch % ranks == 0;
                let below = (1..gpus).rev().find(divides);
                let above = (gpus + 1..=global_batch).find(divides);
                prop_assert_eq!(would_do, below.into_iter().chain(above).collect::<Vec<_>>());
            }
            Err(other) => return Err(TestCaseError::fail(other.to_string())),
        }
    }
}
