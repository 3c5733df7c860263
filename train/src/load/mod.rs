//! Data that is ready when the device is.
//!
//! [`PrefetchLoader`] is a Burn data loader that prepares few batches ahead, counted and weighed, in the host's memory and on
//! the device; `Session::loader` makes one as planned. [`TokenBudget`] batches sequences by their
//! tokens, [`LineDataset`] and [`CachedDataset`] keep data in files, [`evaluate`] reads predictions once.
//!
//! ```
//! use burn::data::dataloader::batcher::Batcher;
//! use burn::data::dataset::InMemDataset;
//! use burn::tensor::{Device, Int, Tensor};
//! use gpu_tuned::MicroBatch;
//! use gpu_tuned::load::PrefetchLoader;
//!
//! #[derive(Clone, MicroBatch)]
//! struct Digits {
//!     images: Tensor<3>,
//!     labels: Tensor<1, Int>,
//! }
//!
//! struct Digitiser;
//!
//! impl Batcher<([f32; 64], i32), Digits> for Digitiser {
//!     fn batch(&self, items: Vec<([f32; 64], i32)>, device: &Device) -> Digits {
//!         let (images, labels): (Vec<_>, Vec<_>) = items.into_iter().unzip();
//!         let count = images.len();
//!         Digits {
//!             images: Tensor::<1>::from_floats(images.as_flattened(), device).reshape([count, 8, 8]),
//!             labels: Tensor::from_ints(&labels[..], device),
//!         }
//!     }
//! }
//!
//! let dataset = InMemDataset::new(vec![([0.5; 64], 3); 10]);
//! let loader = PrefetchLoader::new(dataset, Digitiser, 4).num_workers(2).shuffle(42).device(Device::flex());
//! let mut sizes = Vec::new();
//! for batch in loader.iter() {
//!     sizes.push(batch?.len());
//! }
//! assert_eq!(sizes, [4, 4, 2]);
//! # Ok::<(), burn::data::dataset::DatasetError>(())
//! ```
//!
//! # On CUDA
//!
//! What follows was read in CubeCL 0.11.3, not measured. A CUDA stream, and the memory pools that its tensors come from,
//! belong to a thread. The uploader's copies are therefore on another stream than the training step's kernels, and the
//! device's copy engine can work while they run. The first kernel to use such a batch waits for the copy by an event, on the
//! device. Memory that one stream reads and another owns is given back only when the reader is done, so that a batch may
//! be made in one thread and used and dropped in another. Each launch that reads the uploader's memory is kept account of
//! for that, and launching stops while about eight of them are under way.
//!
//! Pools are not given back when their thread ends, and beyond 128 threads streams are shared. That is why each device has
//! one uploader thread, for all loaders and epochs. Its pools stand beside those of the training thread, with pages as
//! large as the largest tensor that it uploaded.
//!
//! All calls for a device pass through one thread of CubeCL's. A plain upload of less than 100 MiB copies there, from the
//! heap into pinned memory, and a larger one is handed to the driver as it is; no kernels are launched meanwhile. Tensors
//! of a [`MicroBatch`](crate::MicroBatch) that come from the host are copied into pinned memory by the thread that uploads
//! them ([`Device::staging`](burn::tensor::Device::staging)), and only the transfer is left to CubeCL's.

mod budget;
mod cached;
mod epoch;
mod error;
mod evaluate;
mod lines;
mod loader;
mod map;
mod rank;
mod token_budget;

#[cfg(test)]
mod tests;

pub use cached::{CacheError, CachedDataset};
pub use error::LoaderError;
pub use evaluate::{EvaluateError, evaluate};
pub use lines::{LineDataset, LineError, LinesError};
pub use loader::PrefetchLoader;
pub(crate) use rank::part_of_rank;
pub use token_budget::TokenBudget;
