//! Optimizer steps that ranks share.

use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor, TensorData};

use super::exchange::Buckets;
use super::nccl::ended_soon;
use super::{GradientSums, Rank, digest, sharding};
use crate::loss::WeightFault;
use crate::micro_batch::MicroBatch;
use crate::mixed::clip_factor;
use crate::out_of_memory::{Moment, watched};
use crate::timing::Phase;
use crate::train::accumulation::{AccumulatedGradients, Weights as LossWeights, reciprocal};
use crate::train::health::Counts;
use crate::train::outcome::StepFailure;
use crate::train::rescue::release_memory;
use crate::train::stepper::{Part, Stepper};
use crate::train::update::{StepValues, Update, Weights, changed, groups, patiently, read};
use crate::train::{Rescue, Step, StepError};

/// Gradients summed over all ranks, with what belongs to them.
struct ReducedGradients {
    buckets: Buckets,
    /// For each parameter, true if any rank has a gradient.
    present: Vec<bool>,
    /// Factor from the sum to the clipped mean over the samples or weights, of shape `[1]`.
    factor: Tensor<1>,
    /// Values of [`Totals`].
    totals: [Tensor<1>; 2],
}

/// Totals of all ranks.
struct Totals {
    samples: f32,
    values: StepValues,
    /// Sums over the ranks that show if this rank's step differs from another's.
    fingerprint: Vec<f32>,
}

impl Totals {
    /// The totals that the norm of the mean gradients and a summed header have. The norm is the first rank's with clipping or
    /// sharded state.
    ///
    /// # Errors
    ///
    /// [`StepError::Weight`] for weights that cannot be used.
    fn new(values: &[f32]) -> Result<Self, StepError> {
        let (norm, header) = (values[0], &values[1..]);
        let [samples, weight, loss, negative, weighted, unweighted] = [0, 1, 2, 3, 4, 5].map(|at| header[at]);
        if weighted > 0.0 && unweighted > 0.0 {
            return Err(WeightFault::Missing.into());
        }
        if !weight.is_finite() || negative != 0.0 {
            let wrong = if weight.is_finite() { negative } else { weight };
            return Err(WeightFault::Number(f64::from(wrong)).into());
        }
        let loss = if weight > 0.0 { loss / weight } else { loss };
        let weight = Some(weight).filter(|_| weighted > 0.0 || samples == 0.0);
        let values = StepValues { loss, gradient_norm: norm, weight };
        Ok(Self { samples, values, fingerprint: header[NUMBERS..PRESENT].to_vec() })
    }
}

/// Numbers at the begin of a header: samples, weight, loss times weight, sum of negative weights, and whether the rank's losses
/// have weights or none.
const NUMBERS: usize = 6;
/// Bits of each digit in a fingerprint. Their squares add up to exact numbers in fp32 over 65,536 ranks.
const DIGIT_BITS: u32 = 4;

/// Digits and squares of a fingerprint.
const FINGERPRINT: usize = 2 * (u64::BITS / DIGIT_BITS) as usize;
/// Place in a header of the parameters that have gradients.
const PRESENT: usize = NUMBERS + FINGERPRINT;

/// Steps from one that measures the time of the rank to the next. Such a step waits for the rank's own gradients, and the GPU
/// is idle meanwhile.
const TIMED: u64 = 16;

/// Values of this rank's step that are equal on all ranks.
struct Equal {
    fingerprint: Vec<f32>,
    learning_rate: f64,
}

/// Fingerprint of what must be equal on all ranks: the digits of a hash, and their squares.
///
/// Sums over the ranks equal this rank's digits and squares times the number of ranks only if all ranks have its digits.
fn fingerprint(learning_rate: f64, step: u64, inputs: u64) -> Vec<f32> {
    let hash = digest(&(learning_rate.to_bits(), step, inputs));
    let digits = (0..u64::BITS / DIGIT_BITS).map(|index| hash >> (index * DIGIT_BITS) & ((1 << DIGIT_BITS) - 1));
    digits.flat_map(|digit| [digit as f32, (digit * digit) as f32]).collect()
}

/// Result of an update.
struct Applied {
    totals: Totals,
    rescue: Option<Rescue>,
    /// Sum of parameter changes, in steps that check for a stall, unless ranks update some parameters each.
    moved: Option<f32>,
}

