//! Changing parameters, completely or not at all.

use std::collections::VecDeque;
use std::thread::sleep;
use std::time::Duration;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{FloatDType, Tensor, TensorReadError};

use super::failure::{Moment, OutOfMemory, Stopped, is_out_of_memory, watched};
use super::gradients::{copied, witness};
use super::outcome::StepError;
use crate::course::{Clock, Phase};

/// How often what cannot be begun again is tried.
const TRIALS: u32 = 6;
/// Before the second trial; twice as long before each that follows.
const FIRST_WAIT: Duration = Duration::from_millis(100);

/// A model and its optimizer, which change together.
pub(super) trait Weights: Clone {
    /// What is trained.
    type Model: Module;

    /// What computes.
    fn model(&self) -> Self::Model;

    /// What the optimizer changes.
    fn master(&self) -> Self::Model;

    /// What an optimizer step makes of them. They stay as they are, so that it can be thrown away; until one of the two is
    /// dropped, both take memory.
    ///
    /// `group` are the parameters that there are gradients for, where there are not for all: no others take memory twice.
    fn updated(&self, gradients: GradientsParams, group: Option<&[ParamId]>) -> Self;
}

/// Why a value could not be read.
pub(super) enum Unread {
    OutOfMemory(OutOfMemory),
    Device(TensorReadError),
}

impl Unread {
    /// The same, where it is known better when memory ran out.
    pub(super) fn at(self, moment: Moment) -> Self {
        match self {
            Self::OutOfMemory(failure) => Self::OutOfMemory(OutOfMemory { moment, ..failure }),
            error @ Self::Device(_) => error,
        }
    }
}

impl From<Unread> for Stopped {
    fn from(unread: Unread) -> Self {
        match unread {
            Unread::OutOfMemory(failure) => Self::OutOfMemory(failure),
            Unread::Device(error) => Self::Error(StepError::Device(error)),
        }
    }
}

/// Reads values of shape `[1]` in f32, all at once: the only way to learn that work on the device failed.
pub(super) fn read(values: Vec<Tensor<1>>) -> Result<Vec<f32>, Unread> {
    let all = Tensor::cat(values, 0);
    watched_read(|| all.try_into_vec_as::<f32>())
}

/// What is read, or why it could not be.
pub(super) fn watched_read<T>(read: impl FnOnce() -> Result<T, TensorReadError>) -> Result<T, Unread> {
    let read = watched(Moment::Step, read).map_err(Unread::OutOfMemory)?;
    read.map_err(|error| match error.to_string() {
        message if is_out_of_memory(&message) => Unread::OutOfMemory(OutOfMemory { moment: Moment::Step, message }),
        _ => Unread::Device(error),
    })
}

/// What an optimizer step makes of the weights.
pub(super) fn updated<W: Weights>(
    weights: &W,
    gradients: GradientsParams,
    group: Option<&[ParamId]>,
) -> Result<W, OutOfMemory> {
    watched(Moment::Optimizer, || weights.updated(gradients, group))
}

/// Takes the step group by group, each only once it is known that it was computed, so that no more than one group is held
/// twice. Where there is no memory for one, `release` gives some back, and after a while it goes on with halves of the
/// groups, down to single parameters. Returns how often they were halved.
///
/// `changed` is what makes of the weights those with a group changed. Whatever ends it leaves the model torn, unless nothing was
/// changed by then.
pub(super) fn update_in_groups<W: Weights>(
    weights: &mut W,
    groups: Vec<Vec<ParamId>>,
    changed: impl Fn(&W, &[ParamId]) -> Result<W, Unread>,
    release: impl Fn(),
) -> Result<u32, Stopped> {
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
            Err(Unread::OutOfMemory(failure)) => failure,
            Err(error @ Unread::Device(_)) => return Err(torn(error, done, left.len())),
        };
        failures += 1;
        let is_single = group.len() == 1;
        if is_single && failures >= TRIALS {
            return Err(torn(Unread::OutOfMemory(failure), done, left.len()));
        }
        release();
        // What holds the memory may be gone by then.
        sleep(FIRST_WAIT * 2_u32.pow(failures.min(TRIALS - 1) - 1));
        if !is_single {
            left = left.into_iter().flat_map(halves).collect();
            halvings += 1;
        }
    }
    Ok(halvings)
}

