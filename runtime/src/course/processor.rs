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
        let slept = of_this_thread().unwrap();
        thread::sleep(Duration::from_millis(50));
        let begun = of_this_thread().unwrap();
        let begin = Instant::now();
        let mut sum = 0_u64;
        while of_this_thread().unwrap() - begun < Duration::from_millis(50) {
            sum = sum.wrapping_mul(31).wrapping_add(begin.elapsed().as_nanos() as u64);
        }
        assert!(begun - slept < Duration::from_millis(40), "{:?}", begun - slept);
        assert!(begin.elapsed() >= Duration::from_millis(40), "{sum}");
    }
}
