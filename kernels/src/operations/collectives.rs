//! Sums over processes as an operation of Burn's backends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, backend_extension};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::server::Handle as Buffer;

use super::empty;
use super::stream::{self, PendingSums};
use crate::nccl::{Communicator, Number};

/// Collectives of NCCL, in order with the device's kernels.
#[backend_extension(Cube, Fusion)]
pub trait CollectiveOps: Backend {
    /// The tensor summed over the ranks of a communicator, all of which pass equal shapes and types in one order.
    #[fusion(dtype = tensor, shape = tensor)]
    fn nccl_sum(tensor: FloatTensor<Self>, communicator: Arc<Communicator>) -> FloatTensor<Self>;

    /// The same, behind the operation that computes another tensor.
    #[fusion(dtype = tensor, shape = tensor)]
    fn nccl_sum_after(
        tensor: FloatTensor<Self>,
        before: FloatTensor<Self>,
        communicator: Arc<Communicator>,
    ) -> FloatTensor<Self>;

    /// The sum that is number `index` of some beside the kernels: the result has its values behind [`nccl_end`](Self::nccl_end).
    #[fusion(dtype = tensor, shape = tensor)]
    fn nccl_begin(tensor: FloatTensor<Self>, index: usize, sums: Arc<PendingSums>) -> FloatTensor<Self>;

    /// The sum as of [`nccl_begin`](Self::nccl_begin), behind the operation that computes another tensor.
    #[fusion(dtype = tensor, shape = tensor)]
    fn nccl_begin_after(
        tensor: FloatTensor<Self>,
        before: FloatTensor<Self>,
        index: usize,
        sums: Arc<PendingSums>,
    ) -> FloatTensor<Self>;

    /// The sum that was begun.
    #[fusion(dtype = tensor, shape = tensor)]
    fn nccl_end(tensor: FloatTensor<Self>, index: usize, sums: Arc<PendingSums>) -> FloatTensor<Self>;

    /// The same tensor. Sets `failed` if one of the operations that compute it could not be put on the device's stream.
    #[fusion(dtype = tensor, shape = tensor)]
    fn nccl_queued(tensor: FloatTensor<Self>, failed: Arc<AtomicBool>) -> FloatTensor<Self>;
}

impl CollectiveOps for CubeBackend {
    fn nccl_sum(tensor: CubeTensor, communicator: Arc<Communicator>) -> CubeTensor {
        let (number, count) = numbers(&tensor);
        let (read, sum) = in_place(tensor);
        if count > 0 {
            stream::sum_over_ranks(&sum.client.clone(), communicator, read, sum.handle.clone(), (number, count));
        }
        sum
    }

    fn nccl_sum_after(tensor: CubeTensor, before: CubeTensor, communicator: Arc<Communicator>) -> CubeTensor {
        drop(before);
        Self::nccl_sum(tensor, communicator)
    }

    fn nccl_begin(tensor: CubeTensor, index: usize, sums: Arc<PendingSums>) -> CubeTensor {
        let numbers = numbers(&tensor);
        let (read, sum) = in_place(tensor);
        stream::begin_sum(&sum.client.clone(), sums, read, sum.handle.clone(), numbers, index);
        sum
    }

    fn nccl_begin_after(tensor: CubeTensor, before: CubeTensor, index: usize, sums: Arc<PendingSums>) -> CubeTensor {
        drop(before);
        Self::nccl_begin(tensor, index, sums)
    }

    fn nccl_end(tensor: CubeTensor, index: usize, sums: Arc<PendingSums>) -> CubeTensor {
        stream::end_sum(&tensor.client.clone(), sums, tensor.handle.clone(), index);
        tensor
    }

    fn nccl_queued(tensor: CubeTensor, failed: Arc<AtomicBool>) -> CubeTensor {
        if tensor.client.check([&tensor.handle]).is_err() {
            failed.store(true, Ordering::Relaxed);
        }
        tensor
    }
}

/// Type and count of a tensor's numbers.
fn numbers(tensor: &CubeTensor) -> (Number, usize) {
    (number(tensor.dtype).expect("BUG: the type was checked before"), tensor.meta.shape().num_elements())
}

/// The memory that a sum reads, if it is not the one that it writes, and the tensor that it writes. As Burn's operations: memory
/// that no other tensor uses is written in place.
fn in_place(tensor: CubeTensor) -> (Option<Buffer>, CubeTensor) {
    let tensor = into_contiguous(tensor);
    if tensor.can_mut() {
        return (None, tensor);
    }
    let sum = empty(&tensor, tensor.meta.shape().clone());
    (Some(tensor.handle), sum)
}

/// The type that NCCL sums; `None` if it has none.
pub(crate) fn number(dtype: DType) -> Option<Number> {
    match dtype {
        DType::F16 => Some(Number::F16),
        DType::F32 => Some(Number::F32),
        DType::F64 => Some(Number::F64),
        DType::BF16 => Some(Number::Bf16),
        _ => None,
    }
}
