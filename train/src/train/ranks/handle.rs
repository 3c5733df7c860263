//! Handle of a rank to the others, and its exchanges with them.

use std::sync::Arc;

use burn::tensor::distributed::{CollectiveTensor, ReduceOperation, all_reduce};
use burn::tensor::{Device, Tensor};

use super::Ended;
use super::group::Group;

/// Handle of a rank to the group.
#[derive(Clone)]
pub(in crate::train) struct RankHandle {
    pub(super) group: Arc<Group>,
    pub(super) rank: usize,
    /// Devices of all ranks, without autodiff.
    pub(super) devices: Arc<Vec<Device>>,
}

/// Values that all ranks agree on before they exchange gradients.
pub(in crate::train) struct Agreement {
    /// Mean loss over the samples of all ranks.
    pub loss: f32,
    /// For each parameter, true if any rank has a gradient.
    pub present: Vec<bool>,
}

impl RankHandle {
    pub(super) fn ranks(&self) -> usize {
        self.devices.len()
    }

    /// Exchanges a value with all ranks, which must send values of the same type. Returns the values, rank by rank.
    pub(super) fn exchange<T: Clone + Send + Sync + 'static>(&self, own: T) -> Result<Vec<T>, Ended> {
        let messages = self.group.exchange(self.rank, Box::new(own))?;
        let all: Option<Vec<T>> = messages.iter().map(|message| message.downcast_ref().cloned()).collect();
        all.ok_or_else(|| {
            self.group.end(Ended::OutOfStep);
            Ended::OutOfStep
        })
    }

    /// Ends all ranks with an error of this one.
    pub(in crate::train) fn fail(&self, message: String) {
        self.group.end(Ended::Rank { rank: self.rank, message });
    }

    /// Samples of a step, rank by rank.
    pub(in crate::train) fn samples(&self, own: usize) -> Result<Vec<usize>, Ended> {
        self.exchange(own)
    }

    /// Waits until the gradients of all ranks were computed.
    pub(in crate::train) fn agree(&self, samples: &[usize], loss: f32, present: Vec<bool>) -> Result<Agreement, Ended> {
        let all = self.exchange((loss, present))?;
        let total = samples.iter().sum::<usize>() as f64;
        let (mut mean, mut any_present) = (0.0, Vec::new());
        for ((loss, present), samples) in all.into_iter().zip(samples) {
            // A rank without samples has no loss.
            if *samples > 0 {
                mean += f64::from(loss) * *samples as f64 / total;
            }
            any_present.resize(present.len().max(any_present.len()), false);
            any_present.iter_mut().zip(present).for_each(|(any, one)| *any |= one);
        }
        Ok(Agreement { loss: mean as f32, present: any_present })
    }

    /// Sums `parts` over all ranks.
    ///
    /// On GPUs with Burn's collective, which is NCCL; the sum is complete once a value is read. On the CPU, where Burn has no
    /// collective, every rank adds the parts in the same order.
    pub(in crate::train) fn all_reduce(&self, parts: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, Ended> {
        if self.ranks() == 1 {
            return Ok(parts);
        }
        if self.devices[self.rank] != Device::flex() {
            let reduce = |part| all_reduce(part, ReduceOperation::Sum, self.devices.to_vec());
            // Starts all exchanges before waiting for the first.
            let reduced: Vec<_> = parts.into_iter().map(reduce).collect();
            return Ok(reduced.into_iter().map(CollectiveTensor::resolve).collect());
        }
        let all = self.exchange(parts)?;
        let add = |sum: Vec<Tensor<1>>, parts: Vec<Tensor<1>>| sum.into_iter().zip(parts).map(|(a, b)| a + b).collect();
        Ok(all.into_iter().reduce(add).unwrap_or_default())
    }

    /// Returns the norm of the first rank, because the norms of ranks may differ in the last bit.
    pub(in crate::train) fn first_norm(&self, own: f32) -> Result<f32, Ended> {
        let all = self.exchange(own)?;
        Ok(all.first().copied().unwrap_or(own))
    }

    /// Runs an exchange of gradients under the watchdog of the group.
    pub(in crate::train) fn watched_exchange<T>(&self, exchange: impl FnOnce() -> T) -> T {
        let _watch = Watch::begin(self);
        exchange()
    }
}

/// Marks a rank as exchanging until dropped.
struct Watch<'r>(&'r RankHandle);

impl<'r> Watch<'r> {
    fn begin(rank: &'r RankHandle) -> Self {
        rank.group.set_exchanging(rank.rank, true);
        Self(rank)
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        self.0.group.set_exchanging(self.0.rank, false);
    }
}
