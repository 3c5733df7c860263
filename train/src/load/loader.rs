use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{BatchStrategy, DataLoader, DataLoaderIterator};
use burn::data::dataset::Dataset;
use burn::data::dataset::transform::{PartialDataset, SelectionDataset};
use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::epoch::{Epoch, Prefetch, Preparation, Taken, lazy};
use super::queue::{Bounds, Budget};
use super::source::{Share, Source};
use crate::micro_batch::MicroBatch;
use crate::timing::StepInstrumentation;
use crate::train::{Inputs, Rank};

/// Default number of batches on the device: one is uploaded while one waits.
const DEPTH: usize = 2;

/// A data loader that prepares few batches ahead: some in the host's memory, fewer on the device, and never more bytes
/// there than it may.
///
/// Workers fetch items and batch them on the CPU ([`Device::flex`] is what the batcher gets); one thread of each device
/// uploads. Batches come in the order of the dataset, or of the seed, whatever the number of workers. A batcher that draws
/// random numbers, such as for augmentation, derives them from its items: workers share a generator in any order.
///
/// At most `depth` batches wait on the device. At most `num_workers + depth` are in host memory, including those in
/// preparation. The consumer has one more.
///
/// As with Burn's loaders each [`iter`](Self::iter) is the next epoch, in an order of its own where the loader
/// shuffles. Dropping the iterator ends its threads.
///
/// # Errors
///
/// An error of the dataset arrives in place of its batch. A panic of the batcher in a worker becomes a
/// [`LoaderError`](super::LoaderError). Both end the epoch. Without workers, the batcher panics in the caller.
pub struct PrefetchLoader<I, B> {
    dataset: Arc<dyn Dataset<I>>,
    batcher: Arc<dyn Batcher<I, B>>,
    batches: Batches<I>,
    drop_last: bool,
    depth: usize,
    budget: Budget,
    num_workers: usize,
    device: Device,
    rng: Option<Mutex<StdRng>>,
    /// Seed of `rng`.
    seed: Option<u64>,
    /// Epochs so far.
    epochs: AtomicU64,
    share: Share,
    /// Record of the inputs of a rank, which are compared with those of others.
    inputs: Option<Inputs>,
    instrumentation: StepInstrumentation,
}

enum Batches<I> {
    OfSize(usize),
    Grouped(Box<dyn BatchStrategy<I>>),
}

impl<I, B> PrefetchLoader<I, B> {
    /// Batches of `batch_size` items, at least one, on Burn's default device: prepared by one worker, two ahead.
    pub fn new(dataset: impl Dataset<I> + 'static, batcher: impl Batcher<I, B> + 'static, batch_size: usize) -> Self {
        Self {
            dataset: Arc::new(dataset),
            batcher: Arc::new(batcher),
            batches: Batches::OfSize(batch_size.max(1)),
            drop_last: false,
            depth: DEPTH,
            budget: Budget::Unlimited,
            num_workers: 1,
            device: Device::default(),
            rng: None,
            seed: None,
            epochs: AtomicU64::new(0),
            share: Share::whole(batch_size.max(1)),
            inputs: None,
            instrumentation: StepInstrumentation::default(),
        }
    }

    /// Shuffles the items in each epoch. With the same seed the orders are those of Burn's loader without workers.
    #[must_use]
    pub fn shuffle(mut self, seed: u64) -> Self {
        self.rng = Some(Mutex::new(StdRng::seed_from_u64(seed)));
        self.seed = Some(seed);
        self
    }

    /// Puts batches together by a strategy, such as a [`TokenBudget`](super::TokenBudget), rather than by their number.
    ///
    /// The strategy runs in one place: one worker fetches at a time, and all workers batch. With several ranks, each
    /// rank fetches all items, and prepares its own batch of each round.
    #[must_use]
    pub fn strategy(mut self, strategy: impl BatchStrategy<I> + 'static) -> Self {
        self.batches = Batches::Grouped(Box::new(strategy));
        self
    }

    /// Leaves out the items at the end that fill no batch: what a strategy gives up only when it is forced to.
    #[must_use]
    pub fn drop_last(mut self, drop_last: bool) -> Self {
        self.drop_last = drop_last;
        self
    }

    /// Limits the batches that wait on the device; at least one.
    #[must_use]
    pub fn depth(mut self, depth: usize) -> Self {
        self.depth = depth.max(1);
        self
    }