/// What ends a step of which so many groups are `done`.
fn torn(unread: Unread, done: usize, left: usize) -> Stopped {
    if done == 0 {
        return unread.into();
    }
    let message = match unread {
        Unread::OutOfMemory(failure) => failure.message,
        Unread::Device(error) => error.to_string(),
    };
    StepError::Torn { done, all: done + left, message }.into()
}

/// The weights with one group changed, once it is known that it was computed; and how far its parameters moved, where that
/// is looked after.
pub(super) fn changed<W: Weights>(
    weights: &W,
    gradients: &GradientsParams,
    group: &[ParamId],
    looks: bool,
    clock: &Clock,
) -> Result<(W, Option<f32>), Unread> {
    let update = || updated(weights, copied(gradients, &weights.model(), group), Some(group));
    let new = clock.time(Phase::Update, update).map_err(Unread::OutOfMemory)?;
    let is_its = |id| group.contains(&id);
    let moved = looks.then(|| difference(&weights.master(), &new.master(), is_its)).flatten();
    let is_looked_at = moved.is_some();
    let values: Vec<_> = witness(&new.model(), is_its).into_iter().chain(moved).collect();
    if values.is_empty() {
        return Ok((new, None));
    }
    let known = clock.time(Phase::Drain, || read(values)).map_err(|unread| unread.at(Moment::Optimizer))?;
    Ok((new, known.last().copied().filter(|_| is_looked_at)))
}

/// A group in two; one parameter stays alone.
fn halves(mut group: Vec<ParamId>) -> impl Iterator<Item = Vec<ParamId>> {
    let second = group.split_off(group.len().div_ceil(2));
    [group, second].into_iter().filter(|half| !half.is_empty())
}

/// Tries again while memory runs out, some seconds long; `release` gives memory back before each trial but the first.
pub(super) fn patiently<T>(release: impl Fn(), trial: impl Fn() -> Result<T, Unread>) -> Result<T, Unread> {
    let mut wait = FIRST_WAIT;
    for _ in 1..TRIALS {
        match trial() {
            Err(Unread::OutOfMemory(_)) => {
                release();
                // What holds the memory may be gone by then.
                sleep(wait);
                wait *= 2;
            }
            other => return other,
        }
    }
    trial()
}

/// Sum of what parameters differ by, in f32, of shape `[1]`; `None` if a model has none that are trained and `seen`.
pub(super) fn difference<M: Module>(old: &M, new: &M, seen: impl Fn(ParamId) -> bool) -> Option<Tensor<1>> {
    let mut values = Values { values: GradientsParams::new(), seen };
    old.visit(&mut values);
    let mut differences = Differences { old: values.values, sum: None };
    new.visit(&mut differences);
    differences.sum
}

struct Values<F> {
    values: GradientsParams,
    seen: F,
}

impl<F: Fn(ParamId) -> bool> ModuleVisitor for Values<F> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() && (self.seen)(param.id) {
            self.values.register(param.id, param.base().without_autodiff());
        }
    }
}

struct Differences {
    old: GradientsParams,
    sum: Option<Tensor<1>>,
}

impl ModuleVisitor for Differences {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(old) = self.old.remove::<D>(param.id) else { return };
        let [old, new] = [old, param.base().without_autodiff()].map(|value| value.cast(FloatDType::F32));
        let difference = new.sub(old).abs().sum();
        self.sum = Some(match self.sum.take() {
            Some(sum) => sum + difference,
            None => difference,
        });
    }
}
