//! Planned steps of a rank: what a session passes to trainers, strategies and loaders.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::tensor::Device;
use gpu_tuned_core::plan::{MemoryEstimate, Plan};
use gpu_tuned_core::{Bytes, Precision};

use super::ranks::Rank;
use super::rescue::Replanning;
use super::stepper::Stepper;
use crate::load::PrefetchLoader;
use crate::mixed::{Half, MixedError};
use crate::timing::{StepInstrumentation, StepTimer};

/// Planned steps of one rank.
#[derive(Clone)]
pub struct Recipe {
    /// Template of the steppers.
    pub(super) stepper: Stepper,
    pub(super) half: Option<Half>,
    pub(super) cuda_graphs: bool,
    /// Samples of a step on this rank.
    samples: usize,
    drop_last: bool,
    /// Micro-batches that wait on the device.
    prefetch_depth: usize,
    workers: usize,
    instrumentation: StepInstrumentation,
}

impl Recipe {
    /// Steps of `plan`, computed in `precision` on `device`, which has autodiff.
    pub fn planned(
        plan: &Plan,
        precision: Precision,
        batch_statistics: bool,
        device: Device,
        replanning: Replanning,
        instrumentation: StepInstrumentation,
    ) -> Self {
        let (settings, schedule) = (&plan.settings, &plan.schedule);
        let mut stepper = Stepper::new(device, size(settings.batch_size));
        stepper.group_bytes = stepper.group_bytes.with_planned(group_bytes(&plan.memory).0);
        stepper.warns_of_statistics = batch_statistics;
        stepper.whole_batch = replanning.goal.whole_batch_loss;
        stepper.planner = Some(replanning);
        Self {
            stepper,
            half: Half::of(precision),
            cuda_graphs: settings.cuda_graphs,
            samples: size(schedule.samples_per_rank()),
            drop_last: schedule.drop_last,
            prefetch_depth: size(settings.prefetch_depth),
            workers: size(settings.num_workers),
            instrumentation,
        }
    }

    /// Handles a model that is not ready for 16 bits.
    #[must_use]
    pub fn when_not_ready(mut self, not_ready: NotReady) -> Self {
        self.stepper.not_ready = not_ready;
        self
    }

    /// Shares its steps with other ranks.
    #[must_use]
    pub fn with_rank(mut self, rank: Option<Rank>) -> Self {
        self.stepper.rank = rank;
        self
    }

    /// Steps of any size in fp32, loaded one micro-batch at a time.
    #[cfg(test)]
    pub(super) fn new(device: Device, micro_batch: usize) -> Self {
        Self {
            stepper: Stepper::new(if device.is_autodiff() { device } else { device.autodiff() }, micro_batch),
            half: None,
            cuda_graphs: false,
            samples: micro_batch,
            drop_last: false,
            prefetch_depth: 2,
            workers: 1,
            instrumentation: StepInstrumentation::default(),
        }
    }

    /// Loads the rank's part of the training data.
    pub fn loader<I, B>(
        &self,
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<I, B> + 'static,
    ) -> PrefetchLoader<I, B> {
        let loader = PrefetchLoader::new(dataset, batcher, self.samples)
            .drop_last(self.drop_last)
            .depth(self.prefetch_depth)
            .device_samples(self.prefetch_depth.saturating_mul(self.stepper.micro_batch()))
            .num_workers(self.workers)
            .device(self.stepper.device.clone())
            .with_instrumentation(self.instrumentation.clone());
        match &self.stepper.rank {
            Some(rank) => loader.for_rank(rank),
            None => loader,
        }
    }

    pub(super) fn stepper(&self) -> Stepper {
        let mut stepper = self.stepper.clone();
        stepper.timer = StepTimer::new(&self.instrumentation);
        stepper
    }
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Memory of the forward pass, which is free again during the update.
pub fn group_bytes(memory: &MemoryEstimate) -> Bytes {
    memory.activations + memory.scratch
}

/// True once any trainer of this process has finished a step: there is training to lose.
static HAS_TRAINED: AtomicBool = AtomicBool::new(false);

/// Handler of a model that is not ready for 16 bits: gets the reason and the edit to make, before the first step of the
/// process, and ends the process. Without a handler, and later, the reason is an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotReady(pub Option<fn(&str) -> !>);

impl NotReady {
    /// Calls the handler, if it may end the process; else returns.
    pub fn report(self, reason: &MixedError) {
        if let Some(handler) = self.handler() {
            handler(&reason.to_string())
        }
    }

    /// The handler, before the first step of the process.
    pub(super) fn handler(self) -> Option<fn(&str) -> !> {
        self.0.filter(|_| !HAS_TRAINED.load(Ordering::Relaxed))
    }

    /// Ends the time in which the process may end.
    pub(super) fn step_finished() {
        HAS_TRAINED.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
