use proptest::prelude::*;

use super::identifiers;

proptest! {
    #[test]
    fn the_own_index_is_at_the_position_of_the_rank(own: u16, ranks in 1..300_usize, rank in 0..300_usize) {
        let rank = rank % ranks;
        let mut all = identifiers(own, rank, ranks);
        all.sort();
        prop_assert_eq!(all.len(), ranks);
        prop_assert_eq!(all.iter().position(|id| id.index_id == own), Some(rank));
        all.dedup();
        prop_assert_eq!(all.len(), ranks);
    }
}