impl Stepper {
    /// Attempts a step over the samples of all ranks; `batch` has those of this rank. The sums of gradients last for all attempts.
    ///
    /// A rank that runs out of memory may retry until all its sums have begun. After that, it retries the update until it
    /// succeeds, or ends all ranks.
    pub(in crate::train) fn distributed_attempt<W: Weights, B: MicroBatch, T>(
        &mut self,
        rank: &Rank,
        sums: &mut Option<GradientSums>,
        weights: &mut W,
        learns: bool,
        batch: &B,
        part: impl Part<W::Model, B, T>,
    ) -> Result<(Step, Vec<T>), StepFailure> {
        let begin = self.last_end.unwrap_or_else(Instant::now);
        let micro_batch = self.micro_batch();
        let model = weights.model();
        let sums = match sums {
            Some(sums) => sums,
            none => none.insert(GradientSums::new(rank, &weights.master(), batch.len())?),
        };
        sums.begin_attempt();
        // The first step tunes kernels, the rank's own time is measured without sums, and counts are of whole gradients.
        let is_timed = self.timer.is_on() || self.steps % TIMED == 1;
        let allows_early = self.overlaps_sums && self.steps > 0 && weights.differentiates();
        let begins_early = allows_early && !is_timed && !self.counts_health();
        let AccumulatedGradients { gradients, loss, weights: loss_weights, outputs, .. } =
            self.accumulated(weights, &model, batch, part, begins_early.then_some(&*sums))?;
        weights.complete()?;
        // Read before the sums: after them, a step cannot be begun again.
        let health = self.health_counts(&gradients, &model)?.map(Counts::watched).transpose()?;
        drop(model);
        let is_weighted = loss_weights.is_some();
        watched(Moment::Backward, || sums.complete(gradients, is_weighted, &weights.master()))?;
        let fingerprint = fingerprint(weights.learning_rate(), self.steps, rank.inputs.digest());
        let present = sums.present();
        let header = || self.header(loss, loss_weights.as_ref(), batch.len(), fingerprint.clone(), &present);
        let header = watched(Moment::Backward, header)?;
        if is_timed {
            self.timer.time(Phase::Drain, || sums.wait()).map_err(|error| error.at(Moment::Backward))?;
            rank.peers.set_step_seconds(begin.elapsed().as_secs_f64());
        }
        let begin_all = || watched(Moment::Backward, || sums.begin_all(header))?;
        self.timer.time(Phase::Exchange, || rank.waiting(begin_all))?;
        let exchange = || watched(Moment::Optimizer, || self.exchange(rank, sums))?;
        let late = |failure| late(rank, failure);
        let reduced = self.timer.time(Phase::Exchange, || rank.waiting(exchange)).map_err(late)?;
        let equal = Equal { fingerprint, learning_rate: weights.learning_rate() };
        let Applied { totals, rescue, moved } = self.apply_update(rank, weights, reduced, &equal).map_err(late)?;
        if totals.samples == 0.0 {
            return Err(StepError::Empty.into());
        }
        self.last_end = Some(Instant::now());
        let update = Update { values: totals.values, moved, rescue, health };
        Ok((self.step_result(update, learns, totals.samples as usize, micro_batch, outputs.len()), outputs))
    }

    /// Vector that is summed behind the gradients: [`NUMBERS`], the fingerprint, and which parameters have gradients.
    fn header(
        &self,
        loss: Tensor<1>,
        weights: Option<&LossWeights>,
        samples: usize,
        fingerprint: Vec<f32>,
        present: &[bool],
    ) -> Tensor<1> {
        let device = self.device.clone().without_autodiff();
        let known = |values: Vec<f32>| {
            let length = values.len();
            Tensor::<1>::from_data(TensorData::new(values, [length]), (&device, DType::F32))
        };
        // Each upload takes time of the host: numbers that it knows are one.
        let rest = |flags: [f32; 2]| {
            let present = present.iter().map(|present| f32::from(u8::from(*present)));
            known(flags.into_iter().chain(fingerprint).chain(present).collect())
        };
        let count = samples as f32;
        let parts = match weights {
            Some(LossWeights { sum, smallest }) => {
                let negative = smallest.clone().clamp_max(0.0);
                vec![known(vec![count]), sum.clone(), loss, negative, rest([1.0, 0.0])]
            }
            // A rank without samples has no loss.
            None if samples == 0 => vec![known(vec![0.0; 4]), rest([0.0; 2])],
            None => {
                let loss = loss.cast(FloatDType::F32).mul_scalar(samples as f64);
                vec![known(vec![count; 2]), loss, known(vec![0.0]), rest([0.0, 1.0])]
            }
        };
        Tensor::cat(parts, 0)
    }

