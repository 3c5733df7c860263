//! Ranks that fail or run out of memory.

use burn::optim::SgdConfig;
use burn::tensor::Tensor;

use super::threads::{Failure, run, run_all};
use super::{SIZES, all_at_once, steps};
use crate::out_of_memory::Moment;
use crate::train::StepError;
use crate::train::tests::{OUT_OF_MEMORY, Starved, furthest, sgd};

#[test]
fn a_rank_that_runs_out_of_memory_begins_its_part_again_and_nobody_else_does() {
    let all = run_all(2, 12, |rank| {
        let small = rank.index() == 1;
        steps(rank, sgd(), &SIZES, move |seed, model, micro| {
            assert!(!small || seed != 4 || micro.0.dims()[0] <= 3, "{OUT_OF_MEMORY}");
            model.loss(micro)
        })
    });
    assert!(furthest(&all[0].0, &all_at_once(&SIZES, sgd())) < 1e-4);
    assert_eq!(all[0].0, all[1].0);
    let rescues = |rank: usize| all[rank].1.iter().map(|step| step.rescues.len()).sum::<usize>();
    assert_eq!((rescues(0), rescues(1)), (0, 2));
}

/// Errors of three ranks, the second of which deviates in the third step.
fn ended(fault: impl Fn(usize) -> Tensor<1> + Send + Sync + 'static) -> Vec<Failure> {
    let done = run(&[8; 3], 8, move |rank| {
        steps(rank, sgd(), &[24; 6], |seed, model, micro| match (rank.index(), seed) {
            (1, 2) => fault(micro.0.dims()[0]),
            _ => model.loss(micro),
        })
    });
    done.into_iter().map(|done| done.map(drop).unwrap_err()).collect()
}

#[test]
fn a_rank_for_which_nothing_fits_ends_all_with_its_error() {
    let errors = ended(|_| panic!("{OUT_OF_MEMORY}"));
    let own = errors[1].to_string();
    assert!(matches!(errors[1].downcast_ref(), Some(StepError::DoesNotFit { micro_batch: 1, .. })), "{own}");
    for other in [&errors[0], &errors[2]] {
        assert!(matches!(other.downcast_ref(), Some(StepError::Peers(_))));
        assert_eq!(other.to_string(), format!("rank 1 failed: {own}"));
    }
}

#[test]
fn a_panic_of_one_rank_ends_all_with_its_words() {
    let errors = ended(|_| panic!("index out of bounds"));
    for other in [&errors[0], &errors[2]] {
        assert_eq!(other.to_string(), "rank 1 failed: index out of bounds");
    }
}

#[test]
fn a_rank_whose_optimizer_has_no_memory_changes_less_at_a_time_and_stays_with_the_others() {
    let all = run_all(2, 12, |rank| {
        let starved = Starved::new(0..if rank.index() == 1 { 2 } else { 0 });
        steps(rank, starved.into(), &[24; 3], |_, model, micro| model.loss(micro))
    });
    assert_eq!(all[0].0, all[1].0);
    assert!(furthest(&all[0].0, &all_at_once(&[24; 3], SgdConfig::new().init())) < 1e-5);
    let rescues: Vec<usize> = all.iter().map(|(_, taken)| taken.iter().map(|step| step.rescues.len()).sum()).collect();
    assert_eq!(rescues, [0, 1]);
    let rescue = &all[1].1[0].rescues[0];
    assert!(
        rescue.moment == Moment::Optimizer && rescue.from == rescue.to && rescue.held_twice.is_some(),
        "{rescue:?}"
    );
}
