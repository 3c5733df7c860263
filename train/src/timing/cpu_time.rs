//! CPU time of the current thread.

use std::time::Duration;

/// CPU time of the current thread; `None` where the system does not report it.
#[cfg(unix)]
fn now() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// CPU time of the current thread; `None` where the system does not report it.
#[cfg(not(unix))]
fn now() -> Option<Duration> {
    None
}

/// Runs `work` and returns its result with the CPU time it took on this thread.
pub(super) fn measured<T>(work: impl FnOnce() -> T) -> (T, Option<Duration>) {
    let before = now();
    let done = work();
    (done, before.zip(now()).map(|(before, after)| after.saturating_sub(before)))
}

#[cfg(all(test, unix))]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{measured, now};

    #[test]
    fn sleeping_takes_none_and_working_does() {
        let ((), slept) = measured(|| thread::sleep(Duration::from_millis(50)));
        assert!(slept.unwrap() < Duration::from_millis(40), "{slept:?}");
        let (before, clock, mut sum) = (now().unwrap(), Instant::now(), 0_u64);
        while now().unwrap().saturating_sub(before) < Duration::from_millis(50) {
            sum = sum.wrapping_mul(31).wrapping_add(clock.elapsed().as_nanos() as u64);
        }
        assert!(clock.elapsed() >= Duration::from_millis(40), "{sum}");
    }
}
