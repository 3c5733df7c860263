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
