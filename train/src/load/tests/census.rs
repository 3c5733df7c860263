//! Batches that are counted as long as they live.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::Device;

use crate::micro_batch::MicroBatch;

/// Current and largest number of batches.
#[derive(Clone, Default)]
pub(super) struct Census(Arc<Mutex<[Count; 2]>>);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    pub(super) now: usize,
    pub(super) most: usize,
    pub(super) bytes: usize,
    pub(super) most_bytes: usize,
}

/// Location of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Host,
    Device,
}

impl Census {
    pub(super) fn of(&self, place: Place) -> Count {
        self.0.lock().unwrap()[place as usize]
    }

    fn add(&self, place: Place, bytes: usize) {
        let count = &mut self.0.lock().unwrap()[place as usize];
        count.now += 1;
        count.bytes += bytes;
        count.most = count.most.max(count.now);
        count.most_bytes = count.most_bytes.max(count.bytes);
    }

    fn remove(&self, place: Place, bytes: usize) {
        let count = &mut self.0.lock().unwrap()[place as usize];
        count.now -= 1;
        count.bytes -= bytes;
    }

    /// Waits until there are as many as there should be; how long that may take is no matter of the test.
    pub(super) fn settles(&self, host: usize, device: usize) {
        let started = Instant::now();
        while (self.of(Place::Host).now, self.of(Place::Device).now) != (host, device) {
            let found = (self.of(Place::Host), self.of(Place::Device));
            assert!(started.elapsed() < Duration::from_mins(1), "{host}, {device} were expected, not {found:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Batch of numbers. A sample takes as many bytes as its value.
pub(super) struct Counted {
    pub(super) items: Vec<usize>,
    pub(super) place: Place,
    census: Census,
}

impl Counted {
    fn new(items: Vec<usize>, place: Place, census: Census) -> Self {
        let counted = Self { items, place, census };
        counted.census.add(place, counted.items.iter().sum());
        counted
    }
}

impl Clone for Counted {
    fn clone(&self) -> Self {
        Self::new(self.items.clone(), self.place, self.census.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.census.remove(self.place, self.items.iter().sum());
    }
}

impl MicroBatch for Counted {
    fn len(&self) -> usize {
        self.items.len()
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        Self::new(self.items[samples].to_vec(), self.place, self.census.clone())
    }

    fn on_device(self, _: &Device) -> Self {
        Self::new(self.items.clone(), Place::Device, self.census.clone())
    }

    fn has_arrived(&self) -> bool {
        true
    }

    fn bytes(&self, _: &Device) -> usize {
        self.items.iter().sum()
    }
}

impl Batcher<usize, Counted> for Census {
    fn batch(&self, items: Vec<usize>, device: &Device) -> Counted {
        assert_eq!(*device, Device::flex());
        Counted::new(items, Place::Host, self.clone())
    }
}
