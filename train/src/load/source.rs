//! Assignment of items to ranks and batches, independent of the number of workers.

use std::ops::Range;
use std::sync::Arc;

use burn::data::dataloader::BatchStrategy;
use burn::data::dataset::{Dataset, DatasetError};
use gpu_tuned_core::exchange;

/// Deals out the batches of an epoch, in order.
pub(super) enum Source<I> {
    Fixed(Fixed),
    Grouped(Grouped<I>),
}

/// Batches of equally many items, which are fetched by whoever claims them.
pub(super) struct Fixed {
    size: usize,
    total: usize,
    /// Items in batches; less than all where the last batch is left out.
    covered: usize,
    next: usize,
}

/// Batches from a strategy that receives item after item; with several ranks, each has one batch of a round. The source
/// is one round ahead, to detect the last batch.
pub(super) struct Grouped<I> {
    dataset: Arc<dyn Dataset<I>>,
    strategy: Box<dyn BatchStrategy<I>>,
    share: Share,
    drop_last: bool,
    fetched: usize,
    consumed: usize,
    ahead: Option<Result<Option<Round<I>>, DatasetError>>,
}

/// A batch for every rank.
struct Round<I> {
    own: Vec<I>,
    /// Items of all ranks.
    items: usize,
}

/// Items of a batch, claimed by a worker.
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
    pub(super) fn fixed(size: usize, total: usize, drop_last: bool) -> Self {
        let covered = if drop_last { total - total % size } else { total };
        Self::Fixed(Fixed { size, total, covered, next: 0 })
    }

    /// The batches of a strategy that are a rank's.
    pub(super) fn grouped(
        dataset: Arc<dyn Dataset<I>>,
        strategy: Box<dyn BatchStrategy<I>>,
        share: Share,
        drop_last: bool,
    ) -> Self {
        Self::Grouped(Grouped { dataset, strategy, share, drop_last, fetched: 0, consumed: 0, ahead: None })
    }

    /// The source after the first `batches`. An error among them takes the place of the next batch.
    pub(super) fn after(mut self, batches: u64) -> Self {
        for _ in 0..batches {
            match (self.claim(), &mut self) {
                (Some(Ok(_)), _) => {}
                (Some(Err(error)), Self::Grouped(grouped)) => {
                    grouped.ahead = Some(Err(error));
                    break;
                }
                _ => break,
            }
        }
        self
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
        let next = self.ahead.take().unwrap_or_else(|| self.round());
        let Some(Round { own, items }) = next? else { return Ok(None) };
        let ahead = self.round();
        self.consumed += items;
        let consumed = if matches!(ahead, Ok(None)) { self.dataset.len() } else { self.consumed };
        self.ahead = Some(ahead);
        Ok(Some(Claim { items: Items::Fetched(own), consumed }))
    }

    /// Next batches, one a rank. The last items are split so that each rank has a batch. They are dropped if they are
    /// fewer than ranks, because every rank takes every step, or if `drop_last`.
    fn round(&mut self) -> Result<Option<Round<I>>, DatasetError> {
        let (rank, ranks) = (self.share.rank(), self.share.ranks());
        let mut groups = Vec::with_capacity(ranks);
        while groups.len() < ranks {
            let Some(group) = self.group()? else { break };
            groups.push(group);
        }
        let items = groups.iter().map(Vec::len).sum();
        if groups.len() < ranks && (self.drop_last || items < ranks) {
            return Ok(None);
        }
        part_until(&mut groups, ranks);
        Ok(Some(Round { own: groups.swap_remove(rank), items }))
    }

    /// The next items that the strategy puts together, fed as Burn's loader feeds it; `None` after the last.
    fn group(&mut self) -> Result<Option<Vec<I>>, DatasetError> {
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

/// Halves the largest group until there are so many. A part of a group is within every budget that the group is in. There
/// are as many items at least.
fn part_until<I>(groups: &mut Vec<Vec<I>>, count: usize) {
    while groups.len() < count {
        let Some(at) = (0..groups.len()).rev().max_by_key(|&at| groups[at].len()) else { return };
        let half = groups[at].len().div_ceil(2);
        let rest = groups[at].split_off(half);
        groups.insert(at + 1, rest);
    }
}

/// A rank's share of the samples of every optimizer step: consecutive ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    rank: usize,
    ranks: usize,
    own: exchange::Share,
    /// Fewest samples of any rank.
    least: u64,
    all: u64,
}

impl Share {
    /// All samples, of the only rank.
    pub const fn whole(samples: usize) -> Self {
        Self::equal(0, 1, samples)
    }

    /// `samples` for each of `ranks`.
    pub const fn equal(rank: usize, ranks: usize, samples: usize) -> Self {
        let least = samples as u64;
        let own = exchange::Share { first: least.saturating_mul(rank as u64), samples: least };
        Self { rank, ranks, own, least, all: least.saturating_mul(ranks as u64) }
    }

    /// The share of `rank` among those of all ranks; `None` without such a rank.
    pub fn of(rank: usize, shares: &[exchange::Share]) -> Option<Self> {
        let least = shares.iter().map(|share| share.samples).min()?;
        let all = shares.iter().map(|share| share.samples).sum();
        Some(Self { rank, ranks: shares.len(), own: *shares.get(rank)?, least, all })
    }

    /// Number of the rank, from 0.
    pub const fn rank(&self) -> usize {
        self.rank
    }

    /// Number of ranks.
    pub const fn ranks(&self) -> usize {
        self.ranks
    }

    /// Samples of all ranks.
    pub const fn all(&self) -> u64 {
        self.all
    }

    /// Part of the rank in so many samples: consecutive ones, in proportion to its share.
    pub fn part(&self, samples: usize) -> Range<usize> {
        let part = self.own.part(samples as u64, self.all);
        part.start as usize..part.end as usize
    }

    /// Indices of the rank's items in an epoch of `total`. The last step is shared in proportion. It is dropped if a rank may
    /// have no item of it, because every rank takes every step, or if `drop_last`.
    pub(super) fn items(self, total: usize, drop_last: bool) -> Vec<usize> {
        let step = usize::try_from(self.all).unwrap_or(usize::MAX).max(1);
        let of_step = |begin: usize| {
            let samples = (total - begin).min(step);
            let is_shared = samples as u128 * u128::from(self.least) >= u128::from(self.all);
            let is_taken = samples == step || !drop_last && is_shared;
            let own = if is_taken { self.part(samples) } else { 0..0 };
            own.map(move |item| begin + item)
        };
        (0..total).step_by(step).flat_map(of_step).collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
