//! Groups whose ranks all behave.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use gpu_tuned_ranks::{Ended, StepTime};

use crate::support::{free_port, join, launch, run};

#[test]
fn ranks_exchange_messages() {
    for world_size in 1..=4 {
        let sums = run(world_size, move |group, _| {
            let rank = group.rank();
            group.agree("step", "7").unwrap();
            group.barrier().unwrap();
            // More than a piece.
            assert_eq!(group.broadcast(vec![rank as u8; 600_000]).unwrap(), vec![0; 600_000]);
            let own = vec![rank as u8; rank];
            let all = group.meet("lengths", own, |messages| Ok(messages.iter().map(|one| one.len() as u8).collect()));
            assert_eq!(all.unwrap(), (0..world_size as u8).collect::<Vec<_>>());
            let sum = group.sum(vec![0.1 * rank as f32; 1000]).unwrap();
            assert_eq!(group.ended(), None);
            group.finish().unwrap();
            assert_eq!(group.barrier(), Err(Ended::Finished));
            sum
        });
        let expected = (0..world_size).fold(0.0, |sum, rank| sum + 0.1 * rank as f32);
        assert!(sums.into_iter().all(|sum| sum.unwrap() == vec![expected; 1000]));
    }
}

#[test]
fn an_end_calls_its_hooks_and_a_finish_does_not() {
    for fails in [true, false] {
        let called = run(2, move |group, _| {
            let (sender, receiver) = mpsc::channel();
            group.on_end(move || sender.send(()).unwrap());
            match (fails, group.rank()) {
                (true, 0) => group.fail("the test ends it"),
                (true, _) => drop(group.barrier()),
                (false, _) => group.finish().unwrap(),
            }
            receiver.recv_timeout(Duration::from_millis(if fails { 10_000 } else { 100 })).is_ok()
        });
        assert!(called.into_iter().all(|called| called.unwrap() == fails), "{fails}");
    }
}

/// Returns whole numbers, whose sums are exact.
fn values(count: usize, factor: usize) -> Vec<f32> {
    (0..count).map(|value| (value % 1000 * factor) as f32).collect()
}

#[test]
fn sums_of_many_values_are_exchanged_in_parts() {
    // 64 MiB of all ranks at a time: two parts.
    let count = 6_000_000;
    let sums = run(3, move |group, _| group.sum(values(count, group.rank() + 1)).unwrap());
    let expected = values(count, 1 + 2 + 3);
    assert!(sums.into_iter().all(|sum| sum.unwrap() == expected));
}

#[test]
fn dropping_a_group_waits_for_the_others() {
    let ends = run(3, |group, _| {
        let clone = group.clone();
        drop(group);
        clone.barrier().unwrap();
        thread::sleep(Duration::from_millis(300 * clone.rank() as u64));
        clone.ended()
    });
    assert!(ends.into_iter().all(|end| end.unwrap().is_none()));
}

#[test]
fn rank_0_may_come_last() {
    let port = free_port();
    let others: Vec<_> = (1..3).map(|rank| thread::spawn(move || join(&launch(rank, 3, port)).unwrap())).collect();
    thread::sleep(Duration::from_millis(500));
    let first = join(&launch(0, 3, port)).unwrap();
    let mut groups: Vec<_> = others.into_iter().map(|rank| rank.join().unwrap()).collect();
    groups.push(first);
    let ranks = groups.into_iter().map(|group| thread::spawn(move || group.barrier().unwrap()));
    ranks.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
}

#[test]
fn step_times_reach_rank_0() {
    let times = run(2, |group, _| {
        group.record_step(7, 0.5 + group.rank() as f64);
        let begin = std::time::Instant::now();
        while group.step_times().len() < 2 - group.rank() && begin.elapsed() < Duration::from_secs(20) {
            thread::sleep(Duration::from_millis(50));
        }
        let times = group.step_times();
        group.barrier().unwrap();
        (times, group.host().to_owned())
    });
    let (times, host) = times.into_iter().next().unwrap().unwrap();
    let time = |rank, seconds| StepTime { rank, host: host.clone(), step: 7, seconds };
    assert_eq!(times, [time(0, 0.5), time(1, 1.5)]);
}
