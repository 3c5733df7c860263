//! Data that is ready when the device is.
//!
//! [`PrefetchLoader`] is a Burn data loader that prepares few batches ahead, counted and weighed, in the host's memory and on
//! the device; `Session::loader` makes one as planned. [`TokenBudget`] batches sequences by their
//! tokens, [`LineDataset`] and [`CachedDataset`] keep data in files, [`evaluate`] reads predictions once.
//!
//! ```
//! # extern crate gpu_tuned_train as gpu_tuned;
//! use burn::data::dataloader::batcher::Batcher;
//! use burn::data::dataset::InMemDataset;
//! use burn::tensor::{Device, Int, Tensor};
//! use gpu_tuned::load::PrefetchLoader;
//!
//! struct Digitiser;
//!
//! impl Batcher<([f32; 64], i32), (Tensor<3>, Tensor<1, Int>)> for Digitiser {
//!     fn batch(&self, items: Vec<([f32; 64], i32)>, device: &Device) -> (Tensor<3>, Tensor<1, Int>) {
//!         let (images, labels): (Vec<_>, Vec<_>) = items.into_iter().unzip();
//!         let images = Tensor::<1>::from_floats(images.as_flattened(), device).reshape([labels.len(), 8, 8]);
//!         (images, Tensor::from_ints(&labels[..], device))
//!     }
//! }
//!
//! let dataset = InMemDataset::new(vec![([0.5; 64], 3); 10]);
//! let loader = PrefetchLoader::new(dataset, Digitiser, 4).num_workers(2).shuffle(42).device(Device::flex());
//! let mut sizes = Vec::new();
//! for batch in loader.iter() {
//!     let (images, _) = batch?;
//!     sizes.push(images.dims()[0]);
//! }
//! assert_eq!(sizes, [4, 4, 2]);
//! # Ok::<(), burn::data::dataset::DatasetError>(())
//! ```
//!
//! # On CUDA
//!
//! This section is from the source of CubeCL 0.11.3, not from measurements. A CUDA stream and its memory pools belong
//! to a thread. The uploader's copies are on another stream than the training step's kernels, so the copy engine works
//! while they run. The first kernel that uses a batch waits for the copy by an event, on the device. Memory that one
//! stream reads and another owns is released once the reader is done, so a batch may be created in one thread and
//! dropped in another. CubeCL counts each launch that reads the uploader's memory, and launching blocks while about
//! eight of them are under way.
//!
//! Pools are not released when their thread ends, and beyond 128 threads streams are shared. Each device therefore has
//! one uploader thread, for all loaders and epochs. Its pools are separate from the training thread's, with pages as
//! large as the largest uploaded tensor.
//!
//! All calls for a device pass through one thread of CubeCL's. A plain upload of less than 100 MiB copies there, from
//! the heap into pinned memory. A larger upload goes to the driver directly, and no kernels are launched meanwhile. The
//! uploader copies the tensors of a `MicroBatch` from host memory into pinned memory itself
//! ([`Device::staging`](burn::tensor::Device::staging)), and leaves the transfer to CubeCL.

mod cached;
mod epoch;
mod lines;
mod loader;
mod queue;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use burn::data::dataloader::{BatchStrategy, DataLoader};
use burn::data::dataset::DatasetError;
use burn::tensor::kind::Autodiff;
use burn::tensor::{ExecutionError, Tensor, TensorData};

pub use cached::{CacheError, CachedDataset};
pub use lines::{LineDataset, LineError, LineFault, LinesError};
pub use loader::PrefetchLoader;
pub use source::Share;
#[cfg(test)]
pub(crate) use source::tests::shares;

/// Why a batch could not be prepared, other than that its dataset failed; it arrives within a [`DatasetError`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum LoaderError {
    /// The dataset, the batch strategy, the batcher or the batch panicked in a thread of the loader.
    #[error("a loader thread panicked: {message}")]
    Panicked { message: String },
}

impl From<LoaderError> for DatasetError {
    fn from(error: LoaderError) -> Self {
        Self::new(error)
    }
}

