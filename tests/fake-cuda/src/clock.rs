//! The GPU's clock, advanced only by launches.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Duration of a launch by the GPU's clock.
const LAUNCH_MS: f32 = 5.0;
/// Real duration of a kernel that measures a peak. CubeCL times such kernels with the host's clock, and repeats short
/// ones more often.
const PEAK: Duration = Duration::from_millis(20);

static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static MEASURES: AtomicBool = AtomicBool::new(false);

/// A kernel is launched, which may measure a peak.
pub(crate) fn launch(measures: bool) {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
    MEASURES.fetch_or(measures, Ordering::Relaxed);
}

/// Waits for the launched kernels.
pub(crate) fn wait() {
    if MEASURES.swap(false, Ordering::Relaxed) {
        std::thread::sleep(PEAK);
    }
}

/// Launches so far.
pub(crate) fn now() -> u64 {
    LAUNCHES.load(Ordering::Relaxed)
}

/// Milliseconds between two clock values; never 0, which would be unusable as a measurement.
pub(crate) fn milliseconds(begin: u64, end: u64) -> f32 {
    0.002 + LAUNCH_MS * end.saturating_sub(begin) as f32
}

#[cfg(test)]
mod tests {
    use super::{launch, milliseconds, now};

    #[test]
    fn launches_take_time_and_nothing_else_does() {
        let begin = now();
        assert!(milliseconds(begin, now()) < 0.01);
        launch(false);
        launch(false);
        assert!((milliseconds(begin, now()) - 10.0).abs() < 0.01);
    }
}
