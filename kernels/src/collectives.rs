//! Sums of tensors over processes with one GPU each, by NCCL.
//!
//! A sum is put on the stream of its tensor, behind the kernels that write the tensor and before those that read the sum.
//! [`sums`] is all that depends on the stream: sums beside the backward pass would take another one there.

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