/// Why an evaluation gave no predictions.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EvaluateError {
    /// The loader has no batches.
    #[error("there is nothing to evaluate: the loader has no batches")]
    Empty,
    /// A batch could not be loaded.
    #[error("a batch could not be loaded")]
    Load(#[source] DatasetError),
    /// The device failed, or ran out of memory, in any of the batches: that is learned when they are read.
    #[error("the predictions could not be read from the device")]
    Read(#[source] ExecutionError),
}

/// Collects the results of `predict` for all batches, in the loader's order along the first dimension.
///
/// Predictions stay on the device and are read once, at the end: a read after each batch would make the device wait for
/// the host as often. They take their bytes there twice while they are joined, so reduce them as far as the metric
/// allows (classes rather than logits). What they were computed from is not kept.
///
/// Return one row a sample: a mean over each batch depends on the planned `eval_batch_size`, and the last batch is smaller.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::data::dataloader::batcher::Batcher;
/// use burn::data::dataset::InMemDataset;
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned::load::{PrefetchLoader, evaluate};
///
/// #[derive(Clone)]
/// struct Numbers;
///
/// impl Batcher<f32, Tensor<1>> for Numbers {
///     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<1> {
///         Tensor::from_floats(&items[..], device)
///     }
/// }
///
/// let dataset = InMemDataset::new(vec![1.0, 2.0, 3.0]);
/// let loader = PrefetchLoader::new(dataset, Numbers, 2).device(Device::flex());
/// let doubled = evaluate(&loader, |batch| batch * 2.0)?;
/// assert_eq!(doubled.try_to_vec::<f32>()?, [2.0, 4.0, 6.0]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// [`EvaluateError`].
///
/// # Panics
///
/// If predictions differ in another dimension than the first, and whenever `predict` does.
pub fn evaluate<B, const D: usize, K: Autodiff>(
    loader: &(impl DataLoader<B> + ?Sized),
    mut predict: impl FnMut(B) -> Tensor<D, K>,
) -> Result<TensorData, EvaluateError> {
    let predictions: Vec<_> = loader
        .iter()
        .map(|batch| Ok(predict(batch.map_err(EvaluateError::Load)?).without_autodiff()))
        .collect::<Result<_, _>>()?;
    if predictions.is_empty() {
        return Err(EvaluateError::Empty);
    }
    Tensor::cat(predictions, 0).try_into_data().map_err(EvaluateError::Read)
}

/// Batches of sequences that are padded to the longest of them, with at most so many tokens each, padding included.
///
/// A sequence that alone has more is a batch of its own. Sequences stay in the order in which they come: batches are
/// fuller when those of similar length are neighbours.
///
/// With several ranks, each has such a batch in a step: for the same step on any number of ranks, divide the tokens of a step by the
/// number of ranks. A mean over targets needs their number as its weight, because sequences have different numbers.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::data::dataloader::BatchStrategy;
/// use gpu_tuned::load::TokenBudget;
///
/// let mut strategy = TokenBudget::new(12, |sentence: &Vec<u32>| sentence.len());
/// for length in [3, 4, 4, 5] {
///     strategy.add(vec![0; length]);
/// }
/// assert_eq!(strategy.batch(false).map(|batch| batch.len()), Some(3)); // 3 x 4 tokens; with the next it were 4 x 5
/// assert_eq!(strategy.batch(false), None);
/// assert_eq!(strategy.batch(true).map(|batch| batch.len()), Some(1));
/// ```
pub struct TokenBudget<I> {
    tokens: usize,
    length: Arc<dyn Fn(&I) -> usize + Send + Sync>,
    waiting: Vec<I>,
    /// Items of the next batch, among those that were read.
    joined: usize,
    /// Tokens of the longest of those, at least one.
    longest: usize,
}

impl<I> TokenBudget<I> {
    /// At most `tokens` in a batch, of items with `length` tokens. An item without tokens counts as one of one token.
    pub fn new(tokens: usize, length: impl Fn(&I) -> usize + Send + Sync + 'static) -> Self {
        Self { tokens, length: Arc::new(length), waiting: Vec::new(), joined: 0, longest: 1 }
    }

    /// Joins what waits to the next batch; whether no other could join it.
    fn join(&mut self) -> bool {
        for item in &self.waiting[self.joined..] {
            let longest = self.longest.max((self.length)(item));
            if self.joined > 0 && longest.saturating_mul(self.joined + 1) > self.tokens {
                return true;
            }
            (self.joined, self.longest) = (self.joined + 1, longest);
        }
        self.longest.saturating_mul(self.joined + 1) > self.tokens
    }
}

impl<I: Send + Sync + 'static> BatchStrategy<I> for TokenBudget<I> {
    fn add(&mut self, item: I) {
        self.waiting.push(item);
    }

    fn batch(&mut self, force: bool) -> Option<Vec<I>> {
        let is_full = self.join();
        let count = if is_full || force { std::mem::take(&mut self.joined) } else { 0 };
        (count > 0).then(|| {
            self.longest = 1;
            self.waiting.drain(..count).collect()
        })
    }

    fn clone_dyn(&self) -> Box<dyn BatchStrategy<I>> {
        Box::new(Self {
            tokens: self.tokens,
            length: Arc::clone(&self.length),
            waiting: Vec::new(),
            joined: 0,
            longest: 1,
        })
    }

    fn batch_size(&self) -> Option<usize> {
        None
    }
}
