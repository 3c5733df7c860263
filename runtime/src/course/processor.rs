//! Processor time.

use std::time::Duration;

/// Processor time that this thread has had; `None` where the system does not tell.
#[cfg(unix)]
pub(super) fn of_this_thread() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// Processor time that this thread has had; `None` where the system does not tell.
#[cfg(not(unix))]
pub(super) fn of_this_thread() -> Option<Duration> {
    None
}

#[cfg(all(test, unix))]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::of_this_thread;

    #[test]
    fn sleeping_takes_none_and_working_does() {
        let had = || of_this_thread().unwrap();
        let since = |before: Duration| had().checked_sub(before).unwrap();
        let before = had();
        thread::sleep(Duration::from_millis(50));
        let slept = since(before);
        assert!(slept < Duration::from_millis(40), "{slept:?}");
        let (before, clock, mut sum) = (had(), Instant::now(), 0_u64);
        while since(before) < Duration::from_millis(50) {
            sum = sum.wrapping_mul(31).wrapping_add(clock.elapsed().as_nanos() as u64);
        }
        assert!(clock.elapsed() >= Duration::from_millis(40), "{sum}");
    }
}
