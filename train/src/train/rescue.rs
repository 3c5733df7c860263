//! Recovery from out of memory: release memory, then use smaller micro-batches or parameter groups.

use std::cell::Cell;
use std::mem::take;
use std::sync::Arc;

use burn::module::ParamId;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{Plan, PlanError, plan};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Goal, Pins};
use gpu_tuned_observe::log::warn_user;

use super::outcome::{Rescue, StepError, StepFailure};
use super::stepper::Stepper;
use super::update::{Sizes, Weights, changed, groups, read, update_in_groups};
use crate::device::OpenGpu;
use crate::out_of_memory::{Moment, OutOfMemory};
use crate::timing::Phase;

/// Values allocated twice for a parameter during an update: the parameter, two of optimizer state and a gradient.
const VALUES_PER_PARAMETER: u64 = 4;

impl Stepper {
    /// Releases memory and shrinks the micro-batch, or the parameter groups if the optimizer ran out of memory. Both have a
    /// smallest size, so rescues end. Shrinks nothing if `is_released`: the caller has released memory that was kept to save
    /// time. The step has so many `samples` on this rank.
    pub(super) fn rescue(
        &mut self,
        failure: OutOfMemory,
        samples: usize,
        is_released: bool,
    ) -> Result<Rescue, StepError> {
        release_memory(&self.device);
        // Allocations also fail on a lost device, where no value can be read.
        let value = Tensor::ones([1], &self.device.clone().without_autodiff());
        if let Err(StepFailure::Error(error)) = read(vec![value]) {
            return Err(error);
        }
        let from = self.micro_batch().min(samples);
        if is_released {
            warn_user(&format!("out of memory {}: retrying the step without its CUDA graph", failure.moment));
            return Ok(Rescue { moment: failure.moment, from, to: from, held_twice: None });
        }
        let memory = self.planner.as_ref().and_then(|planner| (planner.memory)());
        let plan = |stepper: &Self, micro_batch| Some(stepper.planner.as_ref()?.plan(memory?, micro_batch));
        let planned = plan(self, None).and_then(Result::ok).map(|plan| plan.settings.batch_size);
        let OutOfMemory { moment, message } = failure;
        let is_cut = moment != Moment::Optimizer && !self.whole_batch;
        let smaller = if is_cut { self.micro_batch_size.shrink(from as u64, planned) } else { None };
        let is_optimizers = matches!(moment, Moment::Optimizer | Moment::Step);
        let held_twice = if is_optimizers && smaller.is_none() { self.shrink_groups(1) } else { None };
        if smaller.is_none() && held_twice.is_none() {
            let plan = plan(self, Some(from as u64)).map(Box::new);
            return Err(StepError::DoesNotFit { moment, micro_batch: from, memory, plan, message });
        }
        let rescue = Rescue { moment, from, to: self.micro_batch().min(samples), held_twice };
        self.warn_of(&rescue);
        Ok(rescue)
    }

    fn warn_of(&mut self, rescue: &Rescue) {
        let Rescue { moment, from, to, held_twice } = rescue;
        warn_user(&match held_twice {
            None => format!(
                "out of memory {moment}: retrying the step with micro-batches of {to} samples instead of {from}"
            ),
            Some(held) => format!(
                "out of memory {moment}: retrying the step with at most {held} of parameters and optimizer state allocated twice"
            ),
        });
        if to < from && take(&mut self.warns_of_statistics) {
            warn_user(&format!(
                "the micro-batch has {to} samples from here on, which changes the statistics of batch norms and other running states, and \
                 so the results; group and layer norms are unaffected"
            ));
        }
    }

    /// Returns true if an update of all parameters at once exceeds the bytes that may be allocated twice.
    pub(super) fn exceeds_group_bytes<W: Weights>(&mut self, weights: &W) -> bool {
        self.group_bytes.now() < self.sizes(weights).all.saturating_mul(VALUES_PER_PARAMETER)
    }

