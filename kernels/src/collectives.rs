//! Sums of tensors over processes with one GPU each, by NCCL.
//!
//! A sum is put on the stream of its tensor, behind the kernels that write the tensor and before those that read the sum.
//! [`sum`] is all that depends on the stream: sums beside the backward pass would take another one there.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};

use crate::find::{self, NotFound};
use crate::nccl::{Communicator, Nccl, NcclError, UniqueId};
use crate::operations::{CollectiveOps, number, on_device};
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

/// Sums a tensor over the ranks of a communicator, which make the same calls in the same order, from one thread.
///
/// The sum has begun once this returns: Burn's fusion would reorder operations that do not depend on each other, and ranks
/// with another order wait without end. A failure is the error of reading the sum, or what is computed from it.
///
/// # Panics
///
/// If NCCL does not sum the type of the tensor, or the tensor is not on a CUDA device.
pub fn sum(tensor: Tensor<1>, communicator: &Arc<Communicator>) -> Tensor<1> {
    let (device, dtype) = (tensor.device(), tensor.dtype());
    assert!(is_summed(dtype), "NCCL does not sum {dtype:?}");
    let sum = Tensor::from_dispatch(Dispatch::nccl_sum(tensor.into_dispatch(), Arc::clone(communicator)));
    // A broken device is the error of reading the sum.
    let _ = device.flush();
    sum
}

/// Returns true once all that computes the tensors is on the stream of their device. Does not wait for the device.
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
