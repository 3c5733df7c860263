//! Shares of an optimizer step by the speeds of ranks.

use core::ops::Range;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use serde::{Deserialize, Serialize};

/// Samples of one rank in an optimizer step, where ranks have unequal shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Share {
    /// Samples of the ranks before this one.
    pub first: u64,
    /// Samples of this rank.
    pub samples: u64,
}

impl Share {
    /// The rank's part of a step with `samples`, where a full step has `global_batch`. The parts of all ranks are consecutive
    /// and make up the step.
    pub fn part(self, samples: u64, global_batch: u64) -> Range<u64> {
        let position = |sample| (u128::from(sample) * u128::from(samples) / u128::from(global_batch.max(1))) as u64;
        position(self.first)..position(self.first + self.samples)
    }
}

/// Shares the `samples` of a step so that the slowest rank ends as early as possible.
///
/// `speeds` are samples per second of each rank, positive and finite. Each rank gets at least one sample, and a faster rank
/// no fewer than a slower one; equally fast ranks differ by at most one, the lower rank with more. `None` if there are fewer
/// samples than ranks.
pub fn shares(samples: u64, speeds: &[f64]) -> Option<Vec<Share>> {
    let spare = samples.checked_sub(speeds.len() as u64)?;
    let seconds = spare as f64 / speeds.iter().sum::<f64>();
    // No more than `samples` in all, so the last samples can be given one by one.
    let mut counts: Vec<u64> = speeds.iter().map(|speed| ((seconds * speed) as u64).max(1)).collect();
    let left = samples.saturating_sub(counts.iter().sum());
    // Positive numbers are ordered like their bits.
    let end = |rank: usize, count: u64| Reverse((((count + 1) as f64 / speeds[rank]).to_bits(), rank));
    let mut next: BinaryHeap<_> = counts.iter().enumerate().map(|(rank, count)| end(rank, *count)).collect();
    for _ in 0..left {
        let mut earliest = next.peek_mut()?;
        let rank = earliest.0.1;
        counts[rank] += 1;
        *earliest = end(rank, counts[rank]);
    }
    let mut first = 0;
    let share = |samples| {
        let share = Share { first, samples };
        first += samples;
        share
    };
    Some(counts.into_iter().map(share).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{Share, shares};

    fn counts(samples: u64, speeds: &[f64]) -> Vec<u64> {
        let shares = shares(samples, speeds).expect("enough samples");
        shares.into_iter().map(|share| share.samples).collect()
    }

    /// Seconds of the slowest rank.
    fn slowest(counts: &[u64], speeds: &[f64]) -> f64 {
        counts.iter().zip(speeds).map(|(count, speed)| *count as f64 / speed).fold(0.0, f64::max)
    }

    /// The least seconds of the slowest rank, of all ways to share.
    fn best(samples: u64, speeds: &[f64]) -> f64 {
        let (speed, others) = speeds.split_first().expect("a rank");
        if others.is_empty() {
            return samples as f64 / speed;
        }
        let with = |own: u64| (own as f64 / speed).max(best(samples - own, others));
        (1..=samples - others.len() as u64).map(with).fold(f64::INFINITY, f64::min)
    }

    #[test]
    fn shares_follow_the_speeds() {
        assert_eq!(counts(512, &[3.0, 1.0]), [384, 128]);
        assert_eq!(counts(10, &[1.0, 1.0, 1.0]), [4, 3, 3]);
        assert_eq!(counts(4, &[1000.0, 1.0, 1.0, 1.0]), [1, 1, 1, 1]);
        assert_eq!(counts(5, &[1000.0, 1.0, 1.0, 1.0]), [2, 1, 1, 1]);
        assert_eq!(shares(2, &[1.0; 3]), None);
        assert_eq!(shares(512, &[3.0, 1.0]).unwrap()[1], Share { first: 384, samples: 128 });
    }

    #[test]
    fn many_ranks_share_a_large_step_at_once() {
        let speeds: Vec<f64> = (0..10_240).map(|rank| 1.0 + f64::from(rank % 7)).collect();
        assert_eq!(counts(1 << 40, &speeds).into_iter().sum::<u64>(), 1 << 40);
    }

    fn speeds() -> impl Strategy<Value = Vec<f64>> {
        prop::collection::vec(0.1_f64..50.0, 1..9)
    }

    proptest! {
        #[test]
        fn they_add_up_and_order_like_the_speeds(speeds in speeds(), more in 0_u64..1_000_000) {
            let samples = speeds.len() as u64 + more;
            let counts = counts(samples, &speeds);
            prop_assert_eq!(counts.iter().sum::<u64>(), samples);
            prop_assert!(counts.iter().all(|count| *count >= 1));
            for (one, speed) in speeds.iter().enumerate() {
                for (other, lower) in speeds.iter().enumerate() {
                    let margin = u64::from(speed.to_bits() == lower.to_bits());
                    prop_assert!(speed < lower || counts[one] + margin >= counts[other]);
                }
            }
        }

        #[test]
        fn a_faster_rank_never_gets_less(speeds in speeds(), more in 0_u64..10_000, rank: prop::sample::Index, by in 1.0_f64..4.0) {
            let rank = rank.index(speeds.len());
            let samples = speeds.len() as u64 + more;
            let mut faster = speeds.clone();
            faster[rank] *= by;
            prop_assert!(counts(samples, &faster)[rank] >= counts(samples, &speeds)[rank]);
        }

        #[test]
        fn another_order_of_the_ranks_orders_the_shares(
            (speeds, order) in speeds().prop_flat_map(|speeds| {
                let order = (0..speeds.len()).collect::<Vec<_>>();
                (Just(speeds), Just(order).prop_shuffle())
            }),
            more in 0_u64..10_000,
        ) {
            let samples = speeds.len() as u64 + more;
            let shuffled: Vec<f64> = order.iter().map(|rank| speeds[*rank]).collect();
            let (found, before) = (counts(samples, &shuffled), counts(samples, &speeds));
            prop_assert_eq!(found, order.iter().map(|rank| before[*rank]).collect::<Vec<_>>());
        }

        #[test]
        fn no_other_shares_end_earlier(speeds in prop::collection::vec(0.1_f64..50.0, 1..4), more in 0_u64..25) {
            let samples = speeds.len() as u64 + more;
            let found = slowest(&counts(samples, &speeds), &speeds);
            prop_assert!(found <= best(samples, &speeds) * (1.0 + 1e-12), "{}", found);
        }

        #[test]
        fn parts_of_a_shorter_step_make_it_up(speeds in speeds(), more in 0_u64..1000, part in 0.0_f64..1.0) {
            let global = speeds.len() as u64 + more;
            let samples = (global as f64 * part) as u64;
            let mut end = 0;
            for share in shares(global, &speeds).expect("enough samples") {
                let part = share.part(samples, global);
                prop_assert_eq!(part.start, end);
                prop_assert_eq!(share.part(global, global), share.first..share.first + share.samples);
                end = part.end;
            }
            prop_assert_eq!(end, samples);
        }
    }
}
