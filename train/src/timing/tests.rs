use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_observe::recording::StepRecord;

use super::{LoaderCounters, thread_cpu_time, with_cpu_time};

#[test]
fn a_step_has_the_work_since_the_one_before() {
    let counters = LoaderCounters::default();
    let seconds = Duration::from_secs;
    let filled = || {
        let mut record = StepRecord::default();
        let waited = counters.fill(&mut record);
        (waited, record.waited_s, record.queued, record.prepared, record.prepared_s)
    };
    counters.add_preparation(seconds(3), Some(seconds(2)));
    assert_eq!(filled(), (Duration::ZERO, None, None, None, None));
    counters.add_preparation(seconds(4), None);
    counters.add_wait(seconds(1), 5);
    counters.add_wait(seconds(1), 6);
    assert_eq!(filled(), (seconds(2), Some(2.0), Some(6), Some(2), Some(7.0)));
    assert_eq!(filled(), (Duration::ZERO, Some(0.0), Some(6), Some(0), Some(0.0)));
}

#[cfg(unix)]
#[test]
fn sleeping_takes_none_and_working_does() {
    let ((), slept) = with_cpu_time(|| thread::sleep(Duration::from_millis(50)));
    assert!(slept.unwrap() < Duration::from_millis(40), "{slept:?}");
    let (before, clock, mut sum) = (thread_cpu_time().unwrap(), Instant::now(), 0_u64);
    while thread_cpu_time().unwrap().saturating_sub(before) < Duration::from_millis(50) {
        sum = sum.wrapping_mul(31).wrapping_add(clock.elapsed().as_nanos() as u64);
    }
    assert!(clock.elapsed() >= Duration::from_millis(40), "{sum}");
}
