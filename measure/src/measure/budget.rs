//! Time limit of a measurement.

use std::fmt;
use std::time::{Duration, Instant};

/// Limit without a request on a GPU, for all modes of a precision.
pub(super) const ON_A_GPU: Duration = Duration::from_secs(120);
/// Limit without a request on the CPU, for a mode.
pub(super) const MODE_ON_THE_CPU: Duration = Duration::from_secs(25);

/// Time of a measurement, counted by the clock from its begin, with compilation and autotune.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    pub(super) begin: Instant,
    pub(super) whole: Duration,
}

impl Budget {
    /// A budget that begins now.
    pub(super) fn begin(whole: Duration) -> Self {
        Self { begin: Instant::now(), whole }
    }

    /// Time that is left at `now`.
    #[cfg(any(feature = "cuda", test))]
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.whole.saturating_sub(now.duration_since(self.begin))
    }
}

/// The time so far, of the whole time: `34 s of 120 s`.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} s of {:.0} s", self.begin.elapsed().as_secs_f64(), self.whole.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::Budget;

    #[test]
    fn progress_has_the_time_so_far_and_the_whole() {
        let budget = Budget::begin(Duration::from_secs(120));
        assert_eq!(budget.to_string(), "0 s of 120 s");
        let later = budget.begin + Duration::from_secs(100);
        assert_eq!(budget.left(later), Duration::from_secs(20));
        assert_eq!(budget.left(later + Duration::from_secs(100)), Duration::ZERO);
    }
}