    fn sizes<W: Weights>(&mut self, weights: &W) -> Sizes {
        *self.sizes.get_or_insert_with(|| Sizes::from_model(&weights.master()))
    }

    /// Updates the weights group by group, within the bytes that may be allocated twice, and in smaller groups after an
    /// out-of-memory. Returns the rescue, and the sum of parameter changes in steps that check for a stall.
    pub(super) fn change_in_groups<W: Weights>(
        &mut self,
        weights: &mut W,
        gradients: &GradientsParams,
    ) -> Result<(Option<Rescue>, Option<f32>), StepFailure> {
        self.sizes(weights);
        let groups = groups(gradients, &weights.model(), self.group_bytes.now() / VALUES_PER_PARAMETER);
        let all_moved = Cell::new(self.checks_for_stall().then_some(0.0));
        let changed = |weights: &W, group: &[ParamId]| {
            let before = all_moved.take();
            let reads = (before.is_some(), &[][..]);
            let drain = |values| self.timer.time(Phase::Drain, || read(values));
            let new = changed(weights, gradients, group, reads, &self.timer, drain)?;
            all_moved.set(before.map(|before| before + new.moved.unwrap_or_default()));
            Ok(new.weights)
        };
        let done = update_in_groups(weights, groups, changed, || release_memory(&self.device));
        // An error came with groups of single parameters.
        let halvings = done.as_ref().copied().unwrap_or(u32::MAX);
        if halvings == 0 {
            return Ok((None, all_moved.get()));
        }
        self.shrink_groups(halvings);
        done?;
        let (size, held_twice) = (self.micro_batch(), Some(Bytes(self.group_bytes.now())));
        warn_user("out of memory in the optimizer: updating fewer parameters at a time");
        Ok((Some(Rescue { moment: Moment::Optimizer, from: size, to: size, held_twice }), all_moved.get()))
    }

    /// Halves the group size so many times; `None` for groups of single parameters.
    fn shrink_groups(&mut self, halvings: u32) -> Option<Bytes> {
        let Sizes { all, largest } = self.sizes?;
        self.group_bytes.limit(largest.saturating_mul(VALUES_PER_PARAMETER), all.saturating_mul(VALUES_PER_PARAMETER));
        let max = self.group_bytes.now().checked_shr(halvings).unwrap_or_default();
        self.group_bytes.shrink(u64::MAX, Some(max)).map(Bytes)
    }
}

/// Releases the memory of a failed step and of empty pool pages.
pub(super) fn release_memory(device: &Device) {
    // The graph of a forward pass without backward pass lives until the next backward pass.
    drop(Tensor::<1>::ones([1], device).require_grad().mul_scalar(2.0).backward());
    // A failure shows in the next step.
    device.sync().ok();
    device.memory_cleanup();
}

/// Optimizer steps without a failure before a size grows again.
const PATIENCE: u32 = 100;
/// Patience for parameter groups: a failed trial costs a part of a step, and tunes no kernel.
pub(super) const SHORT_PATIENCE: u32 = 10;
/// Limit of the patience, which doubles with every failed trial.
const MAX_PATIENCE: u32 = 10_000;

/// Size over a run: samples of a micro-batch, or bytes of a parameter group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AdaptiveSize {
    planned: u64,
    /// Smallest size that saves memory.
    min: u64,
    now: u64,
    patience: u32,
    /// Steps since the last change.
    quiet: u32,
}

impl AdaptiveSize {
    pub(super) fn new(planned: u64) -> Self {
        let planned = planned.max(1);
        Self { planned, min: 1, now: planned, patience: PATIENCE, quiet: 0 }
    }

    /// Current size.
    pub(super) const fn now(&self) -> u64 {
        self.now
    }

    /// Grows after so many steps without a failure.
    pub(super) const fn with_patience(self, steps: u32) -> Self {
        Self { patience: steps, ..self }
    }

