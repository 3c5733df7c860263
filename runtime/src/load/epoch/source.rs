//! Which items make up which batch: the same whoever asks.

use std::ops::Range;
use std::sync::Arc;

use burn::data::dataloader::BatchStrategy;
use burn::data::dataset::{Dataset, DatasetError};

/// Deals out the batches of an epoch, in order.
pub(in crate::load) enum Source<I> {
    Fixed(Fixed),
    Grouped(Grouped<I>),
}

/// Batches of equally many items, which are fetched by whoever claims them.
pub(in crate::load) struct Fixed {
    size: usize,
    total: usize,
    /// Items in batches; less than all where the last batch is left out.
    covered: usize,
    next: usize,
}

/// Batches that a strategy makes of one item after another. It is asked for one batch ahead, because only then is it
/// known which batch is the last.
pub(in crate::load) struct Grouped<I> {
    dataset: Arc<dyn Dataset<I>>,
    strategy: Box<dyn BatchStrategy<I>>,
    drop_last: bool,
    fetched: usize,
    consumed: usize,
    ahead: Option<Group<I>>,
}

/// The items of a batch; `None` after the last.
type Group<I> = Result<Option<Vec<I>>, DatasetError>;

/// One batch to be prepared.
pub(super) struct Claim<I> {
    items: Items<I>,
    pub(super) consumed: usize,
}

enum Items<I> {
    At(Range<usize>),
    Fetched(Vec<I>),
}

impl<I> Claim<I> {
    pub(super) fn items(self, dataset: &dyn Dataset<I>) -> Result<Vec<I>, DatasetError> {
        match self.items {
            Items::At(range) => dataset.get_many(range.collect()),
            Items::Fetched(items) => Ok(items),
        }
    }
}

impl<I> Source<I> {
    /// Batches of `size` items, of a dataset of `total`.
    pub(in crate::load) fn fixed(size: usize, total: usize, drop_last: bool) -> Self {
        let covered = if drop_last { total - total % size } else { total };
        Self::Fixed(Fixed { size, total, covered, next: 0 })
    }

    /// The batches of a strategy.
    pub(in crate::load) fn grouped(
        dataset: Arc<dyn Dataset<I>>,
        strategy: Box<dyn BatchStrategy<I>>,
        drop_last: bool,
    ) -> Self {
        Self::Grouped(Grouped { dataset, strategy, drop_last, fetched: 0, consumed: 0, ahead: None })
    }

    /// The next batch; `None` after the last.
    pub(super) fn claim(&mut self) -> Option<Result<Claim<I>, DatasetError>> {
        match self {
            Self::Fixed(fixed) => fixed.claim().map(Ok),
            Self::Grouped(grouped) => grouped.claim().transpose(),
        }
    }
}

impl Fixed {
    fn claim<I>(&mut self) -> Option<Claim<I>> {
        if self.next == self.covered {
            return None;
        }
        let end = self.covered.min(self.next + self.size);
        let items = Items::At(self.next..end);
        self.next = end;
        // What is left out is over with the last batch.
        let consumed = if end == self.covered { self.total } else { end };
        Some(Claim { items, consumed })
    }
}

impl<I> Grouped<I> {
    fn claim(&mut self) -> Result<Option<Claim<I>>, DatasetError> {
        let next = self.ahead.take().unwrap_or_else(|| self.group());
        let Some(items) = next? else { return Ok(None) };
        let ahead = self.group();
        self.consumed += items.len();
        let consumed = if matches!(ahead, Ok(None)) { self.dataset.len() } else { self.consumed };
        self.ahead = Some(ahead);
        Ok(Some(Claim { items: Items::Fetched(items), consumed }))
    }

    /// The next items that the strategy puts together, fed as Burn's loader feeds it.
    fn group(&mut self) -> Group<I> {
        let total = self.dataset.len();
        while self.fetched < total {
            let end = total.min(self.fetched + self.strategy.batch_size().unwrap_or(1).max(1));
            for item in self.dataset.get_many((self.fetched..end).collect())? {
                self.strategy.add(item);
            }
            self.fetched = end;
            if let Some(items) = self.strategy.batch(false) {
                return Ok(Some(items));
            }
        }
        Ok(self.strategy.batch(!self.drop_last))
    }
}
