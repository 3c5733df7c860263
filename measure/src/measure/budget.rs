//! Time limit of a measurement.

use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Limit without a request on a GPU, for all modes of a precision.
pub(super) const ON_A_GPU: Duration = Duration::from_secs(120);
/// Limit without a request on the CPU, for a mode.
pub(super) const MODE_ON_THE_CPU: Duration = Duration::from_secs(25);

/// Time of a measurement, counted by the clock from the first try, with compilation and autotune.
#[derive(Debug)]
pub(super) struct Budget {
    begin: OnceLock<Instant>,
    pub(super) whole: Duration,
}

impl Budget {
    /// A budget that has not begun.
    pub(super) const fn new(whole: Duration) -> Self {
        Self { begin: OnceLock::new(), whole }
    }

    /// Begins, unless it has begun before.
    pub(super) fn begin(&self, now: Instant) {
        self.begin.get_or_init(|| now);
    }

    /// Time that is left at `now`.
    #[cfg(any(feature = "cuda", test))]
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.whole.saturating_sub(self.spent(now))
    }

    fn spent(&self, now: Instant) -> Duration {
        self.begin.get().map_or(Duration::ZERO, |begin| now.saturating_duration_since(*begin))
    }
}

/// The time so far, of the whole time: `34 s of 120 s`.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} s of {:.0} s", self.spent(Instant::now()).as_secs_f64(), self.whole.as_secs_f64())
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::Budget;

    #[test]
    fn time_counts_from_the_begin() {
        let seconds = Duration::from_secs;
        let budget = Budget::new(seconds(120));
        let now = Instant::now() + seconds(1000);
        assert_eq!((budget.left(now), budget.to_string().as_str()), (seconds(120), "0 s of 120 s"));
        budget.begin(now);
        budget.begin(now + seconds(50));
        assert_eq!(budget.left(now + seconds(100)), seconds(20));
        assert_eq!(budget.left(now + seconds(200)), Duration::ZERO);
    }
}
