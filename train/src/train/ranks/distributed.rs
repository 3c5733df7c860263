//! Optimizer steps that ranks share.

use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::{DType, Tensor, TensorData};

use super::Rank;
use super::buckets::Buckets;
use super::sharding;
use crate::micro_batch::MicroBatch;
use crate::out_of_memory::{Moment, watched};
use crate::timing::Phase;
use crate::train::accumulation::{AccumulatedGradients, MicroBatchGradients};
use crate::train::health::Counts;
use crate::train::rescue::release_memory;
use crate::train::step_failure::StepFailure;
use crate::train::stepper::Stepper;
use crate::train::update::{Update, Weights, patiently, read};
use crate::train::{Rescue, Step, StepError};

/// Added to the norm before the division, as in [`clip`](crate::mixed::clip).
const CLIP_EPSILON: f64 = 1e-6;

/// Gradients summed over all ranks, with what belongs to them.
struct ReducedGradients {
    buckets: Buckets,
    /// For each parameter, true if any rank has a gradient.
    present: Vec<bool>,
    /// Factor from the sum to the mean over the samples.
    scale: f64,
    /// Mean loss over the samples.
    loss: f32,
    /// Norm of the mean gradients; the first rank's, because norms of ranks may differ in the last bit.
    norm: f32,
    /// Samples of all ranks.
    samples: usize,
}

impl Stepper {
    /// Attempts a step over the samples of all ranks; `batch` has those of this rank.
    ///
    /// A rank that runs out of memory may retry until it has read that its gradients were computed. After that, it retries
    /// the update until it succeeds, or ends all ranks.
    pub(in crate::train) fn distributed_attempt<W: Weights, B: MicroBatch, T>(
        &mut self,
        rank: &Rank,
        weights: &mut W,
        learns: bool,
        batch: &B,
        part: impl Fn(&W::Model, B, f64, GradientsParams) -> Result<MicroBatchGradients<T>, StepFailure>,
    ) -> Result<(Step, Vec<T>), StepFailure> {
        let begin = Instant::now();
        let micro_batch = self.micro_batch();
        let model = weights.model();
        let AccumulatedGradients { gradients, loss, outputs } =
            AccumulatedGradients::compute(&model, batch, micro_batch, &self.device, &self.timer, part)?;
        weights.complete()?;
        // Read before the exchange: after it, a step cannot be begun again.
        let health = self.health_counts(&gradients, &model)?.map(Counts::watched).transpose()?;
        drop(model);
        let weight = batch.len() as f64 / rank.share().all() as f64;
        let buckets = watched(Moment::Backward, || Buckets::new(gradients, &weights.master(), weight))?;
        let loss = self.wait_for_gradients(loss, &buckets)?;
        rank.peers.set_step_seconds(begin.elapsed().as_secs_f64());
        let exchange = || rank.waiting(|| self.exchange(rank, buckets, loss, batch.len()));
        let reduced = self.timer.time(Phase::Exchange, exchange).map_err(late)?;
        let (loss, gradient_norm, samples) = (reduced.loss, reduced.norm, reduced.samples);
        if samples == 0 {
            return Err(StepError::Empty.into());
        }
        let (rescue, moved) = if gradient_norm.is_finite() {
            self.apply_update(rank, weights, reduced).map_err(late)?
        } else {
            (None, None)
        };
        let update = Update { loss, gradient_norm, moved, rescue, health };
        Ok((self.step_result(update, learns, samples, micro_batch, outputs.len()), outputs))
    }

    /// Reads the loss and one value of every bucket, which shows that the gradients were computed. Returns the loss.
    fn wait_for_gradients(&self, loss: Tensor<1>, buckets: &Buckets) -> Result<f32, StepFailure> {
        let values = std::iter::once(loss).chain(buckets.corners()).collect();
        let values = self.timer.time(Phase::Drain, || read(values));
        Ok(values.map_err(|error| error.at(Moment::Backward))?[0])
    }

    /// Sums the buckets over all ranks, with the ranks' samples and losses, and the parameters that have gradients.
    fn exchange(
        &self,
        rank: &Rank,
        mut buckets: Buckets,
        loss: f32,
        samples: usize,
    ) -> Result<ReducedGradients, StepFailure> {
        let all = rank.share().all() as f64;
        // A rank without samples has no loss.
        let loss = if samples > 0 { f64::from(loss) * samples as f64 / all } else { 0.0 };
        let present = buckets.present.iter().map(|present| f32::from(u8::from(*present)));
        let header: Vec<f32> = [samples as f32, loss as f32].into_iter().chain(present).collect();
        let length = header.len();
        let device = self.device.clone().without_autodiff();
        let header = Tensor::<1>::from_data(TensorData::new(header, [length]), (&device, DType::F32));
        let parts = std::iter::once(header).chain(std::mem::take(&mut buckets.vectors)).collect();
        let mut sums = rank.sum(parts)?;
        let header = sums.remove(0);
        buckets.vectors = sums;
        let norm = || buckets.norm().unwrap_or_else(|| Tensor::zeros([1], (&device, DType::F32)));
        let values = || read(vec![norm(), header.clone()]);
        let values = patiently(|| release_memory(&self.device), values)?;
        let (norm, samples, loss) = (values[0], values[1], values[2]);
        let norm = read(rank.first(vec![Tensor::from_data([norm], (&device, DType::F32))])?)?[0];
        let scale = if samples > 0.0 { all / f64::from(samples) } else { 1.0 };
        Ok(ReducedGradients {
            buckets,
            present: values[3..].iter().map(|ranks| *ranks > 0.0).collect(),
            scale,
            loss: (f64::from(loss) * scale) as f32,
            norm: (f64::from(norm) * scale) as f32,
            samples: samples as usize,
        })
    }

    /// Clips the summed gradients and updates the weights. Returns the rescue, if memory ran out, and the sum of parameter
    /// changes in steps that check for a stall, unless ranks update some parameters each.
    fn apply_update<W: Weights>(
        &mut self,
        rank: &Rank,
        weights: &mut W,
        reduced: ReducedGradients,
    ) -> Result<(Option<Rescue>, Option<f32>), StepFailure> {
        let ReducedGradients { buckets, present, scale, norm, .. } = reduced;
        let clip = self.max_norm.map_or(1.0, |max| (f64::from(max) / (f64::from(norm) + CLIP_EPSILON)).min(1.0));
        let master = weights.master();
        let owned = (rank.shards_optimizer && rank.share.ranks() > 1).then(|| sharding::owned(rank, &master));
        let updated: Vec<_> = match &owned {
            Some(owned) => present.iter().zip(owned).map(|(present, owned)| *present && *owned).collect(),
            None => present.clone(),
        };
        let gradients = watched(Moment::Optimizer, || buckets.split(&master, &updated, clip * scale))?;
        drop(master);
        let done = self.change_in_groups(weights, &gradients)?;
        drop(gradients);
        let Some(owned) = owned else { return Ok(done) };
        let values = || rank.waiting(|| sharding::owners_values(rank, &weights.master(), &owned, &present));
        let values = self.timer.time(Phase::Exchange, values)?;
        *weights = watched(Moment::Optimizer, || weights.replaced(values))?;
        Ok((done.0, None))
    }
}

/// Turns a failure after the exchange into an error, because other ranks have taken the step.
fn late(failure: StepFailure) -> StepFailure {
    failure.into_final(|message| StepError::Late { message })
}
