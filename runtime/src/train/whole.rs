//! Whether the batches of Burn's own loop are whole optimizer steps.

use burn::data::dataloader::Progress;
use burn::data::dataset::DatasetError;
use thiserror::Error;

use super::MicroBatch;
use crate::session::Session;
use crate::tuned::Tuned;

/// What the batches of a loader are to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct WholeSteps {
    /// Samples of a step on this rank, and of its micro-batches.
    pub step: usize,
    pub micro_batch: usize,
    /// Whether the program says what a step is. Where it does not, its batches may as well be what it takes for one, as long
    /// as they are not the micro-batches of a larger one.
    pub is_stated: bool,
}

/// A loader's batches are other steps than those that are planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "a batch of the training loader has {batch} samples, and an optimizer step has {step}: build the loader with \
     `.batch_size(session.schedule().samples_per_rank() as usize)`, which is cut into micro-batches; or, where its batches are \
     the steps that are meant, say `global_batch = batch_size` in `#[gpu_tuned(…)]`, of a field that is not `#[tuned]`"
)]
pub(super) struct OtherSteps {
    batch: usize,
    step: usize,
}

impl WholeSteps {
    pub(super) fn of<C: Tuned>(session: &Session<C>) -> Self {
        let (schedule, goal) = (session.schedule(), session.config.asked());
        let size = |samples: u64| usize::try_from(samples).unwrap_or(usize::MAX);
        Self {
            step: size(schedule.samples_per_rank()),
            micro_batch: size(schedule.micro_batch),
            // Of sequences that are padded, a step has as many as have its tokens.
            is_stated: goal.global_batch.is_some() || goal.global_tokens.is_some() && goal.mean_tokens.is_none(),
        }
    }

    /// The batches that an epoch begins with, as many as it takes to tell whether they are whole steps.
    ///
    /// # Errors
    ///
    /// [`OtherSteps`] if they are not.
    pub(super) fn begun<B: MicroBatch>(
        self,
        batches: &mut impl Iterator<Item = Loaded<B>>,
    ) -> Result<Vec<Loaded<B>>, OtherSteps> {
        // Where there are none it is an error of its own.
        let samples = |(batch, _): &Loaded<B>| batch.as_ref().ok().map(B::len).filter(|samples| *samples > 0);
        let mut begun = Vec::from_iter(batches.next());
        if let Some(batch) = begun.first().and_then(samples).filter(|batch| self.is_doubtful(*batch)) {
            begun.extend(batches.next());
            let next = begun.get(1).and_then(samples);
            if batch > self.step || next.is_some_and(|next| next != self.step) {
                return Err(OtherSteps { batch, step: self.step });
            }
        }
        Ok(begun)
    }

    /// Whether a first batch of so many samples is told by the next one: it may be the smaller one that an epoch has, which
    /// comes early where several workers load.
    fn is_doubtful(self, batch: usize) -> bool {
        batch != self.step && (self.is_stated || batch == self.micro_batch)
    }
}

/// A batch, or why there is none, and how far the epoch was when it came.
pub(super) type Loaded<B> = (Result<B, DatasetError>, Progress);
