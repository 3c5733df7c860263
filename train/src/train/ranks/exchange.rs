//! Sums over ranks: of gradients and of the few numbers that belong to them.

use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};

use super::{PeersEnded, Rank};
use crate::train::StepError;
use crate::train::step_failure::StepFailure;
use crate::train::update::{read, watched_read};

/// Bytes to whose multiples CubeCL rounds some allocations on CUDA, and others not.
const ALLOCATION_BYTES: usize = 512;

/// Elements to add to a vector before an exchange.
///
/// CubeCL sums the whole allocation of a vector, whose size depends on the operation that made the vector. Ranks whose
/// allocations differ wait without end, or add other elements than they should. Full multiples have one size.
pub(super) fn padding(length: usize, dtype: DType) -> usize {
    length.next_multiple_of(ALLOCATION_BYTES / dtype.size()) - length
}

/// Vectors that the device has computed, with nothing queued behind them, and padded.
///
/// CubeCL skips a collective of values that were not computed, which would block the other ranks.
pub(super) struct Computed {
    vectors: Vec<Tensor<1>>,
    /// Elements of each vector without the padding.
    lengths: Vec<usize>,
}

impl Computed {
    /// Pads the vectors, and waits for them.
    pub(super) fn wait_for(vectors: Vec<Tensor<1>>) -> Result<Self, StepFailure> {
        let lengths = vectors.iter().map(|vector| vector.dims()[0]).collect();
        let vectors: Vec<_> = vectors.into_iter().map(padded).collect();
        let corner = |vector: &Tensor<1>| vector.clone().slice(0..1).cast(FloatDType::F32);
        let corners: Vec<_> = vectors.iter().filter(|vector| vector.dims()[0] > 0).map(corner).collect();
        if !corners.is_empty() {
            read(corners)?;
        }
        Ok(Self { vectors, lengths })
    }
}

fn padded(vector: Tensor<1>) -> Tensor<1> {
    match padding(vector.dims()[0], vector.dtype()) {
        0 => vector,
        added => {
            let zeros = Tensor::zeros([added], (&vector.device(), vector.dtype()));
            Tensor::cat(vec![vector, zeros], 0)
        }
    }
}

impl Rank {
    /// Sums vectors over all ranks, which pass equal shapes.
    ///
    /// On GPUs the sum is complete once a value is read. On the CPU, the values pass through the first rank.
    pub(super) fn sum(&self, Computed { vectors, lengths }: Computed) -> Result<Vec<Tensor<1>>, StepFailure> {
        let sums = if self.share.ranks() == 1 { vectors } else { self.sum_padded(vectors)? };
        let unpadded =
            |(sum, length): (Tensor<1>, usize)| if sum.dims()[0] == length { sum } else { sum.slice(0..length) };
        Ok(sums.into_iter().zip(lengths).map(unpadded).collect())
    }

    fn sum_padded(&self, vectors: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, StepFailure> {
        let Some(device) = vectors.first().map(Tensor::device) else { return Ok(vectors) };
        #[cfg(feature = "cuda")]
        if device != Device::flex() {
            return Ok(super::nccl::sum(vectors, self.share.rank(), self.share.ranks()));
        }
        self.sum_on_host(vectors, &device)
    }

    /// Returns the first rank's vectors on all ranks.
    pub(super) fn first(&self, own: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, StepFailure> {
        let is_first = self.share.rank() == 0;
        let own = if is_first { own } else { own.into_iter().map(|vector| vector.zeros_like()).collect() };
        self.sum(Computed::wait_for(own)?)
    }

    fn sum_on_host(&self, parts: Vec<Tensor<1>>, device: &Device) -> Result<Vec<Tensor<1>>, StepFailure> {
        let shapes: Vec<_> = parts.iter().map(|part| (part.dims()[0], part.dtype())).collect();
        let all = Tensor::cat(parts.into_iter().map(|part| part.cast(FloatDType::F32)).collect(), 0);
        let values = watched_read(|| all.try_into_vec_as::<f32>())?;
        let sums = self.peers.sum(values).map_err(StepError::Peers)?;
        let mut rest = &sums[..];
        let part = |(length, dtype)| {
            let (values, after) = rest.split_at(length);
            rest = after;
            Tensor::from_data(TensorData::new(values.to_vec(), [length]), (device, dtype))
        };
        Ok(shapes.into_iter().map(part).collect())
    }

    /// Runs `work`, which waits for other ranks.
    pub(super) fn waiting<T>(&self, work: impl FnOnce() -> T) -> T {
        let _waiting = Waiting::begin(self);
        work()
    }

    /// Compares a value with the first rank's.
    pub(super) fn agree(&self, name: &'static str, value: String) -> Result<(), PeersEnded> {
        self.waiting(|| self.peers.agree(name, value))
    }
}

/// Marks a rank as waiting for others until dropped.
struct Waiting<'r>(&'r Rank);

impl<'r> Waiting<'r> {
    fn begin(rank: &'r Rank) -> Self {
        rank.peers.set_waiting(true);
        Self(rank)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.peers.set_waiting(false);
    }
}
