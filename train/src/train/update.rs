//! Updates of parameters, complete or not at all.

use std::collections::VecDeque;
use std::thread::sleep;
use std::time::Duration;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{DType, FloatDType, Tensor, TensorReadError};

use super::accumulation::Weights as LossWeights;
use super::health::GradientHealth;
use super::outcome::{Rescue, StepError, StepFailure};
use crate::loss::WeightFault;
use crate::mixed::TOGETHER;
use crate::out_of_memory::{Moment, OutOfMemory, is_out_of_memory, watched};
use crate::shape::visit_floats;
use crate::timing::{Phase, StepTimer};

/// Trials of work that cannot be begun again.
const TRIALS: u32 = 6;
/// Wait before the second trial; doubles with each further trial.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// Model and optimizer, which change together.
pub(super) trait Weights: Clone {
    /// Model.
    type Model: Module;

    /// Model that computes.
    fn model(&self) -> Self::Model;

    /// Model that the optimizer updates.
    fn master(&self) -> Self::Model;

    /// Returns updated weights. The old ones stay, so an update can be discarded; both take memory until one is dropped.
    ///
    /// `group` names the parameters with gradients, if not all have one. The others take no memory twice.
    fn updated(&self, gradients: GradientsParams, group: Option<&[ParamId]>) -> Self;

    /// Returns the weights with these values of some parameters, which the optimizer did not compute.
    fn replaced(&self, values: GradientsParams) -> Self;

    /// Learning rate of the step.
    fn learning_rate(&self) -> f64;

    /// Returns true if the master has other types than the model that computes.
    fn is_mixed(&self) -> bool;

    /// Returns true if backward passes are those of the model that is passed to them, not replays.
    fn differentiates(&self) -> bool {
        true
    }

    /// Completes the micro-steps of a step before the update, such as the running statistics of replays.
    fn complete(&self) -> Result<(), OutOfMemory> {
        Ok(())
    }

    /// Releases memory that is kept between steps only to save time. Returns true if there was any.
    fn release(&self) -> bool {
        false
    }
}

/// Values of a step that were read.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepValues {
    pub loss: f32,
    pub gradient_norm: f32,
    /// Sum of the losses' weights; `None` without.
    pub weight: Option<f32>,
}

impl StepValues {
    /// Values as [`pending_values`] orders them.
    ///
    /// # Errors
    ///
    /// [`StepError::Weight`] for a weight that is negative or not finite.
    pub(super) fn new(values: &[f32]) -> Result<Self, StepError> {
        let weight = values.get(2).copied();
        if let (Some(sum), Some(smallest)) = (weight, values.get(3))
            && (!sum.is_finite() || *smallest < 0.0)
        {
            let wrong = if sum.is_finite() { *smallest } else { sum };
            return Err(WeightFault::Number(f64::from(wrong)).into());
        }
        Ok(Self { loss: values[0], gradient_norm: values[1], weight })
    }

    /// Returns true if the step is applied.
    pub(super) fn allow_update(&self) -> bool {
        self.gradient_norm.is_finite() && self.weight != Some(0.0)
    }
}

/// Values of a step that are pending on the device until the update is read, in fp32 and of shape `[1]`.
pub(super) fn pending_values(
    loss: Tensor<1>,
    gradient_norm: Tensor<1>,
    weights: Option<LossWeights>,
) -> Vec<Tensor<1>> {
    let weights = weights.into_iter().flat_map(|LossWeights { sum, smallest }| [sum, smallest]);
    [loss, gradient_norm].into_iter().chain(weights).collect()
}

/// Result of a parameter update.
pub(super) struct Update {
    pub values: StepValues,
    /// Sum of parameter changes, in steps that check for a stall.
    pub moved: Option<f32>,
    pub rescue: Option<Rescue>,
    pub health: Option<GradientHealth>,
}

/// Reads fp32 values, all at once. Only a read reports that work on the device failed.
pub(super) fn read(values: Vec<Tensor<1>>) -> Result<Vec<f32>, StepFailure> {
    let all = Tensor::cat(values, 0);
    watched_read(|| all.try_into_vec_as::<f32>())
}

/// Reads from the device.
pub(super) fn watched_read<T>(read: impl FnOnce() -> Result<T, TensorReadError>) -> Result<T, StepFailure> {
    watched(Moment::Step, read)?.map_err(|error| match error.to_string() {
        message if is_out_of_memory(&message) => OutOfMemory { moment: Moment::Step, message }.into(),
        _ => StepError::Device(error).into(),
    })
}

/// Returns the weights after an optimizer step.
pub(super) fn updated<W: Weights>(
    weights: &W,
    gradients: GradientsParams,
    group: Option<&[ParamId]>,
) -> Result<W, OutOfMemory> {
    watched(Moment::Optimizer, || weights.updated(gradients, group))
}

