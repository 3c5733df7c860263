//! Judging a series while it goes on.

use super::{Leak, leak_within};

/// Steps that are kept at most.
const MAX_KEPT: usize = 2048;
/// Kept steps at the first judgement.
const FIRST: usize = 80;
/// Kept steps at a judgement over those at the one before.
const NEXT: f64 = 1.25;

/// Detects a leak while a program trains. Keeps at most 2048 steps, thinned out as they become more.
///
/// ```
/// use gpu_tuned_observe::leak::LeakCheck;
///
/// let mut check = LeakCheck::new();
/// let bytes = |step| 4_000_000_000 + 500_000 * step;
/// let found = (1..=400).find_map(|step| check.observe(step, bytes(step)));
/// assert_eq!(found.expect("it leaks").bytes_per_step.round(), 500_000.0);
/// ```
#[derive(Clone, Debug)]
pub struct LeakCheck {
    series: Vec<(u64, u64)>,
    limit_bytes: Option<u64>,
    /// One in so many steps is kept.
    every: u64,
    observed: u64,
    /// Kept steps at the next judgement.
    next: usize,
}

impl Default for LeakCheck {
    fn default() -> Self {
        Self { series: Vec::new(), limit_bytes: None, every: 1, observed: 0, next: FIRST }
    }
}

impl LeakCheck {
    /// Creates a check without observations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the bytes that the program may use in all: growth that fills them within a million steps is a leak, however
    /// small it is.
    #[must_use]
    pub fn limit(self, bytes: u64) -> Self {
        Self { limit_bytes: Some(bytes), ..self }
    }

    /// Adds the bytes in use after a step. Judges the series from time to time, first after 80 steps; returns `None` in
    /// between, and without a leak.
    pub fn observe(&mut self, step: u64, in_use_bytes: u64) -> Option<Leak> {
        let is_kept = self.observed.is_multiple_of(self.every);
        self.observed += 1;
        if !is_kept {
            return None;
        }
        self.series.push((step, in_use_bytes));
        let is_due = self.series.len() >= self.next;
        if is_due {
            self.next = (self.series.len() as f64 * NEXT) as usize;
        }
        if self.series.len() == MAX_KEPT {
            self.series = self.series.iter().copied().step_by(2).collect();
            self.every *= 2;
            self.next = (self.next / 2).max(MAX_KEPT / 2 + 1);
        }
        if is_due { self.judge() } else { None }
    }

    /// Judges the series as it is.
    pub fn judge(&self) -> Option<Leak> {
        leak_within(&self.series, self.limit_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::{LeakCheck, MAX_KEPT};

    #[test]
    fn a_long_run_is_judged_in_little_memory() {
        let mut check = LeakCheck::new();
        for step in 0..20_000 {
            assert!(check.observe(step, 900_000_000 + step * 2_654_435_761 % 10_000_000).is_none(), "{step}");
        }
        assert!(check.series.len() <= MAX_KEPT, "{}", check.series.len());
    }
}
