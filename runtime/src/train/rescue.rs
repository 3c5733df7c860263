//! What is done when memory ran out: it is given back, and what is to blame becomes smaller.

use std::cell::Cell;
use std::mem::take;

use burn::module::ParamId;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor};
use gpu_tuned_core::Bytes;

use super::failure::{Moment, OutOfMemory, Stopped};
use super::gradients::{Sizes, groups};
use super::outcome::{Rescue, StepError};
use super::stepper::Stepper;
use super::update::{Unread, Weights, changed, read, update_in_groups};
use gpu_tuned_observe::log;

/// A parameter, two values of state and a gradient: what is held twice for each.
const HELD_VALUES: u64 = 4;

impl Stepper {
    /// Gives memory back and goes on smaller: with smaller micro-batches, unless the optimizer is to blame, for which fewer
    /// parameters are changed at a time. Either is possible so often that it always ends. The step was to be one over so many
    /// `samples`, of this rank.
    pub(super) fn rescue(&mut self, failure: OutOfMemory, samples: usize) -> Result<Rescue, StepError> {
        give_back(&self.device);
        // Allocations fail on a device that is lost, too: there, nothing can be computed any more.
        if let Err(Unread::Device(error)) = read(vec![Tensor::ones([1], &self.device.clone().without_autodiff())]) {
            return Err(StepError::Device(error));
        }
        let memory = self.remaining.as_ref().and_then(|remaining| remaining.memory());
        let remaining = self.remaining.as_ref().zip(memory);
        let planned = remaining.and_then(|(remaining, memory)| remaining.plan(memory, None).ok());
        let planned = planned.map(|plan| plan.settings.batch_size);
        let OutOfMemory { moment, message } = failure;
        let from = self.micro_batch().min(samples);
        let smaller = if moment == Moment::Optimizer { None } else { self.pace.shrink(from as u64, planned) };
        let is_optimizers = matches!(moment, Moment::Optimizer | Moment::Step);
        let held_twice = if is_optimizers && smaller.is_none() { self.hold_less(1) } else { None };
        if smaller.is_none() && held_twice.is_none() {
            let remaining = self.remaining.as_ref().zip(memory);
            let plan = remaining.map(|(remaining, memory)| Box::new(remaining.plan(memory, Some(from as u64))));
            return Err(StepError::DoesNotFit { moment, micro_batch: from, memory, plan, message });
        }
        let rescue = Rescue { moment, from, to: self.micro_batch().min(samples), held_twice };
        self.tell(&rescue);
        Ok(rescue)
    }

    fn tell(&mut self, rescue: &Rescue) {
        let Rescue { moment, from, to, held_twice } = rescue;
        log::warn_user(&match held_twice {
            None => format!(
                "out of memory {moment}: the step is begun again with micro-batches of {to} samples in place of {from}"
            ),
            Some(held) => format!(
                "out of memory {moment}: the step is begun again, and {held} of parameters and optimizer state are held twice at most"
            ),
        });
        if to < from && take(&mut self.tells_of_statistics) {
            log::warn_user(&format!(
                "batch norms' statistics are those of a micro-batch, {to} samples from here on: the results are no longer those of \
                 the plan, as they would be with group or layer norms"
            ));
        }
    }

    /// Whether more would be held twice than may be, if all parameters were changed at once.
    pub(super) fn is_too_much_at_once<W: Weights>(&mut self, weights: &W) -> bool {
        self.twice.now() < self.sizes(weights).all.saturating_mul(HELD_VALUES)
    }

    fn sizes<W: Weights>(&mut self, weights: &W) -> Sizes {
        *self.sizes.get_or_insert_with(|| Sizes::of(&weights.master()))
    }

    /// Changes the weights group by group, so that no more is held twice than may be; and less from then on where there was
    /// no memory for that, which it tells. How far parameters moved is known where it is looked after, and nothing failed.
    pub(super) fn change_in_groups<W: Weights>(
        &mut self,
        weights: &mut W,
        gradients: &GradientsParams,
    ) -> Result<(Option<Rescue>, Option<f32>), Stopped> {
        self.sizes(weights);
        let groups = groups(gradients, &weights.model(), self.twice.now() / HELD_VALUES);
        let all_moved = Cell::new(self.looks().then_some(0.0));
        let changed = |weights: &W, group: &[ParamId]| {
            let before = all_moved.take();
            let (new, moved) = changed(weights, gradients, group, before.is_some(), &self.clock)?;
            all_moved.set(before.map(|before| before + moved.unwrap_or_default()));
            Ok(new)
        };
        let done = update_in_groups(weights, groups, changed, || give_back(&self.device));
        // What failed was tried with single parameters.
        let halvings = done.as_ref().copied().unwrap_or(u32::MAX);
        if halvings == 0 {
            return Ok((None, all_moved.get()));
        }
        self.hold_less(halvings);
        done?;
        let (size, held_twice) = (self.micro_batch(), Some(Bytes(self.twice.now())));
        log::warn_user("out of memory in the optimizer: it goes on with fewer parameters at a time");
        Ok((Some(Rescue { moment: Moment::Optimizer, from: size, to: size, held_twice }), all_moved.get()))
    }

    /// Holds half as much twice from now on, so many times over; `None` when single parameters are changed.
    fn hold_less(&mut self, halvings: u32) -> Option<Bytes> {
        let Sizes { all, largest } = self.sizes?;
        self.twice.within(largest.saturating_mul(HELD_VALUES), all.saturating_mul(HELD_VALUES));
        let most = self.twice.now().checked_shr(halvings).unwrap_or_default();
        self.twice.shrink(u64::MAX, Some(most)).map(Bytes)
    }
}

/// Lets go what a failed step left behind, and gives the device's free memory back.
pub(super) fn give_back(device: &Device) {
    // A forward pass without its backward pass leaves its graph alive until the next backward pass.
    drop(Tensor::<1>::ones([1], device).require_grad().mul_scalar(2.0).backward());
    // Whether that worked is seen in the step that follows.
    device.sync().ok();
    device.memory_cleanup();
}

#[cfg(test)]
mod tests;
