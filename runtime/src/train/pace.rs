//! How large something is that takes memory: as planned, smaller after memory ran out, and as planned again later.

/// Optimizer steps without a failure after which it is tried larger again.
const PATIENCE: u32 = 100;
/// The same of what is held twice: a trial that fails costs a part of a step, and tunes nothing.
pub(super) const SHORT_PATIENCE: u32 = 10;
/// It grows with every trial that failed, to at most so many.
const MOST_PATIENCE: u32 = 10_000;

/// A size over a run: samples of a micro-batch, or bytes that are held twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    planned: u64,
    /// Smaller than this it takes no less memory.
    least: u64,
    now: u64,
    patience: u32,
    /// Steps since the size last changed.
    quiet: u32,
}

impl Pace {
    pub(super) fn new(planned: u64) -> Self {
        let planned = planned.max(1);
        Self { planned, least: 1, now: planned, patience: PATIENCE, quiet: 0 }
    }

    /// The size.
    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// Tries again after so many steps without a failure.
    pub(super) const fn with_patience(self, steps: u32) -> Self {
        Self { patience: steps, ..self }
    }

    /// The same patience with another plan.
    pub(super) fn with_planned(self, planned: u64) -> Self {
        Self { patience: self.patience, ..Self::new(planned) }
    }

    /// Takes note of what it turned out to be good for: more than `most` is no more than that, and less than `least` no
    /// less.
    pub(super) fn within(&mut self, least: u64, most: u64) {
        self.planned = self.planned.min(most.max(1));
        self.now = self.now.min(self.planned);
        self.least = least.clamp(1, self.planned);
    }

    /// Goes on with at most half of what there `was` of it, if that is less than there may be, and no more than `most`; `None`
    /// when there is nothing smaller.
    pub(super) fn shrink(&mut self, was: u64, most: Option<u64>) -> Option<u64> {
        let was = self.now.min(was);
        if was <= self.least {
            return None;
        }
        // Fewer steps than it takes to grow: it was the growth that failed.
        if self.now < self.planned || self.quiet < self.patience {
            self.patience = self.patience.saturating_mul(2).min(MOST_PATIENCE);
        }
        self.now = most.unwrap_or(u64::MAX).min(was / 2).max(self.least);
        self.quiet = 0;
        Some(self.now)
    }

    /// Counts a step that went well; the new size if that makes it larger.
    pub(super) fn stepped(&mut self) -> Option<u64> {
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

    use super::Pace;

    #[test]
    fn it_shrinks_to_one_and_then_no_further() {
        let mut pace = Pace::new(12);
        let sizes: Vec<_> = std::iter::from_fn(|| pace.shrink(u64::MAX, None)).collect();
        assert_eq!(sizes, [6, 3, 1]);
    }

    #[test]
    fn what_was_planned_anew_is_taken_where_it_is_smaller_than_half() {
        assert_eq!(Pace::new(64).shrink(u64::MAX, Some(10)), Some(10));
        assert_eq!(Pace::new(64).shrink(u64::MAX, Some(60)), Some(32));
        assert_eq!(Pace::new(64).shrink(u64::MAX, Some(0)), Some(1));
    }

    #[test]
    fn where_less_was_there_than_may_be_it_shrinks_from_that_and_is_patient_once() {
        let mut pace = Pace::new(64).with_patience(3);
        assert_eq!((pace.shrink(8, None), pace.shrink(1, None)), (Some(4), None));
        let grown: Vec<_> = (0..100).filter_map(|step| Some((step, pace.stepped()?))).collect();
        assert_eq!(grown, [(5, 8), (11, 16), (17, 32), (23, 64)]);
    }

    #[test]
    fn it_stays_within_what_it_is_good_for() {
        // Nobody planned it: all of it is 100 bytes, of which 30 cannot be parted.
        let mut pace = Pace::new(u64::MAX).with_patience(1);
        pace.within(30, 100);
        let sizes: Vec<_> = std::iter::from_fn(|| pace.shrink(u64::MAX, None)).collect();
        assert_eq!(sizes, [50, 30]);
        let sizes: Vec<_> = (0..2000).filter_map(|_| pace.stepped()).collect();
        assert_eq!(sizes, [60, 100]);
        // What was planned is less than any part.
        let mut pace = Pace::new(20);
        pace.within(30, 100);
        assert_eq!((pace.now(), pace.shrink(u64::MAX, None)), (20, None));
    }

    #[test]
    fn it_grows_back_after_a_quiet_interval_and_waits_longer_when_that_fails() {
        let mut pace = Pace::new(8).with_patience(3);
        pace.shrink(u64::MAX, None);
        let waits = |pace: &mut Pace| (1..100).find(|_| pace.stepped().is_some()).unwrap();
        let first = waits(&mut pace);
        assert_eq!(pace.now(), 8);
        pace.shrink(u64::MAX, None);
        let second = waits(&mut pace);
        assert!(second > first, "{first}, then {second}");
    }

    proptest! {
        #[test]
        fn it_is_never_larger_than_planned_nor_empty(planned in 1..5000_u64, fails in prop::collection::vec(any::<bool>(), 0..300)) {
            let mut pace = Pace::new(planned).with_patience(2);
            for fails in fails {
                let _ = if fails { pace.shrink(u64::MAX, None) } else { pace.stepped() };
                prop_assert!((1..=planned).contains(&pace.now()));
            }
        }
    }
}
