//! Shares of a sharded optimizer: each rank updates whole parameters.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::workload::{Optimizer, Parameters, Tensors};

/// Most parameter tensors that are assigned one by one in a plan. A model of 405 billion parameters has 1,137.
const MOST_ASSIGNED: u64 = 4096;

/// Assigns each parameter to the rank that keeps its optimizer state and updates it.
///
/// The parameters are assigned by falling size, each to the rank with the fewest values so far: the earlier parameter and
/// the lower rank first where sizes are equal. `sizes` are in values; the result has a rank below `ranks` for each.
pub fn owners(sizes: &[u64], ranks: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..sizes.len()).collect();
    order.sort_by_key(|parameter| Reverse(sizes[*parameter]));
    // Ranks beyond the number of parameters stay empty.
    let mut loads: BinaryHeap<_> = (0..ranks.min(sizes.len()).max(1)).map(|rank| Reverse((0, rank))).collect();
    let mut owners = vec![0; sizes.len()];
    for parameter in order {
        let Some(mut least) = loads.peek_mut() else { break };
        let Reverse((values, rank)) = &mut *least;
        *values += u128::from(sizes[parameter]);
        owners[parameter] = *rank;
    }
    owners
}

/// Values of optimizer state on the rank that keeps the most, where `ranks` share the state by [`owners`].
///
/// For over 4,096 tensors, and for parameters of unknown shape, an upper bound: an equal share and the largest
/// tensor's state.
pub fn largest_shard(parameters: &Parameters, optimizer: Optimizer, ranks: u64) -> u64 {
    if ranks == 1 {
        return parameters.state(optimizer);
    }
    let state_each = |group: &Tensors| optimizer.state_values(&Tensors { count: 1, ..*group });
    let tensors = parameters.trained.iter().fold(0, |sum: u64, group| sum.saturating_add(group.count));
    if tensors > MOST_ASSIGNED {
        let largest = parameters.trained.iter().map(state_each).max().unwrap_or(0);
        return parameters.state(optimizer).div_ceil(ranks).saturating_add(largest).min(parameters.state(optimizer));
    }
    let all = || parameters.trained.iter().flat_map(|group| (0..group.count).map(move |_| group));
    let sizes: Vec<u64> = all().map(Tensors::values_each).collect();
    let mut shards = vec![0_u64; sizes.len()];
    for (owner, group) in owners(&sizes, usize::try_from(ranks).unwrap_or(usize::MAX)).into_iter().zip(all()) {
        shards[owner] = shards[owner].saturating_add(state_each(group));
    }
    shards.into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{largest_shard, owners};
    use crate::workload::{Declared, Optimizer, Transformer};

    fn loads(sizes: &[u64], ranks: usize) -> Vec<u64> {
        let mut loads = vec![0; ranks];
        for (size, owner) in sizes.iter().zip(owners(sizes, ranks)) {
            loads[owner] += size;
        }
        loads
    }

    #[test]
    fn the_largest_parameters_come_first_and_each_goes_to_the_least_loaded_rank() {
        assert_eq!(owners(&[1, 5, 3, 3, 2], 2), [1, 0, 1, 1, 0]);
        assert_eq!(owners(&[4, 4, 4], 3), [0, 1, 2]);
        assert_eq!(owners(&[7, 8], 10_240), [1, 0]);
        assert_eq!(owners(&[], 4), [0_usize; 0]);
    }

    #[test]
    fn gpt2_is_shared_down_to_its_embedding() {
        let gpt2 = Transformer::new(12, 768, 50257, 1024).workload().parameters;
        let all = gpt2.state(Optimizer::AdamW);
        assert_eq!(all, 2 * 124_439_808);
        // Two ranks hold half each to 0.1%; from four ranks on, one holds the embedding alone.
        assert!(largest_shard(&gpt2, Optimizer::AdamW, 2) - all / 2 < all / 1000);
        for ranks in [4, 8, 10_240] {
            assert_eq!(largest_shard(&gpt2, Optimizer::AdamW, ranks), 2 * 50257 * 768, "{ranks}");
        }
        assert_eq!(largest_shard(&gpt2, Optimizer::Sgd, 2), 0);
    }

    #[test]
    fn parameters_of_unknown_shape_are_shared_evenly() {
        let costs = Declared { parameters: 1_000_000, ..Declared::default() }.workload().parameters;
        assert_eq!(largest_shard(&costs, Optimizer::AdamW, 8), 250_000 + 2);
        assert_eq!(largest_shard(&costs, Optimizer::AdamW, 1), 2_000_000);
    }

    /// The least load of the most loaded rank, of all ways to assign the sizes.
    fn best(sizes: &[u64], loads: &mut [u64]) -> u64 {
        let Some((size, others)) = sizes.split_first() else { return loads.iter().copied().max().unwrap_or(0) };
        let with = |rank: usize, loads: &mut [u64]| {
            loads[rank] += size;
            let best = best(others, loads);
            loads[rank] -= size;
            best
        };
        (0..loads.len()).map(|rank| with(rank, loads)).min().unwrap_or(0)
    }

    proptest! {
        #[test]
        fn shares_add_up_and_are_within_a_third_of_the_best(
            sizes in prop::collection::vec(0_u64..1000, 0..8),
            ranks in 1_usize..4,
        ) {
            let found = loads(&sizes, ranks);
            prop_assert_eq!(found.iter().sum::<u64>(), sizes.iter().sum::<u64>());
            // Graham 1969: at most 4/3 - 1/(3 ranks) of the best.
            let best = best(&sizes, &mut vec![0; ranks]);
            let most = found.into_iter().max().unwrap_or(0);
            prop_assert!(most * 3 * ranks as u64 <= best * (4 * ranks as u64 - 1), "{} for {}", most, best);
        }

        #[test]
        fn the_loads_do_not_depend_on_the_order(
            sizes in prop::collection::vec(0_u64..50, 0..40).prop_flat_map(|sizes| (Just(sizes.clone()), Just(sizes).prop_shuffle())),
            ranks in 1_usize..9,
        ) {
            let sorted = |sizes: &[u64]| { let mut loads = loads(sizes, ranks); loads.sort_unstable(); loads };
            prop_assert_eq!(sorted(&sizes.0), sorted(&sizes.1));
        }
    }
}
