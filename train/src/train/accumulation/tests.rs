use proptest::prelude::*;

use super::cuts;

proptest! {
    #[test]
    fn every_sample_is_in_one_micro_batch(
        samples in 0..3000_usize,
        micro_batch in 1..700_usize,
        is_even in proptest::bool::ANY,
    ) {
        let cut: Vec<_> = cuts(samples, micro_batch, is_even).collect();
        prop_assert!(cut.iter().all(|cut| (1..=micro_batch).contains(&cut.len())));
        prop_assert_eq!(cut.len(), samples.div_ceil(micro_batch));
        if let (true, Some(first), Some(last)) = (is_even, cut.first(), cut.last()) {
            prop_assert!(first.len() - last.len() <= 1);
        }
        prop_assert_eq!(cut.into_iter().flatten().collect::<Vec<_>>(), (0..samples).collect::<Vec<_>>());
    }
}