    /// Keeps the patience, with another planned size.
    pub(super) fn with_planned(self, planned: u64) -> Self {
        Self { patience: self.patience, ..Self::new(planned) }
    }

    /// Limits the size to the range in which it changes the use of memory.
    pub(super) fn limit(&mut self, min: u64, max: u64) {
        self.planned = self.planned.min(max.max(1));
        self.now = self.now.min(self.planned);
        self.min = min.clamp(1, self.planned);
    }

    /// Shrinks to at most half of the size or of `used`, and to at most `max`. Returns `None` if no smaller size is left.
    pub(super) fn shrink(&mut self, used: u64, max: Option<u64>) -> Option<u64> {
        let used = self.now.min(used);
        if used <= self.min {
            return None;
        }
        // A failure within the patience is a failed trial of a larger size.
        if self.now < self.planned || self.quiet < self.patience {
            self.patience = self.patience.saturating_mul(2).min(MAX_PATIENCE);
        }
        self.now = max.unwrap_or(u64::MAX).min(used / 2).max(self.min);
        self.quiet = 0;
        Some(self.now)
    }

    /// Counts a step without a failure. Returns the new size if it grows.
    pub(super) fn grow(&mut self) -> Option<u64> {
        self.quiet = self.quiet.saturating_add(1);
        if self.now == self.planned || self.quiet < self.patience {
            return None;
        }
        self.now = self.now.saturating_mul(2).min(self.planned);
        self.quiet = 0;
        Some(self.now)
    }
}

/// Planner of smaller micro-batches on a session's device.
#[derive(Clone)]
pub struct Replanning {
    pub(super) facts: DeviceFacts,
    pub(super) workload: Workload,
    pub(super) goal: Goal,
    /// Reads the memory available for training, including the memory of this process; `None` if unknown.
    pub(super) memory: Arc<dyn Fn() -> Option<Bytes> + Send + Sync>,
}

impl Replanning {
    /// Plans as `current` was planned, for `goal` on a device with `facts`; `gpu` is the open GPU.
    pub fn new(
        facts: DeviceFacts,
        workload: Workload,
        goal: &Goal,
        current: &Plan,
        device: &Device,
        gpu: Option<OpenGpu>,
    ) -> Self {
        let (device, opening) = (device.clone().without_autodiff(), current.memory.context + current.memory.kernels);
        let memory = Arc::new(move || Some(memory_left(&device, gpu.as_ref()?)? + opening));
        Self { facts, workload, goal: with_free_micro_batch(goal, current), memory }
    }

    /// Plans for so much memory, with a given micro-batch or the best one.
    pub(super) fn plan(&self, memory: Bytes, micro_batch: Option<u64>) -> Result<Plan, PlanError> {
        let facts = DeviceFacts { memory_available: memory, ..self.facts.clone() };
        let mut goal = self.goal.clone();
        goal.pins.batch_size = micro_batch;
        plan(&facts, &self.workload, &goal)
    }
}

/// Free memory and memory of this process's pools.
#[cfg(feature = "cuda")]
fn memory_left(device: &Device, gpu: &OpenGpu) -> Option<Bytes> {
    let free = crate::device::memory_free(&gpu.gpu).ok()?;
    Some(free + Bytes(device.memory_pool_usage()?.bytes_reserved))
}

/// Unknown: a CPU swaps before it runs out of memory.
#[cfg(not(feature = "cuda"))]
fn memory_left(_: &Device, _: &OpenGpu) -> Option<Bytes> {
    None
}

/// The goal of `plan` with its settings pinned, except for the micro-batch.
fn with_free_micro_batch(goal: &Goal, plan: &Plan) -> Goal {
    let pins = Pins::from(&plan.settings).keep(|setting| !setting.row().cuts_step);
    Goal {
        global_batch: Some(plan.schedule.global_batch),
        // The headroom of the plan, which may differ from the goal's.
        memory_headroom: plan.memory.headroom_share(),
        pins,
        ..goal.clone()
    }
}

#[cfg(test)]
mod tests;
