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

mod budget;
mod cached;
mod epoch;
mod error;
mod evaluate;
mod lines;
mod loader;
mod share;
mod stored;
mod token_budget;

#[cfg(test)]
mod tests;

pub use cached::{CacheError, CachedDataset};
pub use error::LoaderError;
pub use evaluate::{EvaluateError, evaluate};
pub use lines::{LineDataset, LineError, LineFault, LinesError};
pub use loader::PrefetchLoader;
pub use share::Share;
#[cfg(test)]
pub(crate) use share::tests::shares;
pub use token_budget::TokenBudget;