    /// Sums of all ranks, and what follows from them.
    fn exchange(&self, rank: &Rank, sums: &GradientSums) -> Result<ReducedGradients, StepFailure> {
        let device = self.device.clone().without_autodiff();
        let all = rank.share().all() as f64;
        let (buckets, header) = sums.end()?;
        rank.check_sums()?;
        let scale = reciprocal(&header.clone().slice(1..2)).mul_scalar(all);
        let norm = buckets.norm().unwrap_or_else(|| Tensor::zeros([1], (&device, DType::F32))) * scale.clone();
        // Each device autotunes its own reductions, which may differ in the last bit.
        let shares_norm = self.max_norm.is_some() || rank.shards_optimizer;
        let norm = if shares_norm { rank.first(vec![norm])?.remove(0) } else { norm };
        let totals = [norm, header.clone().slice(0..PRESENT)];
        // Every rank has a gradient of every parameter, as a rule, and then nothing is waited for.
        let present = if buckets.present.iter().all(|present| *present) {
            buckets.present.clone()
        } else {
            let ranks = self.read_patiently(&[header])?;
            ranks[PRESENT..].iter().map(|ranks| *ranks > 0.0).collect()
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
        equal: &Equal,
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
        let at_once = if self.exceeds_group_bytes(weights) {
            None
        } else {
            self.update_all(rank, weights, &gradients, &totals, equal)?
        };
        let applied = match at_once {
            Some(applied) => applied,
            None => self.update_by_groups(rank, weights, &gradients, &totals, equal)?,
        };
        drop(gradients);
        let Some(shard) = shard.filter(|_| applied.totals.values.allow_update()) else { return Ok(applied) };
        let release = || release_memory(&self.device);
        let values = || sharding::owners_values(rank, &weights.master(), &shard, &present, release);
        let values = self.timer.time(Phase::Exchange, values)?;
        *weights = watched(Moment::Optimizer, || weights.replaced(values))?;
        Ok(Applied { moved: None, ..applied })
    }

    /// Totals of a step that all ranks take alike.
    ///
    /// # Errors
    ///
    /// [`StepError::Peers`] on all ranks if they differ in the learning rate, the number of steps, or the data that they read.
    /// Also if the ranks ended while the values were read.
    fn totals(&self, rank: &Rank, values: &[f32], equal: &Equal) -> Result<Totals, StepError> {
        rank.check_sums()?;
        let totals = Totals::new(values)?;
        let ranks = rank.share().ranks() as f32;
        if equal.fingerprint.iter().zip(&totals.fingerprint).any(|(own, sum)| (own * ranks - sum).abs() > 0.5) {
            let agree = |name, value| rank.agree(name, value).map_err(StepError::Peers);
            agree("learning rate", equal.learning_rate.to_string())?;
            agree("number of the step", (self.steps + 1).to_string())?;
            agree("training data", rank.inputs.describe())?;
        }
        Ok(totals)
    }

    /// Updates all parameters, and reads the totals with them: one wait. Returns `None` if memory ran out.
    fn update_all<W: Weights>(
        &self,
        rank: &Rank,
        weights: &mut W,
        gradients: &GradientsParams,
        totals: &[Tensor<1>],
        equal: &Equal,
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
        let totals = self.totals(rank, &new.values, equal)?;
        if totals.values.allow_update() {
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
        equal: &Equal,
    ) -> Result<Applied, StepFailure> {
        let values = || self.read_patiently(totals);
        let totals = self.totals(rank, &self.timer.time(Phase::Exchange, || rank.waiting(values))?, equal)?;
        let (rescue, moved) =
            if totals.values.allow_update() { self.change_in_groups(weights, gradients)? } else { (None, None) };
        Ok(Applied { totals, rescue, moved })
    }
}

/// Turns a failure after the exchange into an error, because other ranks have taken the step. A failure of NCCL is that of the
/// rank that was lost.
fn late(rank: &Rank, failure: StepFailure) -> StepFailure {
    match rank.collectives.as_ref().and_then(|_| ended_soon(&*rank.peers)) {
        Some(ended) => StepError::Peers(ended).into(),
        None => failure.into_final(|message| StepError::Late { message }),
    }
}
