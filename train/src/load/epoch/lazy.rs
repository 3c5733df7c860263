//! An epoch without threads: everything happens when the consumer asks for a batch.

use burn::data::dataloader::{DataLoaderIterator, Progress};
use burn::data::dataset::DatasetError;

use super::{Consumption, Preparation, Source, brought};
use crate::load::budget::{Budget, Limit};
use crate::micro_batch::MicroBatch;

/// Prepares each batch in the thread that asks for it.
pub(in crate::load) struct Lazy<I, B> {
    source: Source<I>,
    preparation: Preparation<I, B>,
    limit: Limit,
    consumption: Consumption,
    is_over: bool,
}

impl<I, B: MicroBatch> Lazy<I, B> {
    pub(in crate::load) fn new(source: Source<I>, preparation: Preparation<I, B>, budget: Budget) -> Self {
        let consumption = Consumption { items: 0, total: preparation.dataset.len() };
        Self { source, preparation, limit: Limit::new(budget), consumption, is_over: false }
    }

    fn prepare(&mut self) -> Option<Result<B, DatasetError>> {
        let claim = match self.source.claim()? {
            Ok(claim) => claim,
            Err(error) => return Some(Err(error)),
        };
        let prepared = match self.preparation.prepare(claim) {
            Ok(prepared) => prepared,
            Err(error) => return Some(Err(error)),
        };
        self.consumption.items = prepared.consumed;
        let fits = prepared.bytes <= self.limit.given(prepared.bytes, prepared.samples);
        Some(Ok(if fits { brought(prepared.batch, &self.preparation.device) } else { prepared.batch }))
    }
}

impl<I, B: MicroBatch> Iterator for Lazy<I, B> {
    type Item = Result<B, DatasetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let instrumentation = self.preparation.instrumentation.clone();
        // Nothing is ever ready.
        let next = instrumentation.time_wait(|| 0, || self.prepare());
        if next.is_none() {
            self.consumption.items = self.consumption.total;
        }
        self.is_over = !matches!(next, Some(Ok(_)));
        next
    }
}

impl<I, B: MicroBatch> DataLoaderIterator<B> for Lazy<I, B> {
    fn progress(&self) -> Progress {
        self.consumption.progress()
    }
}
