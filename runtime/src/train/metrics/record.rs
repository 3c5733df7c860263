//! What the session's steps did, for those that show it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::train::metric::MetricMetadata;

use crate::train::Step;

/// Steps that are kept. Metrics run on a thread of their own that is at most three items behind.
const KEPT: usize = 8;

/// The last steps of a session's strategy; its clones are the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Record(Arc<Mutex<Recorded>>);

#[derive(Debug, Default)]
struct Recorded {
    taken: u64,
    steps: VecDeque<Taken>,
    health_every: Option<u64>,
}

/// A step that was taken.
#[derive(Debug)]
struct Taken {
    /// Counted over all epochs.
    number: u64,
    /// Counted from 1 in each epoch, as Burn's loop does.
    iteration: usize,
    step: Step,
}

impl Record {
    /// Begins a training run: after how many steps gradients are to be counted, each time.
    pub(in crate::train) fn begin(&self) -> Option<u64> {
        let mut recorded = self.lock();
        recorded.steps.clear();
        recorded.health_every
    }

    /// Takes a step down: a lock and a few words, and nothing of the device.
    pub(in crate::train) fn took(&self, iteration: usize, step: &Step) {
        let mut recorded = self.lock();
        recorded.taken += 1;
        let taken = Taken { number: recorded.taken, iteration, step: step.clone() };
        recorded.steps.push_back(taken);
        if recorded.steps.len() > KEPT {
            recorded.steps.pop_front();
        }
    }

    /// Asks for gradients to be counted.
    pub(super) fn ask_for_health(&self, every: u64) {
        self.lock().health_every = Some(every.max(1));
    }

    /// The last step.
    pub(super) fn last(&self) -> Option<Step> {
        self.lock().steps.back().map(|taken| taken.step.clone())
    }

    /// The step that an item of training was a part of, and its number; `None` for items of validation.
    pub(super) fn find<T>(&self, of: &MetricMetadata, read: impl FnOnce(&Step) -> T) -> Option<(u64, T)> {
        // Only items of training have a learning rate; steps and batches of validation are numbered alike.
        of.lr.as_ref()?;
        let recorded = self.lock();
        let mut newest_first = recorded.steps.iter().rev();
        let taken = newest_first.find(|taken| of.iteration.is_none_or(|iteration| iteration == taken.iteration))?;
        Some((taken.number, read(&taken.step)))
    }

    fn lock(&self) -> MutexGuard<'_, Recorded> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
