//! Items of an epoch that a rank trains on.

use std::ops::Range;

/// Returns the part of `rank` in so many samples: consecutive ones, distributed evenly.
pub(crate) fn part_of_rank(rank: usize, ranks: usize, samples: usize) -> Range<usize> {
    let (each, more) = (samples / ranks, samples % ranks);
    let begin = rank * each + rank.min(more);
    begin..begin + each + usize::from(rank < more)
}

/// Rank of a number of ranks.
#[derive(Clone, Copy, Debug)]
pub(super) struct RankOf {
    pub rank: usize,
    pub ranks: usize,
}

impl RankOf {
    /// The only rank.
    pub(super) const ALONE: Self = Self { rank: 0, ranks: 1 };

    /// Indices of the rank's items in an epoch of `total`, with `batch` items a step and rank. The last step is shared evenly. It
    /// is dropped if it has fewer items than ranks, because every rank takes every step, or if `drop_last`.
    pub(super) fn items(self, total: usize, batch: usize, drop_last: bool) -> Vec<usize> {
        let step = batch.saturating_mul(self.ranks);
        let of_step = |begin: usize| {
            let samples = (total - begin).min(step);
            let is_taken = samples == step || !drop_last && samples >= self.ranks;
            let own = if is_taken { part_of_rank(self.rank, self.ranks, samples) } else { 0..0 };
            own.map(move |item| begin + item)
        };
        (0..total).step_by(step).flat_map(of_step).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::RankOf;

    proptest! {
        #[test]
        fn ranks_share_every_step_evenly(total in 0..500_usize, batch in 1..40_usize, ranks in 1..9_usize, drop_last: bool) {
            let items = |rank| RankOf { rank, ranks }.items(total, batch, drop_last);
            let all: Vec<Vec<usize>> = (0..ranks).map(items).collect();
            let step = batch * ranks;
            let steps = all[0].len().div_ceil(batch);
            for number in 0..steps {
                let of_rank = |items: &Vec<usize>| items.chunks(batch).nth(number).map(<[usize]>::to_vec).unwrap_or_default();
                let parts: Vec<_> = all.iter().map(of_rank).collect();
                let sizes = parts.iter().map(Vec::len);
                prop_assert!(sizes.clone().min() >= Some(1) && sizes.clone().max() <= sizes.min().map(|least| least + 1));
                // Together they are what one rank alone would train on.
                let alone: Vec<_> = (number * step..total.min((number + 1) * step)).collect();
                prop_assert_eq!(parts.concat(), alone);
            }
            let left_out = total - all.iter().map(Vec::len).sum::<usize>();
            prop_assert!(left_out < if drop_last { step } else { ranks }, "{} are left out", left_out);
            prop_assert!(all.iter().all(|items| items.len().div_ceil(batch) == steps));
        }
    }
}
