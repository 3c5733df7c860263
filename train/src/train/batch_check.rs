//! Check that the batches of Burn's training loop are whole optimizer steps.

use burn::data::dataloader::Progress;
use burn::data::dataset::DatasetError;
use gpu_tuned_core::Goal;
use gpu_tuned_core::plan::Schedule;

use crate::micro_batch::MicroBatch;

/// Expected sizes of a loader's batches.
#[derive(Clone, Copy, Debug)]
pub struct BatchCheck {
    /// Samples of a step on this rank.
    pub(super) step: usize,
    /// Samples of a micro-batch.
    pub(super) micro_batch: usize,
    /// True if the program specifies the size of a step. Otherwise any batch size is accepted, except for the micro-batch of a
    /// larger step.
    pub(super) is_specified: bool,
}

impl BatchCheck {
    /// Expects the steps of `schedule`, planned for `goal`.
    pub fn new(schedule: &Schedule, goal: &Goal) -> Self {
        let size = |samples: u64| usize::try_from(samples).unwrap_or(usize::MAX);
        Self {
            step: size(schedule.samples_per_rank()),
            micro_batch: size(schedule.micro_batch),
            // The number of padded sequences in a step varies with their tokens.
            is_specified: goal.global_batch.is_some() || goal.global_tokens.is_some() && goal.mean_tokens.is_none(),
        }
    }

    /// Takes one or two batches from an epoch to check their sizes, and returns them.
    ///
    /// # Errors
    ///
    /// A message unless they are whole steps.
    pub(super) fn checked<B: MicroBatch>(
        self,
        batches: &mut impl Iterator<Item = Loaded<B>>,
    ) -> Result<Vec<Loaded<B>>, String> {
        // An empty batch is an error of the step.
        let samples = |(batch, _): &Loaded<B>| batch.as_ref().ok().map(B::len).filter(|samples| *samples > 0);
        let mut first = Vec::from_iter(batches.next());
        if let Some(batch) = first.first().and_then(samples).filter(|batch| self.is_undecided(*batch)) {
            first.extend(batches.next());
            let next = first.get(1).and_then(samples);
            if batch > self.step || next.is_some_and(|next| next != self.step) {
                return Err(format!(
                    "a batch of the training loader has {batch} samples, and an optimizer step has {}: build the loader with \
                     `.batch_size(session.schedule().samples_per_rank() as usize)`, which is cut into micro-batches; or, if its \
                     batches are the intended steps, write `global_batch = batch_size` in `#[gpu_tuned(…)]`, with a field that \
                     is not `#[tuned]`",
                    self.step
                ));
            }
        }
        Ok(first)
    }

    /// Returns true if the next batch decides. The first may be the smaller one of the epoch, which comes early with several
    /// workers.
    fn is_undecided(self, batch: usize) -> bool {
        batch != self.step && (self.is_specified || batch == self.micro_batch)
    }
}

/// Batch or error of a loader, with the progress of the epoch.
pub(super) type Loaded<B> = (Result<B, DatasetError>, Progress);
