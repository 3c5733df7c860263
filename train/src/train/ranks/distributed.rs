//! Optimizer steps that ranks share.

use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use super::RankHandle;
use super::buckets::Buckets;
use super::handle::Agreement;
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

/// Gradients summed over all ranks.
struct ReducedGradients {
    buckets: Buckets,
    agreement: Agreement,
    norm: f32,
    /// Samples of all ranks.
    samples: usize,
}

impl Stepper {
    /// Attempts a step over the samples of all ranks; `batch` has those of this rank. The first attempt exchanges `samples`,
    /// the samples of every rank.
    ///
    /// A rank that runs out of memory may retry until all ranks have read that their gradients were computed. After
    /// that, it retries the update until it succeeds, or ends all ranks.
    pub(in crate::train) fn distributed_attempt<W: Weights, B: MicroBatch, T>(
        &mut self,
        rank: &RankHandle,
        samples: &mut Option<Vec<usize>>,
        weights: &mut W,
        learns: bool,
        batch: &B,
        part: impl Fn(&W::Model, B, f64, GradientsParams) -> Result<MicroBatchGradients<T>, StepFailure>,
    ) -> Result<(Step, Vec<T>), StepFailure> {
        let micro_batch = self.micro_batch();
        let model = weights.model();
        let AccumulatedGradients { gradients, loss, outputs } =
            AccumulatedGradients::compute(&model, batch, micro_batch, &self.device, &self.timer, part)?;
        // Read before the exchange: after it, a step cannot be begun again.
        let health = self.health_counts(&gradients, &model)?.map(Counts::watched).transpose()?;
        drop(model);
        let of_ranks = match samples {
            Some(known) => known,
            None => samples.insert(self.timer.time(Phase::Exchange, || rank.samples(batch.len()))?),
        };
        let reduced = self.all_reduce_gradients(rank, of_ranks, weights, gradients, loss)?;
        let (loss, gradient_norm, samples) = (reduced.agreement.loss, reduced.norm, reduced.samples);
        let (rescue, moved) =
            if gradient_norm.is_finite() { self.apply_update(weights, reduced)? } else { (None, None) };
        let update = Update { loss, gradient_norm, moved, rescue, health };
        Ok((self.step_result(update, learns, samples, micro_batch, outputs.len()), outputs))
    }

    /// Sums the gradients of all ranks, weighted by their samples.
    fn all_reduce_gradients<W: Weights>(
        &self,
        rank: &RankHandle,
        of_ranks: &[usize],
        weights: &W,
        gradients: GradientsParams,
        loss: Tensor<1>,
    ) -> Result<ReducedGradients, StepFailure> {
        let samples = of_ranks.iter().sum();
        if samples == 0 {
            return Err(StepError::Empty.into());
        }
        let share = of_ranks[rank.rank] as f64 / samples as f64;
        let buckets = || Buckets::new(gradients, &weights.master(), share);
        let mut buckets = watched(Moment::Backward, buckets)?;
        let loss = self.wait_for_gradients(loss, &buckets)?;
        let agree = || rank.agree(of_ranks, loss, buckets.present.clone());
        let agreement = self.timer.time(Phase::Exchange, agree)?;
        let norm = self.timer.time(Phase::Exchange, || self.exchange(rank, &mut buckets))?;
        Ok(ReducedGradients { buckets, agreement, norm, samples })
    }

    /// Reads the loss and one value of every bucket, which shows that the gradients were computed. Returns the loss.
    fn wait_for_gradients(&self, loss: Tensor<1>, buckets: &Buckets) -> Result<f32, StepFailure> {
        let values = std::iter::once(loss).chain(buckets.corners()).collect();
        let values = self.timer.time(Phase::Drain, || read(values));
        Ok(values.map_err(|error| error.at(Moment::Backward))?[0])
    }

    /// Sums the buckets over all ranks. Returns the norm of the sum.
    fn exchange(&self, rank: &RankHandle, buckets: &mut Buckets) -> Result<f32, StepFailure> {
        let exchanged = rank.watched_exchange(|| {
            buckets.vectors = rank.all_reduce(std::mem::take(&mut buckets.vectors))?;
            // A model without gradients has no norm to wait for.
            let norm = || buckets.norm().map_or(Ok(0.0), |norm| Ok(read(vec![norm])?[0]));
            patiently(|| release_memory(&self.device), norm)
        });
        Ok(rank.first_norm(exchanged.map_err(late)?)?)
    }

    /// Clips the summed gradients and updates the weights. Returns the rescue, if memory ran out, and the sum of parameter
    /// changes in steps that check for a stall.
    fn apply_update<W: Weights>(
        &mut self,
        weights: &mut W,
        reduced: ReducedGradients,
    ) -> Result<(Option<Rescue>, Option<f32>), StepFailure> {
        let ReducedGradients { buckets, agreement, norm, .. } = reduced;
        let factor = self.max_norm.map_or(1.0, |max| f64::from(max) / (f64::from(norm) + CLIP_EPSILON));
        let master = weights.master();
        let gradients = watched(Moment::Optimizer, || buckets.split(&master, &agreement.present, factor));
        let gradients = gradients.map_err(StepFailure::from).map_err(late)?;
        drop(master);
        self.change_in_groups(weights, &gradients).map_err(late)
    }
}

/// Turns a failure after the exchange into an error, because other ranks have taken the step.
fn late(failure: StepFailure) -> StepFailure {
    failure.into_final(|message| StepError::Late { message })
}
