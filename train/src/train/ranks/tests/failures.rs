//! Ranks that fail or run out of memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use burn::optim::{Optimizer, SgdConfig};
use burn::tensor::{Device, Tensor};

use super::{SIZES, all_at_once, ranks, steps};
use crate::out_of_memory::Moment;
use crate::train::StepError;
use crate::train::ranks::{Ended, Ranks, RanksError};
use crate::train::tests::{OUT_OF_MEMORY, furthest, sgd};

#[test]
fn a_rank_that_runs_out_of_memory_begins_its_part_again_and_nobody_else_does() {
    let all = ranks(2, 12).run(|rank| {
        let small = rank.index() == 1;
        steps(rank, sgd(), &SIZES, move |seed, model, micro| {
            assert!(!small || seed != 4 || micro.0.dims()[0] <= 3, "{OUT_OF_MEMORY}");
            model.loss(micro)
        })
    });
    let all = all.unwrap();
    assert!(furthest(&all[0].0, &all_at_once(&SIZES, sgd())) < 1e-4);
    assert_eq!(all[0].0, all[1].0);
    let rescues = |rank: usize| all[rank].1.iter().map(|step| step.rescues.len()).sum::<usize>();
    assert_eq!((rescues(0), rescues(1)), (0, 2));
}

/// Runs three ranks, the second of which deviates in the third step, and returns the time.
fn ended(fault: impl Fn(usize) -> Tensor<1> + Send + Sync + 'static) -> (RanksError, Duration) {
    let begin = Instant::now();
    let run = ranks(3, 8).run(move |rank| {
        steps(rank, sgd(), &[24; 6], |seed, model, micro| match (rank.index(), seed) {
            (1, 2) => fault(micro.0.dims()[0]),
            _ => model.loss(micro),
        })
    });
    (run.expect_err("a rank fails"), begin.elapsed())
}

#[test]
fn a_rank_for_which_nothing_fits_ends_all_with_its_error() {
    let (error, took) = ended(|_| panic!("{OUT_OF_MEMORY}"));
    let RanksError::Rank { rank: 1, source, left } = error else { panic!("{error:?}") };
    assert!(matches!(source.downcast_ref(), Some(StepError::DoesNotFit { micro_batch: 1, .. })), "{source}");
    assert!(left.is_empty() && took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn a_panic_of_one_rank_ends_all_with_its_words() {
    let (error, took) = ended(|_| panic!("index out of bounds"));
    assert!(
        matches!(&error, RanksError::Panicked { rank: 1, message, left } if message == "index out of bounds" && left.is_empty()),
        "{error:?}"
    );
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn who_waits_for_a_rank_that_failed_gets_its_error() {
    let (sender, receiver) = std::sync::mpsc::channel();
    let run = ranks(2, 8).run(move |rank| {
        if rank.index() == 1 {
            return Err("the disk is full".into());
        }
        let waited = steps(rank, sgd(), &[24; 6], |_, model, micro| model.loss(micro));
        let error = waited.map(drop).expect_err("the other rank is gone");
        sender.send(error.to_string()).ok();
        Err::<(), _>(error)
    });
    let error = run.unwrap_err();
    assert!(
        matches!(&error, RanksError::Rank { rank: 1, source, .. } if source.to_string() == "the disk is full"),
        "{error:?}"
    );
    assert_eq!(receiver.recv().unwrap(), "rank 1 failed: the disk is full");
}

#[test]
fn ranks_that_take_different_numbers_of_steps_are_ended() {
    let run = ranks(2, 8).run(|rank| steps(rank, sgd(), &[24; 6][rank.index()..], |_, model, micro| model.loss(micro)));
    let error = run.unwrap_err();
    let uneven = Ended::Uneven { done: 1, waiting: 0 };
    assert!(matches!(&error, RanksError::Ended { source, .. } if *source == uneven), "{error:?}");
}

#[test]
fn a_rank_that_hangs_in_an_exchange_is_left_behind() {
    let begin = Instant::now();
    let ranks = Ranks { grace: Duration::from_secs(5), ..ranks(2, 8) };
    let run = ranks.patience(Duration::from_millis(300)).run(|rank| {
        if rank.index() == 1 {
            // As one whose device no longer answers.
            rank.handle.watched_exchange(|| thread::sleep(Duration::from_secs(3600)));
        }
        steps(rank, sgd(), &[24; 6], |_, model, micro| model.loss(micro))
    });
    let error = run.unwrap_err();
    assert!(
        matches!(&error, RanksError::Ended { source: Ended::Silent { ranks, .. }, left } if ranks == &[1] && left == &[1]),
        "{error:?}"
    );
    assert!(begin.elapsed() < Duration::from_secs(60));
}

/// Plain descent that has no memory the first so many times it is called.
#[derive(Clone)]
struct Starved(Arc<AtomicUsize>);

impl Optimizer for Starved {
    type State<const D: usize> = <burn::optim::Sgd as Optimizer>::State<D>;

    fn step<const D: usize>(
        &self,
        rate: f64,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        _: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let fails = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        assert!(!fails, "{OUT_OF_MEMORY}");
        (tensor - gradient * rate, None)
    }

    fn to_device<const D: usize>(state: Self::State<D>, _: &Device) -> Self::State<D> {
        state
    }
}

#[test]
fn a_rank_whose_optimizer_has_no_memory_changes_less_at_a_time_and_stays_with_the_others() {
    let all = ranks(2, 12).run(|rank| {
        let starved = Starved(Arc::new(AtomicUsize::new(if rank.index() == 1 { 2 } else { 0 })));
        steps(rank, starved.into(), &[24; 3], |_, model, micro| model.loss(micro))
    });
    let all = all.unwrap();
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
