//! Sums of tensors over processes with one GPU each, by NCCL.
//!
//! A sum is put on the stream of its tensor, behind the kernels that write the tensor and before those that read the sum.
//! [`SumsBeside`] run on another stream, beside the kernels that were put on the first one after them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};

use crate::find::{self, NotFound};
use crate::nccl::{Communicator, Nccl, NcclError, UniqueId};
pub use crate::operations::SharedStream;
use crate::operations::{CollectiveOps, PendingSums, number, on_device};
use crate::product::device_id;

static LIBRARY: OnceLock<Nccl> = OnceLock::new();

/// Loads NCCL, unless it is loaded.
///
/// # Errors
///
/// When no file of the library is found, or none can be loaded.
pub fn load() -> Result<&'static Nccl, NotFound> {
    match LIBRARY.get() {
        Some(library) => Ok(library),
        None => find::nccl().map(|found| LIBRARY.get_or_init(|| found)),
    }
}

/// Begins to join a communicator with a device, which Burn has opened. It can sum once it
/// [is ready](Communicator::is_ready).
///
/// # Errors
///
/// As [`Nccl::join`].
///
/// # Panics
///
/// If the device is none of CUDA.
pub fn join(
    device: &Device,
    library: &'static Nccl,
    id: UniqueId,
    rank: usize,
    ranks: usize,
) -> Result<Communicator, NcclError> {
    let device = device_id(device).expect("BUG: the device is one of CUDA");
    on_device(device, move || library.join(id, rank, ranks))
}

/// Returns true if NCCL sums numbers of this type.
pub fn is_summed(dtype: DType) -> bool {
    number(dtype).is_some()
}

/// Sums tensors over the ranks of a communicator, which make the same calls in the same order, from one thread.
///
/// Each sum depends on the one before: Burn's fusion would reorder them otherwise, and ranks with another order wait without end.
/// Nothing is flushed. They begin when Burn's queue is next executed, at the latest when one of them is read. A failure is the
/// error of reading a sum, or what is computed from it.
///
/// # Panics
///
/// If NCCL does not sum the type of a tensor, or a tensor is not on a CUDA device.
pub fn sums(tensors: Vec<Tensor<1>>, communicator: &Arc<Communicator>) -> Vec<Tensor<1>> {
    let mut last = None::<Tensor<1>>;
    let sum = |tensor: Tensor<1>| {
        let dtype = tensor.dtype();
        assert!(is_summed(dtype), "NCCL does not sum {dtype:?}");
        let (tensor, communicator) = (tensor.into_dispatch(), Arc::clone(communicator));
        let sum = Tensor::from_dispatch(match last.take() {
            None => Dispatch::nccl_sum(tensor, communicator),
            Some(before) => Dispatch::nccl_sum_after(tensor, before.into_dispatch(), communicator),
        });
        last = Some(sum.clone());
        sum
    };
    tensors.into_iter().map(sum).collect()
}

/// Sums of a step over the ranks of a communicator, beside the kernels of the device. All ranks begin equal sums in equal order,
/// from one thread.
#[derive(Debug)]
pub struct SumsBeside {
    sums: Arc<PendingSums>,
    /// Sums that were queued.
    queued: Vec<Tensor<1>>,
}

impl SumsBeside {
    /// No sums yet. The steps of a communicator share a stream.
    pub fn new(communicator: Arc<Communicator>, stream: SharedStream) -> Self {
        Self { sums: Arc::new(PendingSums::new(communicator, stream)), queued: Vec::new() }
    }

    /// Number of sums that were queued, and of those that were not found to have failed.
    pub fn count(&self) -> usize {
        self.queued.len()
    }

    /// Queues the sum of a tensor. It begins once the tensor is computed, and the sums before it have begun. Nothing is flushed.
    ///
    /// # Panics
    ///
    /// As [`sums`].
    pub fn begin(&mut self, tensor: Tensor<1>) {
        let dtype = tensor.dtype();
        assert!(is_summed(dtype), "NCCL does not sum {dtype:?}");
        let (tensor, index, sums) = (tensor.into_dispatch(), self.queued.len(), Arc::clone(&self.sums));
        let sum = match self.queued.last().cloned().map(Tensor::into_dispatch) {
            None => Dispatch::nccl_begin(tensor, index, sums),
            Some(before) => Dispatch::nccl_begin_after(tensor, before, index, sums),
        };
        self.queued.push(Tensor::from_dispatch(sum));
    }

    /// Puts all sums on the streams, and drops those that could not be begun, because what computes their tensors failed, as
    /// without memory. Returns the first of these: to read it is the error.
    pub fn flush(&mut self) -> Option<Tensor<1>> {
        // The error of a flush is that of the sums.
        let _ = self.queued.last().map(|last| last.device().flush());
        let failed = self.queued.get(self.sums.begun()).cloned();
        self.queued.truncate(self.sums.begun());
        failed
    }

    /// The sums. What uses them waits for them on the device.
    pub fn end(self) -> Vec<Tensor<1>> {
        let end = |(index, sum): (usize, Tensor<1>)| {
            Tensor::from_dispatch(Dispatch::nccl_end(sum.into_dispatch(), index, Arc::clone(&self.sums)))
        };
        self.queued.into_iter().enumerate().map(end).collect()
    }
}

/// Returns true once all that computes the tensors is on the stream of their device. Does not wait for the device, unless it is
/// called again soon: a flush of CubeCL waits for what was on the stream at the last one.
///
/// False means that an operation failed before it was on the stream, as without memory for its result: to read one of the
/// tensors is the error.
///
/// # Panics
///
/// If the tensors are not on a CUDA device.
pub fn are_queued(tensors: &[Tensor<1>]) -> bool {
    let Some(device) = tensors.first().map(Tensor::device) else { return true };
    let failed = Arc::new(AtomicBool::new(false));
    for tensor in tensors {
        // Dropped at once: a sum of the tensor is in place only without another tensor in its memory.
        drop(Dispatch::nccl_queued(tensor.clone().into_dispatch(), Arc::clone(&failed)));
    }
    device.flush().is_ok() && !failed.load(Ordering::Relaxed)
}
