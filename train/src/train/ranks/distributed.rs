//! Optimizer steps that ranks share.

use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor, TensorData};

use super::Rank;
use super::buckets::Buckets;
use super::exchange::Computed;
use super::sharding;
use crate::micro_batch::MicroBatch;
use crate::mixed::clip_factor;
use crate::out_of_memory::{Moment, watched};
use crate::timing::Phase;
use crate::train::accumulation::{AccumulatedGradients, MicroBatchGradients};
use crate::train::gradients::groups;
use crate::train::health::Counts;
use crate::train::rescue::release_memory;
use crate::train::step_failure::StepFailure;
use crate::train::stepper::Stepper;
use crate::train::update::{Update, Weights, changed, patiently, read};
use crate::train::{Rescue, Step, StepError};

/// Gradients summed over all ranks, with what belongs to them.
struct ReducedGradients {
    buckets: Buckets,
    /// For each parameter, true if any rank has a gradient.
    present: Vec<bool>,
    /// Factor from the sum to the clipped mean over the samples, of shape `[1]`.
    factor: Tensor<1>,
    /// Values of [`Totals`], each of shape `[1]`.
    totals: [Tensor<1>; 3],
}

/// Totals of all ranks.
struct Totals {
    /// Norm of the mean gradients; the first rank's, with clipping or sharded state.
    norm: f32,
    samples: f32,
    /// Mean loss over the samples.
    loss: f32,
}

impl Totals {
    fn from_values(values: &[f32]) -> Self {
        Self { norm: values[0], samples: values[1], loss: values[2] }
    }

    /// Returns true if the step is applied.
    fn allow_update(&self) -> bool {
        self.norm.is_finite() && self.samples > 0.0
    }
}

