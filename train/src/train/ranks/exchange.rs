//! Sums over ranks: of gradients and of the few numbers that belong to them.

use burn::tensor::{Device, FloatDType, Tensor, TensorData};

use super::{PeersEnded, Rank};
use crate::train::StepError;
use crate::train::step_failure::StepFailure;
use crate::train::update::watched_read;

impl Rank {
    /// Sums `parts` over all ranks, which pass equal shapes.
    ///
    /// On GPUs the sum is complete once a value is read. On the CPU, the values pass through the first rank.
    pub(super) fn sum(&self, parts: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, StepFailure> {
        let Some(device) = parts.first().map(Tensor::device) else { return Ok(parts) };
        if self.share.ranks() == 1 {
            return Ok(parts);
        }
        #[cfg(feature = "cuda")]
        if device != Device::flex() {
            return Ok(super::nccl::sum(parts, self.share.rank(), self.share.ranks()));
        }
        self.sum_on_host(parts, &device)
    }

    /// Returns the first rank's values on all ranks.
    pub(super) fn first(&self, own: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, StepFailure> {
        let is_first = self.share.rank() == 0;
        self.sum(if is_first { own } else { own.iter().map(Tensor::zeros_like).collect() })
    }

    fn sum_on_host(&self, parts: Vec<Tensor<1>>, device: &Device) -> Result<Vec<Tensor<1>>, StepFailure> {
        let shapes: Vec<_> = parts.iter().map(|part| (part.dims()[0], part.dtype())).collect();
        let all = Tensor::cat(parts.into_iter().map(|part| part.cast(FloatDType::F32)).collect(), 0);
        let values = watched_read(|| all.try_into_vec_as::<f32>())?;
        let sums = self.waiting(|| self.peers.sum(values)).map_err(StepError::Peers)?;
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
