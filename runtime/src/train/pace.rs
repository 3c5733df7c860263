//! How large micro-batches are: as planned, smaller after memory ran out, and planned again later.

/// Optimizer steps without a failure after which a larger micro-batch is tried again.
const PATIENCE: u32 = 100;
/// It grows with every trial that failed, to at most so many.
const MOST_PATIENCE: u32 = 10_000;

/// The size of micro-batches over a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    planned: usize,
    now: usize,
    patience: u32,
    /// Steps since the size last changed.
    quiet: u32,
}

impl Pace {
    pub(super) fn new(planned: usize) -> Self {
        Self { planned: planned.max(1), now: planned.max(1), patience: PATIENCE, quiet: 0 }
    }

    /// Samples in a micro-batch.
    pub(super) const fn micro_batch(&self) -> usize {
        self.now
    }

    /// Tries again after so many steps without a failure.
    pub(super) const fn with_patience(self, steps: u32) -> Self {
        Self { patience: steps, ..self }
    }

    /// Goes on with at most half, and no more than what was planned anew; `None` when there is nothing smaller.
    pub(super) fn shrink(&mut self, planned_anew: Option<usize>) -> Option<usize> {
        if self.now == 1 {
            return None;
        }
        // Fewer steps than it takes to grow: it was the growth that failed.
        if self.now < self.planned || self.quiet < self.patience {
            self.patience = self.patience.saturating_mul(2).min(MOST_PATIENCE);
        }
        self.now = planned_anew.unwrap_or(usize::MAX).min(self.now / 2).max(1);
        self.quiet = 0;
        Some(self.now)
    }

    /// Counts a step that went well; the new size if that makes it larger.
    pub(super) fn stepped(&mut self) -> Option<usize> {
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
        let sizes: Vec<_> = std::iter::from_fn(|| pace.shrink(None)).collect();
        assert_eq!(sizes, [6, 3, 1]);
    }

    #[test]
    fn what_was_planned_anew_is_taken_where_it_is_smaller_than_half() {
        assert_eq!(Pace::new(64).shrink(Some(10)), Some(10));
        assert_eq!(Pace::new(64).shrink(Some(60)), Some(32));
        assert_eq!(Pace::new(64).shrink(Some(0)), Some(1));
    }

    #[test]
    fn it_grows_back_after_a_quiet_interval_and_waits_longer_when_that_fails() {
        let mut pace = Pace::new(8).with_patience(3);
        pace.shrink(None);
        let waits = |pace: &mut Pace| (1..100).find(|_| pace.stepped().is_some()).unwrap();
        let first = waits(&mut pace);
        assert_eq!(pace.micro_batch(), 8);
        pace.shrink(None);
        let second = waits(&mut pace);
        assert!(second > first, "{first}, then {second}");
    }

    proptest! {
        #[test]
        fn it_is_never_larger_than_planned_nor_empty(planned in 1..5000_usize, fails in prop::collection::vec(any::<bool>(), 0..300)) {
            let mut pace = Pace::new(planned).with_patience(2);
            for fails in fails {
                let _ = if fails { pace.shrink(None) } else { pace.stepped() };
                prop_assert!((1..=planned).contains(&pace.micro_batch()));
            }
        }
    }
}