/// Result of an update.
struct Applied {
    totals: Totals,
    rescue: Option<Rescue>,
    /// Sum of parameter changes, in steps that check for a stall, unless ranks update some parameters each.
    moved: Option<f32>,
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
        let begin = self.last_end.unwrap_or_else(Instant::now);
        let micro_batch = self.micro_batch();
        let model = weights.model();
        let AccumulatedGradients { gradients, loss, outputs } =
            AccumulatedGradients::compute(&model, batch, micro_batch, &self.device, &self.timer, part)?;
        weights.complete()?;
        // Read before the exchange: after it, a step cannot be begun again.
        let health = self.health_counts(&gradients, &model)?.map(Counts::watched).transpose()?;
        drop(model);
        let weight = batch.len() as f64 / rank.share().all() as f64;
        let mut buckets = watched(Moment::Backward, || Buckets::new(gradients, &weights.master(), weight))?;
        let vectors = || self.exchanged_vectors(rank, &mut buckets, loss, batch.len());
        let vectors = watched(Moment::Backward, vectors)?;
        let computed = self.timer.time(Phase::Drain, || Computed::wait_for(vectors));
        let computed = computed.map_err(|error| error.at(Moment::Backward))?;
        rank.peers.set_step_seconds(begin.elapsed().as_secs_f64());
        let exchange = || watched(Moment::Optimizer, || self.exchange(rank, buckets, computed))?;
        let reduced = self.timer.time(Phase::Exchange, || rank.waiting(exchange)).map_err(late)?;
        let Applied { totals, rescue, moved } = self.apply_update(rank, weights, reduced).map_err(late)?;
        if totals.samples == 0.0 {
            return Err(StepError::Empty.into());
        }
        self.last_end = Some(Instant::now());
        let update = Update { loss: totals.loss, gradient_norm: totals.norm, moved, rescue, health };
        Ok((self.step_result(update, learns, totals.samples as usize, micro_batch, outputs.len()), outputs))
    }

    /// Takes the vectors to exchange out of `buckets`. Before them is one with this rank's samples, its part of the loss, and
    /// which parameters have gradients.
    fn exchanged_vectors(&self, rank: &Rank, buckets: &mut Buckets, loss: Tensor<1>, samples: usize) -> Vec<Tensor<1>> {
        let device = self.device.clone().without_autodiff();
        let known = |values: Vec<f32>| {
            let length = values.len();
            Tensor::<1>::from_data(TensorData::new(values, [length]), (&device, DType::F32))
        };
        // A rank without samples has no loss.
        let loss = match samples {
            0 => known(vec![0.0]),
            samples => loss.cast(FloatDType::F32).mul_scalar(samples as f64 / rank.share().all() as f64),
        };
        let present = buckets.present.iter().map(|present| f32::from(u8::from(*present))).collect();
        let header = Tensor::cat(vec![known(vec![samples as f32]), loss, known(present)], 0);
        std::iter::once(header).chain(buckets.take_vectors()).collect()
    }

    /// Sums the vectors over all ranks.
    fn exchange(&self, rank: &Rank, mut buckets: Buckets, vectors: Computed) -> Result<ReducedGradients, StepFailure> {
        let device = self.device.clone().without_autodiff();
        let all = rank.share().all() as f64;
        let mut sums = rank.sum(vectors)?;
        let header = sums.remove(0);
        buckets.packed.vectors = sums;
        let scale = header.clone().slice(0..1).clamp_min(1.0).div_scalar(all).recip();
        let norm = buckets.norm().unwrap_or_else(|| Tensor::zeros([1], (&device, DType::F32))) * scale.clone();
        // Each device autotunes its own reductions, which may differ in the last bit.
        let shares_norm = self.max_norm.is_some() || rank.shards_optimizer;
        let norm = if shares_norm { rank.first(vec![norm])?.remove(0) } else { norm };
        let totals = [norm, header.clone().slice(0..1), header.clone().slice(1..2) * scale.clone()];
        // Every rank has a gradient of every parameter, as a rule, and then nothing is waited for.
        let present = if buckets.present.iter().all(|present| *present) {
            buckets.present.clone()
        } else {
            let ranks = self.read_patiently(&[header])?;
            ranks[2..].iter().map(|ranks| *ranks > 0.0).collect()
        };
        let factor = match self.max_norm {
            Some(max) => scale * clip_factor(&totals[0], f64::from(max)),
            None => scale,
        };
        Ok(ReducedGradients { buckets, present, factor, totals })
    }

    /// Reads values, and retries for some seconds while memory runs out.
    fn read_patiently(&self, values: &[Tensor<1>]) -> Result<Vec<f32>, StepFailure> {
        patiently(|| release_memory(&self.device), || read(values.to_vec()))
    }

    /// Clips the summed gradients and updates the weights, unless the norm is not finite.
    fn apply_update<W: Weights>(
        &mut self,
        rank: &Rank,
        weights: &mut W,
        reduced: ReducedGradients,
    ) -> Result<Applied, StepFailure> {
        let ReducedGradients { buckets, present, factor, totals } = reduced;
        let master = weights.master();
        let shard = sharding::shard(rank, &master);
        let updated: Vec<_> = match &shard {
            Some(shard) => {
                let owned = sharding::trained(&master).into_iter().map(|(id, _)| shard.parameters.contains(&id));
                present.iter().zip(owned).map(|(present, owned)| *present && owned).collect()
            }
            None => present.clone(),
        };
        let gradients = watched(Moment::Optimizer, || buckets.split(&master, &updated, Some(&factor)))?;
        drop(master);
        let at_once =
            if self.exceeds_group_bytes(weights) { None } else { self.update_all(rank, weights, &gradients, &totals)? };
        let applied = match at_once {
            Some(applied) => applied,
            None => self.update_by_groups(rank, weights, &gradients, &totals)?,
        };
        drop(gradients);
        let Some(shard) = shard.filter(|_| applied.totals.allow_update()) else { return Ok(applied) };
        let release = || release_memory(&self.device);
        let values = || sharding::owners_values(rank, &weights.master(), &shard, &present, release);
        let values = self.timer.time(Phase::Exchange, values)?;
        *weights = watched(Moment::Optimizer, || weights.replaced(values))?;
        Ok(Applied { moved: None, ..applied })
    }

    /// Updates all parameters, and reads the totals with them: one wait. Returns `None` if memory ran out.
    fn update_all<W: Weights>(
        &self,
        rank: &Rank,
        weights: &mut W,
        gradients: &GradientsParams,
        totals: &[Tensor<1>],
    ) -> Result<Option<Applied>, StepFailure> {
        let all = groups(gradients, &weights.model(), u64::MAX).concat();
        let reads = (self.checks_for_stall(), totals);
        let drain = |values| self.timer.time(Phase::Exchange, || rank.waiting(|| read(values)));
        let new = match changed(weights, gradients, &all, reads, &self.timer, drain) {
            Err(StepFailure::OutOfMemory(_)) => {
                release_memory(&self.device);
                return Ok(None);
            }
            new => new?,
        };
        let totals = Totals::from_values(&new.values);
        if totals.allow_update() {
            *weights = new.weights;
        }
        Ok(Some(Applied { totals, rescue: None, moved: new.moved }))
    }

    /// Reads the totals, then updates the parameters group by group.
    fn update_by_groups<W: Weights>(
        &mut self,
        rank: &Rank,
        weights: &mut W,
        gradients: &GradientsParams,
        totals: &[Tensor<1>],
    ) -> Result<Applied, StepFailure> {
        let values = || self.read_patiently(totals);
        let totals = Totals::from_values(&self.timer.time(Phase::Exchange, || rank.waiting(values))?);
        let (rescue, moved) =
            if totals.allow_update() { self.change_in_groups(weights, gradients)? } else { (None, None) };
        Ok(Applied { totals, rescue, moved })
    }
}

/// Turns a failure after the exchange into an error, because other ranks have taken the step.
fn late(failure: StepFailure) -> StepFailure {
    failure.into_final(|message| StepError::Late { message })
}