/// Updates group by group, each after the one before was computed, so that one group at most is allocated twice.
///
/// `changed` returns the weights with a group updated. After an out-of-memory error, `release` frees memory, and the update
/// continues with halves of the groups, down to single parameters. Returns the number of halvings. An error after the
/// first group leaves a partially applied update.
pub(super) fn update_in_groups<W: Weights>(
    weights: &mut W,
    groups: Vec<Vec<ParamId>>,
    changed: impl Fn(&W, &[ParamId]) -> Result<W, StepFailure>,
    release: impl Fn(),
) -> Result<u32, StepFailure> {
    let mut left = VecDeque::from(groups);
    let (mut done, mut halvings, mut failures) = (0, 0, 0);
    while let Some(group) = left.front() {
        let failure = match changed(weights, group) {
            Ok(changed) => {
                *weights = changed;
                left.pop_front();
                (done, failures) = (done + 1, 0);
                continue;
            }
            Err(failure) => failure,
        };
        failures += 1;
        let is_single = group.len() == 1;
        if matches!(failure, StepFailure::Error(_)) || is_single && failures >= TRIALS {
            let torn = |message| StepError::Torn { done, all: done + left.len(), message };
            return Err(if done == 0 { failure } else { failure.into_final(torn) });
        }
        release();
        // Other processes may free memory meanwhile.
        sleep(FIRST_WAIT * 2_u32.pow(failures.min(TRIALS - 1) - 1));
        if !is_single {
            left = left.into_iter().flat_map(halves).collect();
            halvings += 1;
        }
    }
    Ok(halvings)
}

/// A group of parameters that was updated.
pub(super) struct Changed<W> {
    pub weights: W,
    /// Sum of parameter changes, if it is measured.
    pub moved: Option<f32>,
    /// Values of the pending tensors.
    pub values: Vec<f32>,
}

/// Updates one group and waits for it. `drain` reads `pending` with it. Sums up the parameter changes if `measures_change`.
pub(super) fn changed<W: Weights>(
    weights: &W,
    gradients: &GradientsParams,
    group: &[ParamId],
    (measures_change, pending): (bool, &[Tensor<1>]),
    timer: &StepTimer,
    drain: impl FnOnce(Vec<Tensor<1>>) -> Result<Vec<f32>, StepFailure>,
) -> Result<Changed<W>, StepFailure> {
    let update = || updated(weights, copied(gradients, &weights.model(), group), Some(group));
    let new = timer.time(Phase::Update, update)?;
    let is_in_group = |id| group.contains(&id);
    let moved = measures_change.then(|| difference(&weights.master(), &new.master(), is_in_group)).flatten();
    let has_moved = moved.is_some();
    let values: Vec<_> = pending.iter().cloned().chain(witness(&new.model(), is_in_group)).chain(moved).collect();
    if values.is_empty() {
        return Ok(Changed { weights: new, moved: None, values: Vec::new() });
    }
    let mut values = drain(values).map_err(|unread| unread.at(Moment::Optimizer))?;
    let moved = values.last().copied().filter(|_| has_moved);
    values.truncate(pending.iter().map(|pending| pending.dims()[0]).sum());
    Ok(Changed { weights: new, moved, values })
}

/// Splits a group in two; one parameter stays alone.
fn halves(mut group: Vec<ParamId>) -> impl Iterator<Item = Vec<ParamId>> {
    let second = group.split_off(group.len().div_ceil(2));
    [group, second].into_iter().filter(|half| !half.is_empty())
}

/// Retries for some seconds while memory runs out; `release` frees memory before each retry.
pub(super) fn patiently<T>(release: impl Fn(), trial: impl Fn() -> Result<T, StepFailure>) -> Result<T, StepFailure> {
    let mut wait = FIRST_WAIT;
    for _ in 1..TRIALS {
        match trial() {
            Err(StepFailure::OutOfMemory(_)) => {
                release();
                // Other processes may free memory meanwhile.
                sleep(wait);
                wait *= 2;
            }
            other => return other,
        }
    }
    trial()
}

/// Sum of absolute differences of the trained parameters that are `seen`, in fp32 and of shape `[1]`; `None` without any.
pub(super) fn difference<M: Module>(old: &M, new: &M, seen: impl Fn(ParamId) -> bool) -> Option<Tensor<1>> {
    let state = (GradientsParams::new(), &seen as &dyn Fn(ParamId) -> bool);
    let old = visit_floats!(old, (values, seen) = state, (GradientsParams, &'v dyn Fn(ParamId) -> bool), |param| {
        if param.is_require_grad() && seen(param.id) {
            values.register(param.id, param.base().without_autodiff());
        }
    });
    let changes =
        visit_floats!(new, (old, changes) = (old.0, Vec::new()), (GradientsParams, Vec<Tensor<1>>), |param| {
            if let Some(old) = old.remove::<D>(param.id) {
                let [old, new] = [old, param.base().without_autodiff()].map(|value| value.cast(FloatDType::F32));
                changes.push(new.sub(old).abs().sum());
            }
        });
    changes.1.into_iter().reduce(|sum, change| sum + change)
}

