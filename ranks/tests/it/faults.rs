//! Ranks that fail, each with the error that all ranks get.

use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_ranks::{Activity, Ended, Group, Limits};

use crate::support::{limits, run, run_within};

/// Returns the ends that ranks other than `faulty` get from `body` and, after the grace, from their exit hooks.
fn ends(faulty: usize, body: impl Fn(&Group) -> Result<(), Ended> + Clone + Send + 'static) -> Vec<Ended> {
    let results = run(3, move |group: Group, exits: Receiver<Ended>| {
        let end = body(&group).unwrap_err();
        assert_eq!(group.ended(), Some(end.clone()));
        assert_eq!(group.barrier(), Err(end.clone()));
        assert_eq!(exits.recv_timeout(Duration::from_secs(20)), Ok(end.clone()));
        end
    });
    let others = results.into_iter().enumerate().filter(|(rank, _)| *rank != faulty);
    others.map(|(_, result)| result.unwrap()).collect()
}

fn wait_for_end(group: &Group) -> Ended {
    loop {
        if let Some(ended) = group.ended() {
            return ended;
        }
        thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn a_failure_names_its_rank_and_message() {
    for faulty in 0..3 {
        let ends = ends(faulty, move |group| {
            group.barrier()?;
            if group.rank() == faulty {
                group.fail("out of memory");
            }
            group.barrier()
        });
        for end in ends {
            let Ended::Failed { rank, message, .. } = end else { panic!("{end}") };
            assert_eq!((rank, message.as_str()), (faulty, "out of memory"));
        }
    }
}

#[test]
fn a_panic_ends_all() {
    for faulty in 0..3 {
        let ends = ends(faulty, move |group| {
            // The panic drops this clone; another one is left.
            let clone = group.clone();
            assert_ne!(clone.rank(), faulty, "a panic of the test");
            clone.barrier()
        });
        assert!(ends.iter().all(|end| matches!(end, Ended::Panicked { rank, .. } if *rank == faulty)), "{ends:?}");
    }
}

#[test]
fn different_exchanges_at_one_time_are_named() {
    let ends = ends(3, |group| if group.rank() == 2 { group.broadcast(vec![1]).map(drop) } else { group.barrier() });
    assert_eq!(ends.len(), 3);
    for end in &ends {
        assert_eq!(end, &ends[0]);
    }
    let Ended::OutOfStep { rank, kind, other, other_kind, .. } = &ends[0] else { panic!("{}", ends[0]) };
    assert!(*rank == 2 || *other == 2, "{}", ends[0]);
    assert!(["barrier", "broadcast"].contains(&kind.as_str()) && kind != other_kind);
}

#[test]
fn ranks_with_more_exchanges_end_all() {
    for exchanges_on_gpu in [false, true] {
        let ends = ends(3, move |group| {
            group.barrier()?;
            if group.rank() == 1 {
                return group.finish();
            }
            if exchanges_on_gpu {
                group.set_activity(Activity::Exchanging);
                wait_for_end(group);
            }
            group.barrier()
        });
        assert_eq!(ends.len(), 3);
        for end in ends {
            assert!(matches!(end, Ended::Uneven { rank: 1, waiting: 0 | 2, .. }), "{end}");
        }
    }
}

#[test]
fn an_exchange_of_all_that_does_not_end_ends_all() {
    let body = |group: Group, _| {
        // The last rank arrives later.
        thread::sleep(Duration::from_millis(if group.rank() == 1 { 3000 } else { 0 }));
        let begin = Instant::now();
        group.set_activity(Activity::Exchanging);
        (wait_for_end(&group), begin.elapsed())
    };
    let results = run_within(&Limits { exchange: Duration::from_secs(2), ..limits() }, 3, body);
    for (rank, result) in results.into_iter().enumerate() {
        let (end, waited) = result.unwrap();
        assert!(matches!(end, Ended::Stuck { rank: 1, .. }), "{end}");
        // Ranks that are working are waited for.
        assert!(rank == 1 || waited > Duration::from_secs(4), "{waited:?}");
    }
}

#[test]
fn a_living_rank_that_does_not_arrive_ends_all() {
    let body = |group: Group, _| {
        if group.rank() != 1 {
            group.set_activity(Activity::Exchanging);
        }
        wait_for_end(&group)
    };
    let begin = Instant::now();
    for end in run_within(&Limits { arrival: Duration::from_secs(2), ..limits() }, 3, body) {
        let end = end.unwrap();
        assert!(matches!(end, Ended::Late { rank: 1, seconds: 2.., .. }), "{end}");
    }
    assert!(begin.elapsed() > Duration::from_secs(2));
}

#[test]
fn different_values_name_the_first_rank_that_differs() {
    let all_ends = [
        ends(3, |group| group.agree("parameters", if group.rank() > 0 { "13" } else { "12" })),
        ends(3, |group| group.sum(vec![0.5; if group.rank() == 1 { 2 } else { 1 }]).map(drop)),
    ];
    let expected = [("parameters", "13", "12"), ("number of values", "2", "1")];
    for (ends, (expected_name, expected_value, of_root)) in all_ends.into_iter().zip(expected) {
        assert_eq!(ends.len(), 3);
        for end in ends {
            let Ended::Differs { name, rank: 1, value, expected, .. } = end else { panic!("{end}") };
            assert_eq!((name.as_str(), value.as_str(), expected.as_str()), (expected_name, expected_value, of_root));
        }
    }
}

#[test]
fn an_error_of_rank_0_in_an_exchange_ends_all() {
    let ends = ends(3, |group| group.meet("plan", vec![1], |_| Err("nothing fits".to_owned())).map(drop));
    let expected = Ended::Rejected { kind: "plan".to_owned(), message: "nothing fits".to_owned() };
    assert_eq!(ends, [expected.clone(), expected.clone(), expected]);
}
