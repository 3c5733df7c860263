//! Time, which launches take and nothing else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// What a launch takes by the GPU's clock.
const LAUNCH_MS: f32 = 5.0;
/// CubeCL asks the host's clock how long a kernel takes that measures a peak, and repeats it the more often the shorter it is.
const PEAK: Duration = Duration::from_millis(20);

static LAUNCHES: AtomicU64 = AtomicU64::new(0);
static MEASURES: AtomicBool = AtomicBool::new(false);

/// A kernel is launched, which may measure a peak.
pub(crate) fn launch(measures: bool) {
    LAUNCHES.fetch_add(1, Ordering::Relaxed);
    MEASURES.fetch_or(measures, Ordering::Relaxed);
}

/// Waits for what was launched.
pub(crate) fn wait() {
    if MEASURES.swap(false, Ordering::Relaxed) {
        std::thread::sleep(PEAK);
    }
}

/// Launches so far.
pub(crate) fn now() -> u64 {
    LAUNCHES.load(Ordering::Relaxed)
}

/// Milliseconds between two such numbers; never none, of which nothing could be told.
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
