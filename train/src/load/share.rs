//! A rank's share of every optimizer step.

use std::ops::Range;

use gpu_tuned_core::exchange;

/// A rank's share of the samples of every optimizer step: consecutive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    rank: usize,
    ranks: usize,
    own: exchange::Share,
    /// Fewest samples of any rank.
    least: u64,
    all: u64,
}

impl Share {
    /// All samples, of the only rank.
    pub const fn whole(samples: usize) -> Self {
        Self::equal(0, 1, samples)
    }

    /// `samples` for each of `ranks`.
    pub const fn equal(rank: usize, ranks: usize, samples: usize) -> Self {
        let least = samples as u64;
        let own = exchange::Share { first: least.saturating_mul(rank as u64), samples: least };
        Self { rank, ranks, own, least, all: least.saturating_mul(ranks as u64) }
    }

    /// The share of `rank` among those of all ranks; `None` without such a rank.
    pub fn of(rank: usize, shares: &[exchange::Share]) -> Option<Self> {
        let least = shares.iter().map(|share| share.samples).min()?;
        let all = shares.iter().map(|share| share.samples).sum();
        Some(Self { rank, ranks: shares.len(), own: *shares.get(rank)?, least, all })
    }

    /// Number of the rank, from 0.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// Samples of all ranks.
    pub const fn all(&self) -> u64 {
        self.all
    }

    /// Part of the rank in so many samples: consecutive ones, in proportion to its share.
    pub fn part(&self, samples: usize) -> Range<usize> {
        let part = self.own.part(samples as u64, self.all);
        part.start as usize..part.end as usize
    }

    /// Indices of the rank's items in an epoch of `total`. The last step is shared in proportion. It is dropped if a rank may
    /// have no item of it, because every rank takes every step, or if `drop_last`.
    pub(super) fn items(self, total: usize, drop_last: bool) -> Vec<usize> {
        let step = usize::try_from(self.all).unwrap_or(usize::MAX).max(1);
        let of_step = |begin: usize| {
            let samples = (total - begin).min(step);
            let is_shared = samples as u128 * u128::from(self.least) >= u128::from(self.all);
            let is_taken = samples == step || !drop_last && is_shared;
            let own = if is_taken { self.part(samples) } else { 0..0 };
            own.map(move |item| begin + item)
        };
        (0..total).step_by(step).flat_map(of_step).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::{Share, exchange};

    /// Shares with these samples, in the order of ranks.
    pub(crate) fn shares(samples: &[usize]) -> Vec<exchange::Share> {
        let first = |rank: usize| samples[..rank].iter().sum::<usize>() as u64;
        let share = |(rank, samples): (usize, &usize)| exchange::Share { first: first(rank), samples: *samples as u64 };
        samples.iter().enumerate().map(share).collect()
    }

    proptest! {
        #[test]
        fn ranks_share_every_step(total in 0..500_usize, shares in vec(1..40_usize, 1..9), drop_last: bool) {
            let ranks: Vec<_> = (0..shares.len()).filter_map(|rank| Share::of(rank, &self::shares(&shares))).collect();
            let all: Vec<Vec<usize>> = ranks.iter().map(|share| share.items(total, drop_last)).collect();
            let step = shares.iter().sum::<usize>();
            let steps = all[0].len().div_ceil(shares[0]);
            for number in 0..steps {
                let of_rank = |(items, share): (&Vec<usize>, &usize)| {
                    items.chunks(*share).nth(number).map(<[usize]>::to_vec).unwrap_or_default()
                };
                let parts: Vec<_> = all.iter().zip(&shares).map(of_rank).collect();
                let samples = step.min(total - number * step);
                for (part, share) in parts.iter().zip(&shares) {
                    prop_assert!(!part.is_empty() && part.len().abs_diff(samples * share / step) <= 1);
                }
                // Together they are what one rank alone would train on.
                let alone: Vec<_> = (number * step..total.min((number + 1) * step)).collect();
                prop_assert_eq!(parts.concat(), alone);
            }
            let left_out = total - all.iter().map(Vec::len).sum::<usize>();
            prop_assert!(left_out < step, "{} are left out", left_out);
            if !drop_last && shares.windows(2).all(|pair| pair[0] == pair[1]) {
                prop_assert!(left_out < shares.len(), "{} are left out of equal shares", left_out);
            }
            prop_assert!(all.iter().zip(&shares).all(|(items, share)| items.len().div_ceil(*share) == steps));
        }
    }
}
