//! The loader against Burn's, and against its own bounds.

mod bounds;
mod census;
mod evaluation;
mod failures;
mod order;
mod tokens;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderIterator};
use burn::data::dataset::InMemDataset;
use burn::tensor::Device;

use super::PrefetchLoader;

const WORKERS: [usize; 3] = [0, 1, 3];

/// Items as they are: a batch that never leaves the host.
#[derive(Clone)]
struct AsTheyAre;

impl Batcher<usize, Vec<usize>> for AsTheyAre {
    fn batch(&self, items: Vec<usize>, _: &Device) -> Vec<usize> {
        items
    }
}

fn numbers(items: usize) -> InMemDataset<usize> {
    InMemDataset::new((0..items).collect())
}

fn loader(items: usize, batch_size: usize, workers: usize) -> PrefetchLoader<usize, Vec<usize>> {
    PrefetchLoader::new(numbers(items), AsTheyAre, batch_size).num_workers(workers).device(Device::flex())
}

/// The batches of the next epoch, and the items that are consumed after each.
fn epoch(loader: &dyn DataLoader<Vec<usize>>) -> Vec<(Vec<usize>, usize)> {
    seen(loader.iter())
}

fn seen(mut epoch: Box<dyn DataLoaderIterator<Vec<usize>> + '_>) -> Vec<(Vec<usize>, usize)> {
    let mut seen = Vec::new();
    while let Some(batch) = epoch.next() {
        seen.push((batch.expect("a batch"), epoch.progress().items_processed));
    }
    assert!(epoch.next().is_none());
    seen
}
