use std::error::Error;
use std::ops::Range;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, FixBatchStrategy};
use burn::data::dataset::{Dataset, DatasetError, InMemDataset};
use burn::tensor::Device;

use super::{AsTheyAre, PrefetchLoader, WORKERS, loader, numbers};
use crate::load::LoaderError;
use crate::micro_batch::MicroBatch;

/// Failure at item 20 of 40.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    Fails,
    Panics,
    Hangs,
}

struct Faulty(Fault);

impl Dataset<usize> for Faulty {
    fn get(&self, index: usize) -> Result<usize, DatasetError> {
        match (index, self.0) {
            (20, Fault::Fails) => Err(DatasetError::new(std::io::Error::other("item 20 is lost"))),
            (20, Fault::Panics) => panic!("item {index} is cursed"),
            (20, Fault::Hangs) => {
                std::thread::sleep(std::time::Duration::from_secs(1));
                Ok(index)
            }
            _ => Ok(index),
        }
    }

    fn len(&self) -> usize {
        40
    }
}

/// Items that came before the error, and the error; nothing may follow.
fn until_error<B: AsRef<[usize]>>(loader: &impl DataLoader<B>) -> (Vec<usize>, DatasetError) {
    let mut epoch = loader.iter();
    let mut items = Vec::new();
    loop {
        match epoch.next().expect("an error comes before the end") {
            Ok(batch) => items.extend(batch.as_ref()),
            Err(error) => {
                assert_eq!(epoch.progress().items_processed, items.len());
                assert!(!epoch.progress().is_completed());
                assert!(epoch.next().is_none());
                return (items, error);
            }
        }
    }
}

fn panic_of(error: &DatasetError) -> String {
    let error = error.source().and_then(|error| error.downcast_ref::<LoaderError>()).expect("a panic");
    let LoaderError::Panicked { message } = error;
    message.clone()
}

#[test]
fn an_error_of_the_dataset_comes_in_its_place() {
    for workers in WORKERS {
        let fixed = || PrefetchLoader::new(Faulty(Fault::Fails), AsTheyAre, 3).num_workers(workers);
        for loader in [fixed(), fixed().strategy(FixBatchStrategy::new(3))] {
            let (items, error) = until_error(&loader);
            assert!(items.into_iter().eq(0..18));
            assert_eq!(error.to_string(), "item 20 is lost");
        }
    }
}

#[test]
fn a_panic_of_the_dataset_is_an_error() {
    for workers in [1, 3] {
        let fixed = || PrefetchLoader::new(Faulty(Fault::Panics), AsTheyAre, 3).num_workers(workers);
        let (items, error) = until_error(&fixed());
        assert!(items.into_iter().eq(0..18));
        assert_eq!(panic_of(&error), "item 20 is cursed");
        // A strategy runs one batch ahead, and its batch is lost.
        let (_, error) = until_error(&fixed().strategy(FixBatchStrategy::new(3)));
        assert_eq!(panic_of(&error), "item 20 is cursed");
    }
}

struct Breaking;

impl Batcher<usize, Vec<usize>> for Breaking {
    fn batch(&self, items: Vec<usize>, _: &Device) -> Vec<usize> {
        assert!(!items.contains(&7), "seven");
        items
    }
}

#[test]
fn a_panic_of_the_batcher_is_an_error() {
    for workers in [1, 3] {
        let loader = PrefetchLoader::new(numbers(30), Breaking, 2).num_workers(workers);
        let (items, error) = until_error(&loader);
        assert!(items.into_iter().eq(0..6));
        assert_eq!(panic_of(&error), "seven");
    }
}

/// Batch that cannot be uploaded if it contains 7.
#[derive(Clone)]
struct Heavy(Vec<usize>);

impl AsRef<[usize]> for Heavy {
    fn as_ref(&self) -> &[usize] {
        &self.0
    }
}

impl MicroBatch for Heavy {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        Self(self.0.narrow(samples))
    }

    fn on_device(self, _: &Device) -> Self {
        assert!(!self.0.contains(&7), "too heavy");
        assert!(!self.0.contains(&31), "out of device memory allocating 4096 bytes");
        Self(self.0.iter().map(|item| item + BROUGHT).collect())
    }

    fn has_arrived(&self) -> bool {
        !self.0.contains(&(BROUGHT + 21))
    }

    fn bytes(&self, _: &Device) -> usize {
        1
    }
}

/// Offset of items on a device.
const BROUGHT: usize = 1000;

struct Weigh;

impl Batcher<usize, Heavy> for Weigh {
    fn batch(&self, items: Vec<usize>, _: &Device) -> Heavy {
        Heavy(items)
    }
}

#[test]
fn a_panic_of_an_upload_is_an_error_and_others_go_on() {
    let heavy = PrefetchLoader::new(numbers(30), Weigh, 2).num_workers(2).device(Device::flex());
    for _ in 0..2 {
        let (items, error) = until_error(&heavy);
        assert!(items.into_iter().eq(BROUGHT..BROUGHT + 6));
        assert_eq!(panic_of(&error), "too heavy");
    }
    assert_eq!(loader(6, 2, 2).iter().count(), 3);
}

#[test]
fn what_a_device_has_no_memory_for_stays_on_the_host() {
    // One batch does not arrive, of another the upload panics.
    let brought = |item: usize| if [20, 21, 30, 31].contains(&item) { item } else { item + BROUGHT };
    for workers in WORKERS {
        let numbers = InMemDataset::new((20..34).collect());
        let loader = PrefetchLoader::new(numbers, Weigh, 2).num_workers(workers).device(Device::flex());
        let items = loader.iter().flat_map(|batch| batch.unwrap().0);
        assert!(items.eq((20..34).map(brought)), "{workers} workers");
    }
}

#[test]
fn threads_end_with_their_epoch() {
    let loader = loader(1_000_000, 1, 4);
    for _ in 0..3 {
        let mut epoch = loader.iter();
        epoch.next().unwrap().unwrap();
        assert!(loader.batchers_held() > 1, "the threads of the epoch hold the batcher");
        drop(epoch);
        assert_eq!(loader.batchers_held(), 1, "a thread outlived its epoch");
    }
}

#[test]
#[ignore = "started by a_dataset_that_hangs_is_reported_while_it_hangs"]
fn waits_for_an_item() {
    let loader = PrefetchLoader::new(Faulty(Fault::Hangs), AsTheyAre, 3).num_workers(2);
    assert_eq!(loader.iter().flat_map(|batch| batch.unwrap()).count(), 40);
}

#[test]
fn a_dataset_that_hangs_is_reported_while_it_hangs() {
    let output = own_process::run(&mut own_process::command(waits_for_an_item));
    let text = String::from_utf8_lossy(&output.stderr);
    // Patience is short in tests.
    assert!(text.contains("the loader has had no batch for 100ms, still waiting"), "{text}");
}
