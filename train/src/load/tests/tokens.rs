use burn::data::dataloader::BatchStrategy;
use burn::data::dataset::InMemDataset;
use burn::tensor::Device;
use proptest::prelude::*;

use super::PrefetchLoader;
use crate::load::TokenBudget;

fn padded(lengths: &[usize]) -> usize {
    lengths.len() * lengths.iter().copied().max().unwrap_or(0).max(1)
}

fn strategy(tokens: usize) -> TokenBudget<usize> {
    TokenBudget::new(tokens, |length| *length)
}

/// Checks batches that a strategy formed.
fn check(batches: &[Vec<usize>], lengths: &[usize], tokens: usize) -> Result<(), TestCaseError> {
    prop_assert_eq!(batches.concat(), lengths);
    for batch in batches {
        prop_assert!(batch.len() == 1 || padded(batch) <= tokens, "{:?} of {}", batch, tokens);
    }
    for (batch, next) in batches.iter().zip(&batches[1.min(batches.len())..]) {
        let joined = [&batch[..], &next[..1]].concat();
        prop_assert!(padded(&joined) > tokens, "{:?} had room for {}", batch, next[0]);
    }
    Ok(())
}

proptest! {
    #[test]
    fn batches_hold_the_budget_and_as_much_as_fits(
        lengths in proptest::collection::vec(0_usize..30, 0..60),
        tokens in 0_usize..80,
        workers in 0_usize..4,
    ) {
        let loader = PrefetchLoader::new(InMemDataset::new(lengths.clone()), super::AsTheyAre, 1)
            .strategy(strategy(tokens))
            .num_workers(workers)
            .device(Device::flex());
        let batches: Vec<_> = loader.iter().map(Result::unwrap).collect();
        check(&batches, &lengths, tokens)?;
    }

    #[test]
    fn ranks_have_as_many_batches_each_and_all_items_between_them(
        lengths in proptest::collection::vec(0_usize..30, 0..60),
        tokens in 0_usize..80,
        ranks in 1_usize..5,
        drop_last: bool,
        seed in proptest::option::of(0_u64..9),
    ) {
        let of_rank = |rank: usize| {
            let loader = PrefetchLoader::new(InMemDataset::new(lengths.clone()), super::AsTheyAre, 1)
                .strategy(strategy(tokens))
                .drop_last(drop_last)
                .num_workers(rank % 3)
                .share(super::super::Share::equal(rank, ranks, 1))
                .device(Device::flex());
            let loader = seed.into_iter().fold(loader, PrefetchLoader::shuffle);
            let batches: Vec<_> = loader.iter().map(Result::unwrap).collect();
            batches
        };
        let of_ranks: Vec<_> = (0..ranks).map(of_rank).collect();
        let steps = of_ranks[0].len();
        prop_assert!(of_ranks.iter().all(|batches| batches.len() == steps));
        for batch in of_ranks.iter().flatten() {
            prop_assert!(batch.len() == 1 || !batch.is_empty() && padded(batch) <= tokens, "{:?} of {}", batch, tokens);
        }
        // One rank alone has the same items in the same order.
        let alone = PrefetchLoader::new(InMemDataset::new(lengths.clone()), super::AsTheyAre, 1).device(Device::flex());
        let alone = seed.into_iter().fold(alone.strategy(strategy(tokens)), PrefetchLoader::shuffle);
        let alone: Vec<usize> = alone.iter().flat_map(Result::unwrap).collect();
        let dealt: Vec<usize> = (0..steps).flat_map(|step| of_ranks.iter().flat_map(move |batches| batches[step].clone())).collect();
        prop_assert_eq!(&dealt[..], &alone[..dealt.len()]);
        prop_assert!(drop_last || alone.len() - dealt.len() < ranks, "{} are left out", alone.len() - dealt.len());
    }

    #[test]
    fn a_strategy_that_was_fed_everything_at_once_holds_the_budget_too(
        lengths in proptest::collection::vec(0_usize..30, 0..60),
        tokens in 0_usize..80,
    ) {
        let mut strategy = strategy(tokens);
        for length in &lengths {
            strategy.add(*length);
        }
        let batches: Vec<_> = std::iter::from_fn(|| strategy.batch(true)).collect();
        check(&batches, &lengths, tokens)?;
    }
}

#[test]
fn a_copy_begins_without_items() {
    let mut first = strategy(10);
    first.add(3);
    assert_eq!(first.clone_dyn().batch(true), None);
    assert_eq!(first.batch(true), Some(vec![3]));
}

#[test]
fn progress_is_complete_with_the_last_batch() {
    for workers in super::WORKERS {
        let dataset = InMemDataset::new(vec![4, 4, 9, 1, 1]);
        let loader = PrefetchLoader::new(dataset, super::AsTheyAre, 1).strategy(strategy(8)).num_workers(workers);
        let seen: Vec<_> = super::epoch(&loader).into_iter().map(|(batch, consumed)| (batch.len(), consumed)).collect();
        assert_eq!(seen, [(2, 2), (1, 3), (2, 5)]);
    }
}
