//! A rank's place among the others, and what it exchanges with them.

use std::sync::Arc;

use burn::tensor::distributed::{CollectiveTensor, ReduceOperation, all_reduce};
use burn::tensor::{Device, Tensor};

use super::Ended;
use super::group::{Group, Post};

/// A rank among others.
#[derive(Clone)]
pub(in crate::train) struct Seat {
    pub(super) group: Arc<Group>,
    pub(super) rank: usize,
    /// Of all ranks, without autodiff.
    pub(super) devices: Arc<Vec<Device>>,
}

/// What all ranks know before they exchange gradients.
pub(in crate::train) struct Agreed {
    /// Mean over the samples of all ranks.
    pub loss: f32,
    /// Which parameters have a gradient on some rank.
    pub present: Vec<bool>,
}

impl Seat {
    pub(super) fn ranks(&self) -> usize {
        self.devices.len()
    }

    /// Brings something to a meeting; all ranks have to bring the same kind.
    pub(super) fn meet<T>(&self, post: Post, read: impl Fn(&Post) -> Option<T>) -> Result<Vec<T>, Ended> {
        let met = self.group.meet(self.rank, post)?;
        let all: Option<Vec<T>> = met.iter().map(read).collect();
        all.ok_or_else(|| {
            self.group.end(Ended::OutOfStep);
            Ended::OutOfStep
        })
    }

    /// Ends all ranks with an error of this one.
    pub(in crate::train) fn fail(&self, message: String) {
        self.group.end(Ended::Rank { rank: self.rank, message });
    }

    /// Samples of every rank's part of a step.
    pub(in crate::train) fn samples(&self, own: usize) -> Result<Vec<usize>, Ended> {
        self.meet(Post::Samples(own), |post| match post {
            Post::Samples(samples) => Some(*samples),
            _ => None,
        })
    }

    /// Waits until the gradients of all ranks were computed.
    pub(in crate::train) fn ready(&self, samples: &[usize], loss: f32, present: Vec<bool>) -> Result<Agreed, Ended> {
        let all = self.meet(Post::Ready { loss, present }, |post| match post {
            Post::Ready { loss, present } => Some((*loss, present.clone())),
            _ => None,
        })?;
        let total = samples.iter().sum::<usize>() as f64;
        let mut agreed = Agreed { loss: 0.0, present: Vec::new() };
        let mut mean = 0.0;
        for ((loss, present), samples) in all.into_iter().zip(samples) {
            // A rank without samples has no loss.
            if *samples > 0 {
                mean += f64::from(loss) * *samples as f64 / total;
            }
            agreed.present.resize(present.len().max(agreed.present.len()), false);
            agreed.present.iter_mut().zip(present).for_each(|(any, one)| *any |= one);
        }
        agreed.loss = mean as f32;
        Ok(agreed)
    }

    /// The sums of `parts` over all ranks.
    ///
    /// On GPUs Burn's own collective, which is NCCL; not complete before a value is read. Burn has none on the CPU: there
    /// the parts are in one memory, and every rank adds them up in the same order.
    pub(in crate::train) fn summed(&self, parts: Vec<Tensor<1>>) -> Result<Vec<Tensor<1>>, Ended> {
        if self.ranks() == 1 {
            return Ok(parts);
        }
        if self.devices[self.rank] != Device::flex() {
            let reduce = |part| all_reduce(part, ReduceOperation::Sum, self.devices.to_vec());
            // All are on their way before the first is waited for.
            let reduced: Vec<_> = parts.into_iter().map(reduce).collect();
            return Ok(reduced.into_iter().map(CollectiveTensor::resolve).collect());
        }
        let all = self.meet(Post::Part(parts), |post| match post {
            Post::Part(parts) => Some(parts.clone()),
            _ => None,
        })?;
        let add = |sum: Vec<Tensor<1>>, parts: Vec<Tensor<1>>| sum.into_iter().zip(parts).map(|(a, b)| a + b).collect();
        Ok(all.into_iter().reduce(add).unwrap_or_default())
    }

    /// The norm that counts on all ranks: the first rank's, lest they differ in its last bit.
    pub(in crate::train) fn norm(&self, own: f32) -> Result<f32, Ended> {
        let all = self.meet(Post::Norm(own), |post| match post {
            Post::Norm(norm) => Some(*norm),
            _ => None,
        })?;
        Ok(all.first().copied().unwrap_or(own))
    }

    /// Runs what waits for other devices, and is watched for it.
    pub(in crate::train) fn exchange<T>(&self, exchange: impl FnOnce() -> T) -> T {
        let _watched = Watched::begin(self);
        exchange()
    }
}

/// Within an exchange for as long as it lives.
struct Watched<'s>(&'s Seat);

impl<'s> Watched<'s> {
    fn begin(seat: &'s Seat) -> Self {
        seat.group.set_exchanging(seat.rank, true);
        Self(seat)
    }
}

impl Drop for Watched<'_> {
    fn drop(&mut self) {
        self.0.group.set_exchanging(self.0.rank, false);
    }
}
