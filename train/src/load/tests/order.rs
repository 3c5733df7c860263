use std::sync::Arc;

use burn::data::dataloader::split::split_dataloader;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder, FixBatchStrategy};
use burn::tensor::Device;
use proptest::prelude::*;

use super::{AsTheyAre, WORKERS, epoch, loader, numbers, seen};

/// Burn's loader without workers.
fn burns(items: usize, batch_size: usize, seed: Option<u64>) -> Arc<dyn DataLoader<Vec<usize>>> {
    let builder = DataLoaderBuilder::new(AsTheyAre).batch_size(batch_size).set_device(Device::flex());
    seed.into_iter().fold(builder, DataLoaderBuilder::shuffle).build(numbers(items))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn batches_and_progress_are_those_of_burns_loader(
        items in 0_usize..40,
        batch_size in 1_usize..12,
        workers in 0_usize..5,
        depth in 1_usize..4,
        seed in proptest::option::of(0_u64..100),
        by_strategy: bool,
    ) {
        let burns = burns(items, batch_size, seed);
        let ours = if by_strategy {
            loader(items, 1, workers).strategy(FixBatchStrategy::new(batch_size)).depth(depth)
        } else {
            loader(items, batch_size, workers).depth(depth)
        };
        let ours = seed.into_iter().fold(ours, super::PrefetchLoader::shuffle);
        prop_assert_eq!(ours.num_items(), burns.num_items());
        for _ in 0..3 {
            prop_assert_eq!(epoch(&ours), epoch(&*burns));
        }
    }

    #[test]
    fn a_resumed_epoch_is_the_rest_of_burns(
        items in 0_usize..40,
        batch_size in 1_usize..12,
        workers in 0_usize..3,
        seed in proptest::option::of(0_u64..100),
        by_strategy: bool,
        begun in 0_usize..3,
        epochs in 0_usize..4,
        batches in 0_usize..12,
    ) {
        let burns = burns(items, batch_size, seed);
        let all: Vec<_> = (0..7).map(|_| epoch(&*burns)).collect();
        let ours = if by_strategy {
            loader(items, 1, workers).strategy(FixBatchStrategy::new(batch_size))
        } else {
            loader(items, batch_size, workers)
        };
        let ours = seed.into_iter().fold(ours, super::PrefetchLoader::shuffle);
        for expected in all.iter().take(begun) {
            prop_assert_eq!(&epoch(&ours), expected);
        }
        let resumed = begun.max(epochs);
        let rest = seen(ours.iter_from(epochs as u64, batches as u64));
        prop_assert_eq!(&rest[..], &all[resumed][batches.min(all[resumed].len())..]);
        prop_assert_eq!(&epoch(&ours), &all[resumed + 1]);
    }
}

#[test]
fn epochs_of_a_seed_differ_and_hold_every_item() {
    let loaders = WORKERS.map(|workers| loader(100, 7, workers).shuffle(42));
    let mut orders = Vec::new();
    for _ in 0..2 {
        let epochs = loaders.each_ref().map(|loader| epoch(loader));
        assert_eq!(epochs[0], epochs[1]);
        assert_eq!(epochs[0], epochs[2]);
        let order: Vec<_> = epochs.into_iter().next().unwrap().into_iter().flat_map(|(batch, _)| batch).collect();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        assert!(sorted.into_iter().eq(0..100));
        orders.push(order);
    }
    assert_ne!(orders[0], orders[1]);
}

#[test]
fn parts_for_several_devices_are_those_of_burns_loader() {
    let devices = [Device::flex(), Device::flex(), Device::flex()];
    for workers in WORKERS {
        let ours = split_dataloader(loader(23, 4, workers).shuffle(3).build(), &devices);
        let burns = split_dataloader(burns(23, 4, Some(3)), &devices);
        let mut items = Vec::new();
        for (ours, burns) in ours.iter().zip(&burns) {
            let (ours, burns) = (epoch(&**ours), epoch(&**burns));
            assert_eq!(ours, burns);
            items.extend(ours.into_iter().flat_map(|(batch, _)| batch));
        }
        items.sort_unstable();
        assert!(items.into_iter().eq(0..23));
    }
}

#[test]
fn a_last_batch_that_is_left_out_is_over_with_the_one_before() {
    for workers in WORKERS {
        let fixed = loader(10, 4, workers).drop_last(true);
        let grouped = loader(10, 1, workers).strategy(FixBatchStrategy::new(4)).drop_last(true);
        for loader in [fixed, grouped] {
            assert_eq!(epoch(&loader), [(vec![0, 1, 2, 3], 4), (vec![4, 5, 6, 7], 10)]);
            let mut iterator = loader.iter();
            iterator.nth(1).unwrap().unwrap();
            assert!(iterator.progress().is_completed());
        }
    }
}

#[test]
fn an_epoch_without_batches_is_complete_when_it_is_over() {
    for workers in WORKERS {
        let loader = loader(3, 4, workers).drop_last(true);
        let mut epoch = loader.iter();
        assert!(epoch.next().is_none());
        assert!(epoch.progress().is_completed());
    }
}

#[test]
fn epochs_of_one_loader_can_be_interleaved() {
    let loader = loader(40, 4, 2).depth(1);
    let (mut first, mut second) = (loader.iter(), loader.iter());
    for _ in 0..10 {
        assert_eq!(first.next().unwrap().unwrap(), second.next().unwrap().unwrap());
    }
    assert!(first.next().is_none() && second.next().is_none());
}