    /// Limits the bytes of batches that wait on the device, in the types of the device: on CUDA a pixel of 8 bits
    /// becomes an integer of 32. A larger batch is yielded in host memory.
    #[must_use]
    pub fn device_bytes(mut self, bytes: Bytes) -> Self {
        self.budget = Budget::Bytes(bytes.0);
        self
    }

    /// As [`device_bytes`](Self::device_bytes), with as many bytes as so many samples of the first batch take.
    #[must_use]
    pub fn device_samples(mut self, samples: usize) -> Self {
        self.budget = Budget::Samples(samples as u64);
        self
    }

    /// Threads that prepare batches. With none everything happens when a batch is asked for, in the thread that asks.
    #[must_use]
    pub fn num_workers(mut self, workers: usize) -> Self {
        self.num_workers = workers;
        self
    }

    /// Yields a rank's share of each step, and records its epochs.
    pub(crate) fn for_rank(mut self, rank: &Rank) -> Self {
        self.share = rank.share();
        self.inputs = Some(rank.inputs.clone());
        self
    }

    /// Yields a rank's share of each step.
    #[cfg(test)]
    pub(crate) fn share(mut self, share: Share) -> Self {
        self.share = share;
        self
    }

    /// Reports waits and preparation to a rank's instrumentation.
    pub(crate) fn with_instrumentation(mut self, instrumentation: StepInstrumentation) -> Self {
        self.instrumentation = instrumentation;
        self
    }

    /// Yields batches on `device`.
    #[must_use]
    pub fn device(mut self, device: Device) -> Self {
        self.device = device;
        self
    }
}

