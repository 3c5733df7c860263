//! A rank's share of every optimizer step.

use std::ops::Range;

/// A rank's share of the samples of every optimizer step: consecutive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    rank: usize,
    ranks: usize,
    /// Samples of lower ranks.
    before: usize,
    own: usize,
    /// Fewest samples of any rank.
    least: usize,
    all: usize,
}

impl Share {
    /// All samples, of the only rank.
    pub const fn whole(samples: usize) -> Self {
        Self { rank: 0, ranks: 1, before: 0, own: samples, least: samples, all: samples }
    }

    /// `samples` for each of `ranks`.
    pub const fn equal(rank: usize, ranks: usize, samples: usize) -> Self {
        let before = samples.saturating_mul(rank);
        Self { rank, ranks, before, own: samples, least: samples, all: samples.saturating_mul(ranks) }
    }

    /// The share of `rank` among `shares`, which has one number of samples for every rank.
    ///
    /// `None` without such a rank.
    pub fn of(rank: usize, shares: &[usize]) -> Option<Self> {
        let (own, least) = (*shares.get(rank)?, *shares.iter().min()?);
        let (before, all) = (shares[..rank].iter().sum(), shares.iter().sum());
        Some(Self { rank, ranks: shares.len(), before, own, least, all })
    }

    /// Number of the rank, from 0.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// Samples of the rank.
    pub const fn samples(&self) -> usize {
        self.own
    }

    /// Samples of all ranks.
    pub const fn all(&self) -> usize {
        self.all
    }

    /// Part of the rank in so many samples: consecutive ones, in proportion to its share.
    pub fn part(&self, samples: usize) -> Range<usize> {
        // Shares of nothing are equal ones.
        let (before, own, all) =
            if self.all == 0 { (self.rank, 1, self.ranks) } else { (self.before, self.own, self.all) };
        let until = |share: usize| (samples as u128 * share as u128 / all as u128) as usize;
        until(before)..until(before + own)
    }

    /// Indices of the rank's items in an epoch of `total`. The last step is shared in proportion. It is dropped if a rank may
    /// have no item of it, because every rank takes every step, or if `drop_last`.
    pub(super) fn items(self, total: usize, drop_last: bool) -> Vec<usize> {
        let of_step = |begin: usize| {
            let samples = (total - begin).min(self.all);
            let is_shared = samples as u128 * self.least as u128 >= self.all as u128;
            let is_taken = samples == self.all || !drop_last && is_shared;
            let own = if is_taken { self.part(samples) } else { 0..0 };
            own.map(move |item| begin + item)
        };
        (0..total).step_by(self.all.max(1)).flat_map(of_step).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::Share;

    proptest! {
        #[test]
        fn ranks_share_every_step(total in 0..500_usize, shares in vec(1..40_usize, 1..9), drop_last: bool) {
            let ranks: Vec<_> = (0..shares.len()).filter_map(|rank| Share::of(rank, &shares)).collect();
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
