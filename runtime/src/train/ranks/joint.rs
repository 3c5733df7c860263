//! An optimizer step that ranks take together.

use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use super::buckets::Buckets;
use super::seat::Agreed;
use super::{Ended, Seat};
use crate::course::Phase;
use crate::train::attempt::{Attempt, Part};
use crate::train::failure::{Moment, Stopped, watched};
use crate::train::health::Counts;
use crate::train::rescue::give_back;
use crate::train::stepper::Stepper;
use crate::train::update::{Weights, patiently, read};
use crate::train::{MicroBatch, Rescue, Step, StepError};

/// Added to the norm that is divided by, as in [`clip`](crate::mixed::clip).
const CLIP_EPSILON: f64 = 1e-6;

/// What ranks agree on once a step, however often one of them begins it.
#[derive(Default)]
pub(in crate::train) struct Shares(Option<Vec<usize>>);

impl Shares {
    /// Samples of each rank.
    fn agreed(&mut self, seat: &Seat, own: usize) -> Result<Vec<usize>, Ended> {
        if self.0.is_none() {
            self.0 = Some(seat.samples(own)?);
        }
        Ok(self.0.clone().unwrap_or_default())
    }
}

/// The sum over all ranks.
struct Summed {
    buckets: Buckets,
    agreed: Agreed,
    norm: f32,
    samples: usize,
}

impl Stepper {
    /// Takes a step over the samples of all ranks; `batch` holds those of this one.
    ///
    /// A rank that runs out of memory may begin again up to where all of them have read that their gradients were
    /// computed. From there on it tries what is left until it succeeds, or ends all of them.
    pub(in crate::train) fn joint<W: Weights, B: MicroBatch, T>(
        &mut self,
        seat: &Seat,
        shares: &mut Shares,
        weights: &mut W,
        learns: bool,
        batch: &B,
        part: impl Fn(&W::Model, B, f64, GradientsParams) -> Result<Part<T>, Stopped>,
    ) -> Result<(Step, Vec<T>), Stopped> {
        let micro_batch = self.micro_batch();
        let model = weights.model();
        let Attempt { gradients, loss, outputs } =
            { Attempt::run(&model, batch, micro_batch, &self.device, &self.clock, part)? };
        // Its own: once they are exchanged, a step cannot be begun again.
        let health = self.health(&gradients, &model)?.map(Counts::watched).transpose()?;
        drop(model);
        let own = Own { gradients, loss, samples: batch.len() };
        let summed = self.summed(seat, shares, weights, own)?;
        let (norm, loss, samples) = (summed.norm, summed.agreed.loss, summed.samples);
        let (rescue, stalled) = if norm.is_finite() { self.learned(weights, summed)? } else { (None, None) };
        let stands = |stands: bool| learns && norm > 0.0 && stands;
        let step = Step {
            loss,
            gradient_norm: norm,
            applied: norm.is_finite(),
            samples,
            micro_batches: outputs.len(),
            micro_batch,
            rescues: rescue.into_iter().collect(),
            loss_scale: 1.0,
            stalled: stalled.map_or(self.stalled(), stands),
            gradient_health: health,
        };
        Ok((step, outputs))
    }

    fn summed<W: Weights>(&self, seat: &Seat, shares: &mut Shares, weights: &W, own: Own) -> Result<Summed, Stopped> {
        let shares = self.clock.time(Phase::Exchange, || shares.agreed(seat, own.samples))?;
        let samples = shares.iter().sum();
        if samples == 0 {
            return Err(StepError::Empty.into());
        }
        let share = own.samples as f64 / samples as f64;
        let mut buckets = watched(Moment::Backward, || Buckets::of(own.gradients, &weights.master(), share))?;
        let known = std::iter::once(own.loss).chain(buckets.corners()).collect();
        let known = self.clock.time(Phase::Drain, || read(known));
        let known = known.map_err(|unread| unread.at(Moment::Backward))?;
        let agreed = self.clock.time(Phase::Exchange, || seat.ready(&shares, known[0], buckets.present.clone()))?;
        let exchange = || {
            buckets.vectors = seat.summed(std::mem::take(&mut buckets.vectors))?;
            let release = || give_back(&self.device);
            // Without gradients there is nothing to wait for.
            let norm = || buckets.norm().map_or(Ok(0.0), |norm| Ok(read(vec![norm])?[0]));
            Ok::<_, Stopped>(patiently(release, norm)?)
        };
        let norm = self
            .clock
            .time(Phase::Exchange, || seat.norm(seat.exchange(exchange).map_err(late)?).map_err(Stopped::from))?;
        Ok(Summed { buckets, agreed, norm, samples })
    }

    /// Changes the weights; whether memory was found for less at a time only, and whether they stand still, where it was
    /// looked after.
    fn learned<W: Weights>(
        &mut self,
        weights: &mut W,
        summed: Summed,
    ) -> Result<(Option<Rescue>, Option<bool>), Stopped> {
        let Summed { buckets, agreed, norm, .. } = summed;
        let most = self.max_norm.map_or(1.0, |most| f64::from(most) / (f64::from(norm) + CLIP_EPSILON));
        let master = weights.master();
        let gradients = watched(Moment::Optimizer, || buckets.split(&master, &agreed.present, most));
        let gradients = gradients.map_err(Stopped::from).map_err(late)?;
        drop(master);
        let (rescue, moved) = self.change_in_groups(weights, &gradients).map_err(late)?;
        Ok((rescue, moved.map(|moved| moved == 0.0)))
    }
}

/// What a rank brings to the sum.
struct Own {
    gradients: GradientsParams,
    loss: Tensor<1>,
    samples: usize,
}

/// Others have taken the step by then: it cannot be begun again.
fn late(stopped: Stopped) -> Stopped {
    match stopped {
        Stopped::OutOfMemory(failure) => Stopped::Error(StepError::Late { message: failure.message }),
        Stopped::Error(StepError::Device(error)) => Stopped::Error(StepError::Late { message: error.to_string() }),
        error @ Stopped::Error(_) => error,
    }
}

impl From<Ended> for Stopped {
    fn from(ended: Ended) -> Self {
        Self::Error(ended.into())
    }
}
