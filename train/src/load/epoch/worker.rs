//! Loop of a worker: claim, fetch, batch, hand over.

use std::sync::{Arc, Mutex, PoisonError};

use burn::data::dataset::DatasetError;

use super::prefetch::Shared;
use super::source::Claim;
use super::{Preparation, Source};
use crate::device::catching;
use crate::load::error::LoaderError;
use crate::micro_batch::MicroBatch;

/// State shared by the workers of an epoch.
pub(super) struct Work<I, B> {
    pub(super) source: Mutex<Source<I>>,
    pub(super) preparation: Preparation<I, B>,
    pub(super) shared: Arc<Shared<B>>,
}

impl<I, B: MicroBatch> Work<I, B> {
    /// Prepares batches until there are no more, or none are wanted.
    pub(super) fn run(&self) {
        while self.shared.reserve() {
            let Some((place, claim)) = self.claim() else { return };
            let prepared = claim.and_then(|claim| caught(|| self.preparation.prepare(claim)));
            self.shared.put(place, prepared);
        }
    }

    /// The next batch and its place. Both are given out under one lock, so that places are in the source's order.
    fn claim(&self) -> Option<(usize, Result<Claim<I>, DatasetError>)> {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        // A source that failed is not asked again.
        let claim = if self.shared.is_over() { None } else { caught(|| source.claim().transpose()).transpose() };
        let Some(claim) = claim else {
            self.shared.run_dry();
            return None;
        };
        Some((self.shared.deal(claim.is_err()), claim))
    }
}

/// The result of `work`, a panic as an error.
pub(super) fn caught<T>(work: impl FnOnce() -> Result<T, DatasetError>) -> Result<T, DatasetError> {
    catching(work).unwrap_or_else(|message| Err(LoaderError::Panicked { message }.into()))
}
