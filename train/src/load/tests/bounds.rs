use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::tensor::{DType, Device, Int, Tensor};
use gpu_tuned_core::Bytes;

use super::census::{Census, Counted, Place};
use super::{PrefetchLoader, WORKERS};

/// Batches of one sample each, of so many bytes.
fn loader(bytes: &[usize], census: &Census) -> PrefetchLoader<usize, Counted> {
    let dataset = InMemDataset::new(bytes.to_vec());
    PrefetchLoader::new(dataset, census.clone(), 1).device(Device::flex())
}

/// Locations of the batches when the consumer gets them, in order.
fn places(loader: &PrefetchLoader<usize, Counted>) -> Vec<(usize, Place)> {
    loader.iter().map(|batch| batch.unwrap()).map(|batch| (batch.items[0], batch.place)).collect()
}

#[test]
fn no_more_batches_are_prepared_than_may_be() {
    for (workers, depth) in [(1, 1), (1, 3), (3, 1), (4, 2)] {
        let census = Census::default();
        let loader = loader(&[1; 50], &census).num_workers(workers).depth(depth);
        let mut epoch = loader.iter();
        // All that may be prepared is, and no more ever was.
        census.settles(workers + depth, depth);
        assert_eq!(census.of(Place::Device).most, depth);
        for _ in 0..20 {
            let batch = epoch.next().unwrap().unwrap();
            assert_eq!(batch.place, Place::Device);
            census.settles(workers + depth, depth + 1);
        }
        assert_eq!(epoch.count(), 30);
        let (host, device) = (census.of(Place::Host), census.of(Place::Device));
        // And the clone that is brought to the device, which of tensors takes no memory.
        assert_eq!((host.now, host.most), (0, workers + depth + 1));
        // The consumer has one.
        assert_eq!((device.now, device.most), (0, depth + 1));
    }
}

#[test]
fn no_more_bytes_wait_on_the_device_than_may() {
    for workers in [1, 3] {
        let census = Census::default();
        let loader = loader(&[40; 30], &census).num_workers(workers).depth(5).device_bytes(Bytes(100));
        let mut epoch = loader.iter();
        census.settles(workers + 5, 2);
        assert_eq!(census.of(Place::Device).most_bytes, 80);
        assert_eq!(epoch.by_ref().map(|batch| batch.unwrap().bytes_on_device()).sum::<usize>(), 30 * 40);
        assert!(census.of(Place::Device).most_bytes <= 80 + 40);
    }
}

#[test]
fn a_batch_beyond_the_budget_stays_on_the_host_and_in_its_place() {
    let bytes = [10, 200, 30, 101, 100, 300, 300, 300, 300, 300, 300, 300, 5];
    let expected: Vec<_> =
        bytes.iter().map(|bytes| (*bytes, if *bytes > 100 { Place::Host } else { Place::Device })).collect();
    for workers in WORKERS {
        let census = Census::default();
        let loader = loader(&bytes, &census).num_workers(workers).depth(2).device_bytes(Bytes(100));
        assert_eq!(places(&loader), expected);
        // One of them is the consumer's, one a clone on its way to the device.
        assert!(census.of(Place::Host).most <= workers + 2 + 2);
        assert_eq!((census.of(Place::Host).now, census.of(Place::Device).now), (0, 0));
    }
}

/// Pixels of a byte each, which are wider integers on a device.
struct Pixels;

impl Batcher<u8, Tensor<1, Int>> for Pixels {
    fn batch(&self, items: Vec<u8>, device: &Device) -> Tensor<1, Int> {
        Tensor::from_data(&items[..], (device, DType::U8))
    }
}

#[test]
fn a_batch_counts_for_the_bytes_that_it_will_take_on_the_device() {
    let device = Device::flex();
    let wide = DType::from(device.settings().int_dtype);
    for workers in WORKERS {
        for (spare, dtype) in [(0, wide), (1, DType::U8)] {
            let bytes = Bytes((4 * wide.size() - spare) as u64);
            let loader = PrefetchLoader::new(InMemDataset::new(vec![7_u8; 12]), Pixels, 4).device(device.clone());
            for batch in loader.num_workers(workers).device_bytes(bytes).iter() {
                assert_eq!(batch.unwrap().dtype(), dtype);
            }
        }
    }
}

#[test]
fn batches_that_stay_on_the_host_are_bounded_too() {
    let census = Census::default();
    let loader = loader(&[10; 30], &census).num_workers(3).depth(2).device_bytes(Bytes(5));
    let epoch = loader.iter();
    census.settles(5, 0);
    for batch in epoch {
        assert_eq!(batch.unwrap().place, Place::Host);
    }
    assert_eq!(census.of(Place::Device).most, 0);
    assert!(census.of(Place::Host).most <= 5 + 1);
}

#[test]
fn a_budget_of_samples_follows_the_first_batch() {
    for workers in WORKERS {
        let census = Census::default();
        let loader = loader(&[10, 20, 21, 5], &census).num_workers(workers).device_samples(2);
        let places: Vec<_> = places(&loader).into_iter().map(|(_, place)| place).collect();
        assert_eq!(places, [Place::Device, Place::Device, Place::Host, Place::Device]);
    }
}

#[test]
fn an_epoch_that_is_left_early_leaves_nothing_behind() {
    for (workers, consumed) in [(1, 0), (3, 0), (3, 5), (8, 49)] {
        let census = Census::default();
        let loader = loader(&[1; 50], &census).num_workers(workers).depth(3);
        let mut epoch = loader.iter();
        for _ in 0..consumed {
            epoch.next().unwrap().unwrap();
        }
        drop(epoch);
        assert_eq!((census.of(Place::Host).now, census.of(Place::Device).now), (0, 0));
        assert_eq!(places(&loader).len(), 50);
    }
}

impl Counted {
    fn bytes_on_device(&self) -> usize {
        assert_eq!(self.place, Place::Device);
        self.items.iter().sum()
    }
}