impl<I, B> PrefetchLoader<I, B>
where
    I: Clone + Send + Sync + 'static,
    B: MicroBatch,
{
    /// The batches of the next epoch.
    #[expect(clippy::iter_without_into_iter, reason = "a loop over a reference does not look like another epoch")]
    pub fn iter(&self) -> Box<dyn DataLoaderIterator<B> + '_> {
        self.next_epoch(0)
    }

    /// The batches of an epoch, counted from 0, after the first `batches`: for a resumed run. Nothing is prepared for
    /// what is left out; a [`strategy`](Self::strategy) fetches the items. An epoch that has begun before does not
    /// come again: the next one does.
    pub fn iter_from(&self, epoch: u64, batches: u64) -> Box<dyn DataLoaderIterator<B> + '_> {
        while self.epochs.load(Ordering::Relaxed) < epoch {
            self.epochs.fetch_add(1, Ordering::Relaxed);
            // Draws the order.
            drop(self.ordered());
        }
        self.next_epoch(batches)
    }

    fn next_epoch(&self, skipped: u64) -> Box<dyn DataLoaderIterator<B> + '_> {
        let number = self.epochs.fetch_add(1, Ordering::Relaxed) + 1;
        let open = self.inputs.as_ref().map(|inputs| inputs.begin_epoch(self.describe_epoch(number)));
        let dataset = self.ordered();
        Box::new(Epoch::new(self.batches(&dataset, skipped), dataset.len(), open))
    }

    fn batches(&self, dataset: &Arc<dyn Dataset<I>>, skipped: u64) -> Box<dyn FnMut() -> Option<Taken<B>> + '_> {
        if self.num_workers > 0 {
            match self.prefetch(dataset, skipped) {
                Ok(prefetch) => return Box::new(move || prefetch.next()),
                Err(error) => tracing::warn!(%error, "no threads for the loader: batches are prepared one by one"),
            }
        }
        let mut next = lazy(self.source(dataset, skipped), self.preparation(dataset), self.budget);
        // Nothing is ever ready.
        Box::new(move || self.instrumentation.time_wait(|| 0, &mut next))
    }

    /// The loader as Burn's trainers take it.
    pub fn build(self) -> Arc<dyn DataLoader<B>> {
        Arc::new(self)
    }

    #[cfg(test)]
    pub(super) fn batchers_held(&self) -> usize {
        Arc::strong_count(&self.batcher)
    }

    /// Text of what ranks have in common in an epoch, by its number from 1.
    fn describe_epoch(&self, number: u64) -> String {
        let items = self.dataset.len();
        let steps = match &self.batches {
            Batches::OfSize(_) => format!("in steps of {}", self.share.all()),
            Batches::Grouped(_) => "in steps by a strategy".to_owned(),
        };
        let order = self.seed.map(|seed| format!(", epoch {number} with seed {seed}")).unwrap_or_default();
        format!("{items} items {steps}{order}")
    }

    /// The same loader of other items, or on another device, with a generator of its own.
    fn like(&self, dataset: Arc<dyn Dataset<I>>, device: Device) -> Self {
        Self {
            dataset,
            batcher: Arc::clone(&self.batcher),
            batches: match &self.batches {
                Batches::OfSize(size) => Batches::OfSize(*size),
                Batches::Grouped(strategy) => Batches::Grouped(strategy.clone_dyn()),
            },
            drop_last: self.drop_last,
            depth: self.depth,
            budget: self.budget,
            num_workers: self.num_workers,
            device,
            rng: self.rng().map(|mut rng| Mutex::new(rng.fork())),
            seed: self.seed,
            epochs: AtomicU64::new(0),
            share: self.share,
            inputs: self.inputs.clone(),
            instrumentation: self.instrumentation.clone(),
        }
    }

    fn rng(&self) -> Option<MutexGuard<'_, StdRng>> {
        self.rng.as_ref().map(|rng| rng.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The items in the order of the next epoch; of a rank its own.
    fn ordered(&self) -> Arc<dyn Dataset<I>> {
        let ordered = match self.rng() {
            Some(mut rng) => {
                let dataset = Arc::new(self.dataset.clone());
                Arc::new(SelectionDataset::<Arc<dyn Dataset<I>>, I>::new_shuffled(dataset, &mut *rng))
            }
            None => self.dataset.clone(),
        };
        match &self.batches {
            Batches::OfSize(_) if self.share.ranks() > 1 => {
                let own = self.share.items(ordered.len(), self.drop_last);
                Arc::new(SelectionDataset::<Arc<dyn Dataset<I>>, I>::from_indices_unchecked(ordered, own))
            }
            // A strategy decides the items of a rank.
            _ => ordered,
        }
    }

    fn source(&self, dataset: &Arc<dyn Dataset<I>>, skipped: u64) -> Source<I> {
        let source = match &self.batches {
            Batches::OfSize(size) => Source::fixed(*size, dataset.len(), self.drop_last),
            Batches::Grouped(strategy) => {
                Source::grouped(dataset.clone(), strategy.clone_dyn(), self.share, self.drop_last)
            }
        };
        source.after(skipped)
    }

    fn preparation(&self, dataset: &Arc<dyn Dataset<I>>) -> Preparation<I, B> {
        Preparation {
            dataset: dataset.clone(),
            batcher: self.batcher.clone(),
            device: self.device.clone(),
            instrumentation: self.instrumentation.clone(),
        }
    }

    fn prefetch(&self, dataset: &Arc<dyn Dataset<I>>, skipped: u64) -> std::io::Result<Prefetch<B>> {
        let host = self.num_workers.saturating_add(self.depth);
        let bounds = Bounds { depth: self.depth, budget: self.budget, host };
        Prefetch::start(self.source(dataset, skipped), self.preparation(dataset), bounds, self.num_workers)
    }
}

impl<I, B> DataLoader<B> for PrefetchLoader<I, B>
where
    I: Clone + Send + Sync + 'static,
    B: MicroBatch,
{
    fn iter<'a>(&'a self) -> Box<dyn DataLoaderIterator<B> + 'a> {
        Self::iter(self)
    }

    /// Items of the dataset, those included that are left out at the end of an epoch.
    fn num_items(&self) -> usize {
        self.dataset.len()
    }

    fn to_device(&self, device: &Device) -> Arc<dyn DataLoader<B>> {
        Arc::new(self.like(self.dataset.clone(), device.clone()))
    }

    fn slice(&self, start: usize, end: usize) -> Arc<dyn DataLoader<B>> {
        let part = PartialDataset::new(self.dataset.clone(), start, end);
        Arc::new(self.like(Arc::new(part), self.device.clone()))
    }
}

impl<I, B> std::fmt::Debug for PrefetchLoader<I, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PrefetchLoader")
            .field("items", &self.dataset.len())
            .field("drop_last", &self.drop_last)
            .field("depth", &self.depth)
            .field("budget", &self.budget)
            .field("num_workers", &self.num_workers)
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}
