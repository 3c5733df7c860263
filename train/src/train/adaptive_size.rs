//! Sizes that shrink after an out-of-memory and grow back later.

/// Optimizer steps without a failure before a size grows again.
const PATIENCE: u32 = 100;
/// Patience for parameter groups: a failed trial costs a part of a step, and tunes no kernel.
pub(super) const SHORT_PATIENCE: u32 = 10;
/// Limit of the patience, which doubles with every failed trial.
const MAX_PATIENCE: u32 = 10_000;

/// Size over a run: samples of a micro-batch, or bytes of a parameter group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdaptiveSize {
    planned: u64,
    /// Smallest size that saves memory.
    min: u64,
    now: u64,
    patience: u32,
    /// Steps since the last change.
    quiet: u32,
}

impl AdaptiveSize {
    pub(super) fn new(planned: u64) -> Self {
        let planned = planned.max(1);
        Self { planned, min: 1, now: planned, patience: PATIENCE, quiet: 0 }
    }

    /// Current size.
    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// Grows after so many steps without a failure.
    pub(super) const fn with_patience(self, steps: u32) -> Self {
        Self { patience: steps, ..self }
    }

    /// Keeps the patience, with another planned size.
    pub(super) fn with_planned(self, planned: u64) -> Self {
        Self { patience: self.patience, ..Self::new(planned) }
    }

    /// Limits the size to the range in which it changes the use of memory.
    pub(super) fn limit(&mut self, min: u64, max: u64) {
        self.planned = self.planned.min(max.max(1));
        self.now = self.now.min(self.planned);
        self.min = min.clamp(1, self.planned);
    }

    /// Shrinks to at most half of the size or of `used`, and to at most `max`. Returns `None` if no smaller size is left.
    pub(super) fn shrink(&mut self, used: u64, max: Option<u64>) -> Option<u64> {
        let used = self.now.min(used);
        if used <= self.min {
            return None;
        }
        // A failure within the patience is a failed trial of a larger size.
        if self.now < self.planned || self.quiet < self.patience {
            self.patience = self.patience.saturating_mul(2).min(MAX_PATIENCE);
        }
        self.now = max.unwrap_or(u64::MAX).min(used / 2).max(self.min);
        self.quiet = 0;
        Some(self.now)
    }

    /// Counts a step without a failure. Returns the new size if it grows.
    pub(super) fn grow(&mut self) -> Option<u64> {
        self.quiet = self.quiet.saturating_add(1);
        if self.now == self.planned || self.quiet < self.patience {
            return None;
        }
        self.now = self.now.saturating_mul(2).min(self.planned);
        self.quiet = 0;
        Some(self.now)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::AdaptiveSize;

    #[test]
    fn it_shrinks_to_one_and_then_no_further() {
        let mut size = AdaptiveSize::new(12);
        let sizes: Vec<_> = std::iter::from_fn(|| size.shrink(u64::MAX, None)).collect();
        assert_eq!(sizes, [6, 3, 1]);
    }

    #[test]
    fn what_was_planned_anew_is_taken_where_it_is_smaller_than_half() {
        assert_eq!(AdaptiveSize::new(64).shrink(u64::MAX, Some(10)), Some(10));
        assert_eq!(AdaptiveSize::new(64).shrink(u64::MAX, Some(60)), Some(32));
        assert_eq!(AdaptiveSize::new(64).shrink(u64::MAX, Some(0)), Some(1));
    }

    #[test]
    fn where_less_was_there_than_may_be_it_shrinks_from_that_and_is_patient_once() {
        let mut size = AdaptiveSize::new(64).with_patience(3);
        assert_eq!((size.shrink(8, None), size.shrink(1, None)), (Some(4), None));
        let grown: Vec<_> = (0..100).filter_map(|step| Some((step, size.grow()?))).collect();
        assert_eq!(grown, [(5, 8), (11, 16), (17, 32), (23, 64)]);
    }

    #[test]
    fn it_stays_within_what_it_is_good_for() {
        // Without a plan: 100 bytes in all, of which 30 cannot be split.
        let mut size = AdaptiveSize::new(u64::MAX).with_patience(1);
        size.limit(30, 100);
        let sizes: Vec<_> = std::iter::from_fn(|| size.shrink(u64::MAX, None)).collect();
        assert_eq!(sizes, [50, 30]);
        let sizes: Vec<_> = (0..2000).filter_map(|_| size.grow()).collect();
        assert_eq!(sizes, [60, 100]);
        // What was planned is less than any part.
        let mut size = AdaptiveSize::new(20);
        size.limit(30, 100);
        assert_eq!((size.now(), size.shrink(u64::MAX, None)), (20, None));
    }

    #[test]
    fn it_grows_back_after_a_quiet_interval_and_waits_longer_when_that_fails() {
        let mut size = AdaptiveSize::new(8).with_patience(3);
        size.shrink(u64::MAX, None);
        let waits = |size: &mut AdaptiveSize| (1..100).find(|_| size.grow().is_some()).unwrap();
        let first = waits(&mut size);
        assert_eq!(size.now(), 8);
        size.shrink(u64::MAX, None);
        let second = waits(&mut size);
        assert!(second > first, "{first}, then {second}");
        let mut replanned = size.with_planned(16);
        replanned.shrink(u64::MAX, None);
        assert!(waits(&mut replanned) >= second);
    }

    proptest! {
        #[test]
        fn it_is_never_larger_than_planned_nor_empty(planned in 1..5000_u64, fails in prop::collection::vec(any::<bool>(), 0..300)) {
            let mut size = AdaptiveSize::new(planned).with_patience(2);
            for fails in fails {
                let _ = if fails { size.shrink(u64::MAX, None) } else { size.grow() };
                prop_assert!((1..=planned).contains(&size.now()));
            }
        }
    }
}
