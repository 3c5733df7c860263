//! Recent steps of a session's strategy, for metrics.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use burn::train::metric::MetricMetadata;

use crate::train::Step;

/// Length of the history. The thread of metrics is at most three items behind.
const LENGTH: usize = 8;

/// Recent steps of a session's strategy. Clones share the history.
#[derive(Clone, Debug, Default)]
pub struct StepHistory(Arc<Mutex<History>>);

#[derive(Debug, Default)]
struct History {
    taken: u64,
    steps: VecDeque<StepEntry>,
    health_every: Option<u64>,
}

/// Entry of the history.
#[derive(Debug)]
struct StepEntry {
    /// Number of the step over all epochs.
    number: u64,
    /// Number of the step in its epoch, from 1.
    iteration: usize,
    step: Step,
}

impl StepHistory {
    /// Begins a training run. Returns the interval of gradient counts, in steps.
    pub(in crate::train) fn begin(&self) -> Option<u64> {
        let mut history = self.lock();
        history.steps.clear();
        history.health_every
    }

    /// Adds a step, without access to the device.
    pub(in crate::train) fn push(&self, iteration: usize, step: &Step) {
        let mut history = self.lock();
        history.taken += 1;
        let entry = StepEntry { number: history.taken, iteration, step: step.clone() };
        history.steps.push_back(entry);
        if history.steps.len() > LENGTH {
            history.steps.pop_front();
        }
    }

    /// Requests counts of gradient values.
    pub(super) fn request_health(&self, every: u64) {
        self.lock().health_every = Some(every.max(1));
    }

    /// Last step.
    pub(super) fn last(&self) -> Option<Step> {
        self.lock().steps.back().map(|entry| entry.step.clone())
    }

    /// Reads the step of a training item, with the step's number; an error for validation items.
    pub(super) fn find<T>(&self, item: &MetricMetadata, read: impl FnOnce(&Step) -> T) -> Result<(u64, T), String> {
        let history = self.lock();
        // Training items have a learning rate. Validation batches have the same numbers as steps.
        let mut newest_first = history.steps.iter().rev().filter(|_| item.lr.is_some());
        let entry = newest_first.find(|entry| item.iteration.is_none_or(|iteration| iteration == entry.iteration));
        let entry = entry.ok_or("no step of the session's strategy")?;
        Ok((entry.number, read(&entry.step)))
    }

    fn lock(&self) -> MutexGuard<'_, History> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