/// Parameters with gradients in groups of at most so many bytes, in the order of the model; one that is larger is alone.
pub(super) fn groups<M: Module>(gradients: &GradientsParams, model: &M, bytes: u64) -> Vec<Vec<ParamId>> {
    let sizes = visit_floats!(
        model,
        (sizes, gradients) = (Vec::new(), gradients),
        (Vec<(ParamId, u64)>, &'v GradientsParams),
        |param| {
            if let Some(gradient) = gradients.get::<D>(param.id) {
                sizes.push((param.id, (gradient.shape().num_elements() * gradient.dtype().size()) as u64));
            }
        }
    );
    let mut groups: Vec<Vec<ParamId>> = Vec::new();
    // Bytes left in the last group.
    let mut room = 0;
    for (id, size) in sizes.0 {
        match groups.last_mut() {
            Some(group) if size <= room => group.push(id),
            _ => {
                groups.push(vec![id]);
                room = bytes.max(size);
            }
        }
        room -= size;
    }
    groups
}

/// Copies of the gradients of some parameters, of the same bytes.
pub(super) fn copied<M: Module>(gradients: &GradientsParams, model: &M, ids: &[ParamId]) -> GradientsParams {
    let state = (GradientsParams::new(), gradients, ids);
    let copied = visit_floats!(
        model,
        (copies, gradients, ids) = state,
        (GradientsParams, &'v GradientsParams, &'v [ParamId]),
        |param| {
            if let Some(gradient) = gradients.get::<D>(param.id).filter(|_| ids.contains(&param.id)) {
                copies.register(param.id, gradient);
            }
        }
    );
    copied.0
}

/// A value on the device, of shape `[1]`, that depends on every trained parameter of a model that is `seen`; `None` if
/// there is none.
///
/// A read of the value fails if one of the parameters could not be computed. The value itself is arbitrary.
pub fn witness<M: Module>(model: &M, seen: impl Fn(ParamId) -> bool) -> Option<Tensor<1>> {
    let mut corners = Corners { seen, values: Vec::new() };
    model.visit(&mut corners);
    let sum = |values: &[Tensor<1>]| Tensor::cat(values.to_vec(), 0).cast(FloatDType::F32).sum();
    let sums: Vec<_> = corners.values.iter().flat_map(|(_, values)| values.chunks(TOGETHER)).map(sum).collect();
    sums.into_iter().reduce(|sum, other| sum + other)
}

/// `CubeCL` does not copy a contiguous slice whose begin and end are multiples of this number of bytes. CUDA's
/// alignment is the largest of all GPUs.
const ALIGNMENT: usize = 512;

/// Some values of each parameter, by their type: what is of one type is put together by one kernel.
struct Corners<F> {
    seen: F,
    values: Vec<(DType, Vec<Tensor<1>>)>,
}

impl<F: Fn(ParamId) -> bool> ModuleVisitor for Corners<F> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if !param.is_require_grad() || !(self.seen)(param.id) {
            return;
        }
        let value = param.base().without_autodiff();
        let (dtype, row) = (value.dtype(), value.dims()[D - 1]);
        let aligned = ALIGNMENT / dtype.size().max(1);
        let kept = if row > 0 && row.is_multiple_of(aligned) { aligned } else { 1 };
        let corner = std::array::from_fn::<_, D, _>(|axis| 0..if axis == D - 1 { kept } else { 1 });
        let corner = value.slice(corner).reshape([kept]);
        match self.values.iter_mut().find(|(known, _)| *known == dtype) {
            Some((_, corners)) => corners.push(corner),
            None => self.values.push((dtype, vec![corner])),
        }
    }
}

/// Bytes of a model's trained parameters.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    pub all: u64,
    /// Bytes of the largest one.
    pub largest: u64,
}

impl Sizes {
    pub(super) fn from_model<M: Module>(model: &M) -> Self {
        visit_floats!(model, sizes = Self::default(), Sizes, |param| {
            if param.is_require_grad() {
                let bytes = (param.shape().num_elements() * param.dtype().size()) as u64;
                *sizes = Sizes { all: sizes.all + bytes, largest: sizes.largest.max(bytes) };
            }
        })
    }
}

#[cfg(test)]
mod tests;
