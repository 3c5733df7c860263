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
#[expect(clippy::struct_excessive_bools, reason = "settings of a plan")]
pub struct Recipe {
    /// Device with autodiff.
    pub(super) device: Device,
    pub(super) half: Option<Half>,
    pub(super) cuda_graphs: bool,
    micro_batch: usize,
    /// Bytes of parameters and optimizer state that may be allocated twice.
    group_bytes: Bytes,
    /// True for a model whose norms compute statistics over a micro-batch.
    batch_statistics: bool,
    /// True if the loss couples all samples of a step, which is then one micro-batch.
    whole_batch: bool,
    replanning: Option<Replanning>,
    /// Samples of a step on this rank.
    samples: usize,
    drop_last: bool,
    /// Micro-batches that wait on the device.
    prefetch_depth: usize,
    workers: usize,
    instrumentation: StepInstrumentation,
    pub(super) not_ready: NotReady,
    /// Connection to the other ranks, if there are several.
    pub(super) rank: Option<Rank>,
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
        Self {
            half: Half::of(precision),
            cuda_graphs: settings.cuda_graphs,
            micro_batch: size(settings.batch_size),
            group_bytes: group_bytes(&plan.memory),
            batch_statistics,
            whole_batch: replanning.goal.whole_batch_loss,
            replanning: Some(replanning),
            samples: size(schedule.samples_per_rank()),
            drop_last: schedule.drop_last,
            prefetch_depth: size(settings.prefetch_depth),
            workers: size(settings.num_workers),
            instrumentation,
            device,
            not_ready: NotReady::default(),
            rank: None,
        }
    }

    /// Handles a model that is not ready for 16 bits.
    #[must_use]
    pub fn when_not_ready(self, not_ready: NotReady) -> Self {
        Self { not_ready, ..self }
    }

    /// Shares its steps with other ranks.
    #[must_use]
    pub fn with_rank(self, rank: Option<Rank>) -> Self {
        Self { rank, ..self }
    }

    /// Steps of any size in fp32, loaded one micro-batch at a time.
    #[cfg(test)]
    pub(super) fn new(device: Device, micro_batch: usize) -> Self {
        Self {
            device: if device.is_autodiff() { device } else { device.autodiff() },
            half: None,
            cuda_graphs: false,
            micro_batch,
            group_bytes: Bytes(u64::MAX),
            batch_statistics: false,
            whole_batch: false,
            replanning: None,
            samples: micro_batch,
            drop_last: false,
            prefetch_depth: 2,
            workers: 1,
            instrumentation: StepInstrumentation::default(),
            not_ready: NotReady::default(),
            rank: None,
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
            .device_samples(self.prefetch_depth.saturating_mul(self.micro_batch))
            .num_workers(self.workers)
            .device(self.device.clone())
            .with_instrumentation(self.instrumentation.clone());
        match &self.rank {
            Some(rank) => loader.for_rank(rank),
            None => loader,
        }
    }

    pub(super) fn stepper(&self) -> Stepper {
        let mut stepper = Stepper::new(self.device.clone(), self.micro_batch);
        stepper.timer = StepTimer::new(&self.instrumentation);
        stepper.group_bytes = stepper.group_bytes.with_planned(self.group_bytes.0);
        stepper.warns_of_statistics = self.batch_statistics;
        stepper.whole_batch = self.whole_batch;
        stepper.planner.clone_from(&self.replanning);
        stepper.not_ready = self.not_ready;
        stepper.rank.clone_from(&self.rank);
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
