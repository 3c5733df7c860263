//! The batches between the workers and the consumer, and how many there may be where.

use std::collections::{BTreeMap, VecDeque};

use burn::data::dataset::DatasetError;

use super::epoch::{Prepared, Taken};

/// Limits of the number of batches, in addition to the consumer's current one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Batches on the device, or on their way there.
    pub(super) depth: usize,
    /// Bytes of them.
    pub(super) budget: Budget,
    /// Batches in the host's memory, those included that are being made.
    pub(super) host: usize,
}

/// Puts batches back into order and counts them. Takes no locks and starts nothing.
pub(super) struct Queue<B> {
    bounds: Bounds,
    limit: Limit,
    /// Batches that were dealt out to workers.
    dealt: usize,
    /// True once the source has no more items.
    is_dry: bool,
    /// True once the consumer has ended.
    is_closed: bool,
    /// Prepared batches by their place in the epoch.
    prepared: BTreeMap<usize, Result<Prepared<B>, DatasetError>>,
    /// The place of the next batch to leave `prepared`.
    next: usize,
    /// Batches for the consumer, in order.
    finished: VecDeque<Result<Finished<B>, DatasetError>>,
    taken: usize,
    on_host: usize,
    on_device: usize,
    device_bytes: u64,
    uploading: Option<Waiting>,
}

/// A batch for the consumer.
struct Finished<B> {
    batch: B,
    waiting: Waiting,
    is_on_device: bool,
}

/// Weight of a waiting batch.
#[derive(Clone, Copy)]
struct Waiting {
    bytes: u64,
    consumed: usize,
}

impl<B> Queue<B> {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self {
            bounds,
            limit: Limit::new(bounds.budget),
            dealt: 0,
            is_dry: false,
            is_closed: false,
            prepared: BTreeMap::new(),
            next: 0,
            finished: VecDeque::new(),
            taken: 0,
            on_host: 0,
            on_device: 0,
            device_bytes: 0,
            uploading: None,
        }
    }

    /// Returns true if no batch is left to prepare.
    pub(super) fn is_over(&self) -> bool {
        self.is_dry || self.is_closed
    }

    /// Reserves host memory for a batch; `false` if none is left.
    pub(super) fn reserve(&mut self) -> bool {
        let has_room = self.on_host < self.bounds.host;
        self.on_host += usize::from(has_room);
        has_room
    }

    /// The place of a batch that room was made for; after the last no other is dealt out.
    pub(super) fn deal(&mut self, is_last: bool) -> usize {
        self.is_dry |= is_last;
        self.dealt += 1;
        self.dealt - 1
    }

    /// There was no batch to make in the room that was made.
    pub(super) fn run_dry(&mut self) {
        self.is_dry = true;
        self.on_host -= 1;
    }

    /// A batch was made, or could not be: then nothing follows it.
    pub(super) fn put(&mut self, place: usize, prepared: Result<Prepared<B>, DatasetError>) {
        self.is_dry |= prepared.is_err();
        self.prepared.insert(place, prepared);
    }

    /// Passes on what is next, as far as the bounds allow; returns a batch to be uploaded, which is then under way.
    pub(super) fn advance(&mut self) -> Option<B> {
        while !self.is_closed && self.uploading.is_none() {
            match self.prepared.remove(&self.next)? {
                Err(error) => self.finished.push_back(Err(error)),
                Ok(Prepared { batch, bytes, samples, consumed }) => {
                    let waiting = Waiting { bytes, consumed };
                    let limit = self.limit.given(bytes, samples);
                    if bytes > limit {
                        self.finished.push_back(Ok(Finished { batch, waiting, is_on_device: false }));
                    } else if self.on_device < self.bounds.depth && self.device_bytes.saturating_add(bytes) <= limit {
                        self.next += 1;
                        self.on_device += 1;
                        self.device_bytes += bytes;
                        self.uploading = Some(waiting);
                        return Some(batch);
                    } else {
                        self.prepared.insert(self.next, Ok(Prepared { batch, bytes, samples, consumed }));
                        return None;
                    }
                }
            }
            self.next += 1;
        }
        None
    }

    /// The batch under way has arrived, or could not: then nothing follows it.
    pub(super) fn uploaded(&mut self, batch: Result<B, DatasetError>) {
        let waiting = self.uploading.take().expect("BUG: a batch was under way");
        self.on_host -= 1;
        self.is_dry |= batch.is_err();
        self.finished.push_back(batch.map(|batch| Finished { batch, waiting, is_on_device: true }));
    }

    /// The next batch for the consumer and the items that are consumed with it.
    pub(super) fn take(&mut self) -> Option<Taken<B>> {
        let finished = self.finished.pop_front()?;
        self.taken += 1;
        Some(finished.map(|Finished { batch, waiting, is_on_device }| {
            if is_on_device {
                self.on_device -= 1;
                self.device_bytes -= waiting.bytes;
            } else {
                self.on_host -= 1;
            }
            (batch, waiting.consumed)
        }))
    }

    /// Batches that the consumer could have at once.
    pub(super) fn ready(&self) -> usize {
        self.finished.len()
    }

    /// Returns true if the consumer has received everything.
    pub(super) fn is_exhausted(&self) -> bool {
        self.is_dry && self.taken == self.dealt
    }

    pub(super) fn is_uploading(&self) -> bool {
        self.uploading.is_some()
    }

    /// Removes the batches that the consumer left, and closes the queue.
    #[must_use]
    pub(super) fn close(&mut self) -> impl Sized + use<B> {
        self.is_closed = true;
        (std::mem::take(&mut self.prepared), std::mem::take(&mut self.finished))
    }
}

/// Limit of bytes, beside the number of batches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Budget {
    Unlimited,
    Bytes(u64),
    /// As many bytes as this many samples of the first batch.
    Samples(u64),
}

/// The budget of one epoch, in bytes as soon as a batch has been seen.
#[derive(Debug)]
pub(super) struct Limit {
    budget: Budget,
    bytes: Option<u64>,
}

impl Limit {
    pub(super) fn new(budget: Budget) -> Self {
        let bytes = match budget {
            Budget::Unlimited => Some(u64::MAX),
            Budget::Bytes(bytes) => Some(bytes),
            Budget::Samples(_) => None,
        };
        Self { budget, bytes }
    }

    /// The bytes that may wait, given the next batch: of `bytes` for `samples`.
    pub(super) fn given(&mut self, bytes: u64, samples: u64) -> u64 {
        match (self.bytes, self.budget) {
            (None, Budget::Samples(allowed)) if samples > 0 => {
                *self.bytes.insert(bytes.div_ceil(samples).saturating_mul(allowed))
            }
            (known, _) => known.unwrap_or(u64::MAX),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Limit};

    #[test]
    fn a_budget_of_samples_is_that_of_the_first_batch_with_any() {
        let mut limit = Limit::new(Budget::Samples(6));
        assert_eq!(limit.given(0, 0), u64::MAX);
        assert_eq!(limit.given(40, 4), 60);
        assert_eq!(limit.given(1000, 4), 60);
    }
}
