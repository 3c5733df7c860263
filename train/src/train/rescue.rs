//! Recovery from out of memory: release memory, then use smaller micro-batches or parameter groups.

use std::cell::Cell;
use std::mem::take;

use burn::module::ParamId;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use gpu_tuned_core::Bytes;
use gpu_tuned_observe::log::warn_user;

use super::gradients::{Sizes, groups};
use super::outcome::{Rescue, StepError};
use super::step_failure::StepFailure;
use super::stepper::Stepper;
use super::update::{Weights, changed, read, update_in_groups};
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

#[cfg(test)]
mod tests;
