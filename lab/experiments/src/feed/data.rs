//! Images with a slow preparation, and a census of their bytes on the device.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use burn::{
    data::{
        dataloader::batcher::Batcher,
        dataset::{Dataset, DatasetError},
    },
    tensor::{Device, Int, Tensor, TensorData},
};
use gpu_tuned::MicroBatch;
use models_tests::work::Work;

/// Channels of an image.
const CHANNELS: usize = 3;

/// An image and its class.
#[derive(Clone, Debug)]
pub(super) struct Image {
    pixels: Vec<f32>,
    class: i32,
}

/// Images that are busy work to get.
#[derive(Clone)]
pub(super) struct Images {
    pub(super) count: usize,
    pub(super) side: usize,
    pub(super) classes: usize,
    pub(super) work: Work,
}

impl Dataset<Image> for Images {
    fn get(&self, index: usize) -> Result<Image, DatasetError> {
        self.work.run();
        let shade = (index % 17) as f32 / 17.0 - 0.5;
        Ok(Image {
            pixels: vec![shade; CHANNELS * self.side * self.side],
            class: (index as u64 % self.classes as u64) as i32,
        })
    }

    fn len(&self) -> usize {
        self.count
    }
}

/// Bytes of batches that are on the device, or on their way there, with the one that is trained on.
#[derive(Debug, Default)]
pub(super) struct Census {
    held: AtomicU64,
    most: AtomicU64,
}

impl Census {
    /// The maximum since the last call.
    pub(super) fn most(&self) -> u64 {
        self.most.swap(0, Ordering::Relaxed)
    }
}

/// A batch on the device, counted until dropped.
#[derive(Debug)]
struct Counted {
    census: Arc<Census>,
    bytes: u64,
}

impl Counted {
    fn new(census: &Arc<Census>, bytes: usize) -> Arc<Self> {
        let bytes = bytes as u64;
        let now = census.held.fetch_add(bytes, Ordering::Relaxed) + bytes;
        census.most.fetch_max(now, Ordering::Relaxed);
        Arc::new(Self { census: Arc::clone(census), bytes })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.census.held.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The network's inputs and targets.
pub(super) type Pair = (Tensor<4>, Tensor<1, Int>);

/// A batch, counted while on the device.
#[derive(Clone, Debug)]
pub(super) struct Fetched {
    pair: Pair,
    census: Arc<Census>,
    counted: Option<Arc<Counted>>,
}

impl Fetched {
    /// The inputs and targets.
    pub(super) fn pair(&self) -> Pair {
        self.pair.clone()
    }

    fn counted(mut self, device: &Device) -> Self {
        self.counted = Some(Counted::new(&self.census, self.bytes(device)));
        self
    }
}

impl MicroBatch for Fetched {
    fn len(&self) -> usize {
        self.pair.len()
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        Self { pair: self.pair.narrow(samples), ..self.clone() }
    }

    fn on_device(self, device: &Device) -> Self {
        let there = self.counted(device);
        Self { pair: there.pair.on_device(device), ..there }
    }

    fn has_arrived(&self) -> bool {
        self.pair.has_arrived()
    }

    fn bytes(&self, device: &Device) -> usize {
        self.pair.bytes(device)
    }
}

/// Makes batches on the device that it is given: the host for the library's loader, the GPU for Burn's.
#[derive(Clone)]
pub(super) struct Stack {
    pub(super) side: usize,
    pub(super) census: Arc<Census>,
    /// True if batches are on the device as soon as they are built.
    pub(super) counts: bool,
}

impl Batcher<Image, Fetched> for Stack {
    fn batch(&self, items: Vec<Image>, device: &Device) -> Fetched {
        let shape = [items.len(), CHANNELS, self.side, self.side];
        let mut pixels = Vec::with_capacity(shape.iter().product());
        let mut classes = Vec::with_capacity(items.len());
        for Image { pixels: image, class } in items {
            pixels.extend(image);
            classes.push(class);
        }
        let classes = TensorData::new(classes, [shape[0]]);
        let pair = (Tensor::from_data(TensorData::new(pixels, shape), device), Tensor::from_data(classes, device));
        let made = Fetched { pair, census: Arc::clone(&self.census), counted: None };
        if self.counts { made.counted(device) } else { made }
    }
}
