//! Steps of the library's trainer: undisturbed, and with a hand on the memory.

use std::sync::Arc;
use std::time::Instant;

use anyhow::Context;
use burn::{
    data::{
        dataloader::batcher::Batcher,
        dataset::{Dataset, DatasetError},
    },
    tensor::{Device, Tensor},
};
use gpu_tuned::{
    MicroBatch, Session,
    train::{Step, Trainer},
};
use serde::Serialize;

use super::{
    hooks::{At, Hooks, optimizer},
    model::{Config, Encoder, Frames},
    neighbour::Need,
};
#[cfg(feature = "cuda")]
use crate::memory::Usage;

pub(super) const LEARNING_RATE: f64 = 1e-4;

/// Common parts of all runs of a process.
pub(super) struct Bench {
    pub(super) session: Session<Config>,
    pub(super) hooks: Arc<Hooks>,
    /// The model before the first step.
    pub(super) model: Encoder,
    /// Global batches in the host's memory; steps take one after the other, and the first again after the last.
    pub(super) batches: Arc<Vec<Frames>>,
}

/// A step, and its time without the drill's own actions.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Timed {
    #[serde(flatten)]
    pub(super) step: Step,
    pub(super) seconds: f64,
}

/// Steps of a micro-batch that nobody disturbed.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Undisturbed {
    pub(super) micro_batch: usize,
    pub(super) losses: Vec<f32>,
    /// Rate of the median step.
    pub(super) samples_per_s: f64,
}

impl Bench {
    /// Samples of an optimizer step.
    pub(super) fn samples(&self) -> usize {
        self.session.schedule().global_batch as usize
    }

    /// Samples in a micro-batch, as planned.
    pub(super) fn planned(&self) -> usize {
        self.session.plan().settings.batch_size as usize
    }

    /// The batch of a step.
    pub(super) fn batch(&self, step: usize) -> Frames {
        self.batches[step % self.batches.len()].clone()
    }

    /// The library's trainer of a fresh model, as a user gets it.
    pub(super) fn trainer(&self) -> anyhow::Result<Trainer<Encoder>> {
        Ok(self.session.trainer(self.model.clone(), optimizer(&self.hooks))?)
    }

    /// Takes a step over `batch`.
    pub(super) fn step(&self, trainer: &mut Trainer<Encoder>, batch: Frames) -> anyhow::Result<Timed> {
        self.hooks.spent();
        let begin = Instant::now();
        let step = trainer.step(LEARNING_RATE, batch, |model: &Encoder, micro| self.loss(model, micro))?;
        let seconds = (begin.elapsed().saturating_sub(self.hooks.spent())).as_secs_f64();
        Ok(Timed { step, seconds })
    }

    /// The loss, with the points before and after the forward pass.
    pub(super) fn loss(&self, model: &Encoder, micro: Frames) -> Tensor<1> {
        let samples = micro.len();
        self.hooks.pass(At::Forward, samples);
        let loss = model.loss(micro);
        self.hooks.pass(At::Backward, samples);
        loss
    }

    /// Steps of a fresh model in micro-batches of one size, and their memory needs.
    pub(super) fn undisturbed(&self, micro_batch: usize, steps: usize) -> anyhow::Result<(Undisturbed, Need)> {
        let model = self.model.clone();
        let mut trainer = Trainer::new(model, optimizer(&self.hooks), self.session.device(), micro_batch);
        let taken: Vec<Timed> =
            (0..steps).map(|step| self.step(&mut trainer, self.batch(step))).collect::<anyhow::Result<_>>()?;
        let need = self.need(micro_batch)?;
        drop(trainer);
        crate::device::release(&self.session.inner_device())?;
        let losses = taken.iter().map(|timed| timed.step.loss).collect();
        // The first steps compile, tune, and take memory.
        let seconds = median(taken.iter().skip(2).map(|timed| timed.seconds)).context("there are too few steps")?;
        Ok((Undisturbed { micro_batch, losses, samples_per_s: self.samples() as f64 / seconds }, need))
    }

    /// Memory reserved by the pools after steps, while the trainer exists.
    #[cfg(feature = "cuda")]
    fn need(&self, micro_batch: usize) -> anyhow::Result<Need> {
        let device = self.session.inner_device();
        let step_bytes = Usage::read(&device).reserved_bytes;
        crate::device::release(&device)?;
        Ok(Need { micro_batch, between_bytes: Usage::read(&device).in_use_bytes, step_bytes })
    }

    #[cfg(not(feature = "cuda"))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "the signature is that of the version with CUDA")]
    fn need(&self, micro_batch: usize) -> anyhow::Result<Need> {
        Ok(Need { micro_batch, ..Need::default() })
    }

    /// The samples of all batches, for a loader that does not shuffle.
    pub(super) fn dataset(&self) -> Indices {
        Indices(self.batches.iter().map(MicroBatch::len).sum())
    }

    /// The batcher that cuts the loader's batches from prepared ones.
    pub(super) fn batcher(&self) -> Cutter {
        Cutter(Arc::clone(&self.batches))
    }
}

/// The middle one.
pub(super) fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// A dataset of indices.
pub(super) struct Indices(usize);

impl Dataset<usize> for Indices {
    fn get(&self, index: usize) -> Result<usize, DatasetError> {
        Ok(index)
    }

    fn len(&self) -> usize {
        self.0
    }
}

/// Looks up the samples of consecutive indices.
pub(super) struct Cutter(Arc<Vec<Frames>>);

impl Batcher<usize, Frames> for Cutter {
    fn batch(&self, items: Vec<usize>, _: &Device) -> Frames {
        let size = self.0[0].len();
        let begin = items[0] % size;
        self.0[items[0] / size].narrow(begin..(begin + items.len()).min(size))
    }
}
