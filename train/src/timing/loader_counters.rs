//! Counters of a loader between two steps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::AtomicDuration;

/// Work of a loader since the last step.
#[derive(Default)]
pub(super) struct LoaderCounters {
    is_used: AtomicBool,
    waited: AtomicDuration,
    queued: AtomicU64,
    prepared: AtomicU64,
    preparing: AtomicDuration,
    cpu_time: AtomicDuration,
}

/// Work of a loader for one step.
pub(super) struct LoaderSample {
    /// Time that the trainer waited.
    pub waited: Duration,
    /// Batches that were ready at the last wait.
    pub queued: u64,
    /// Batches that workers prepared.
    pub prepared: u64,
    /// Time of preparation, summed over workers.
    pub preparing: Duration,
    /// CPU time of preparation, summed over workers.
    pub cpu_time: Duration,
}

impl LoaderCounters {
    pub(super) fn add_wait(&self, time: Duration, queued: u64) {
        self.is_used.store(true, Relaxed);
        self.queued.store(queued, Relaxed);
        self.waited.add(time);
    }

    pub(super) fn add_preparation(&self, time: Duration, cpu_time: Option<Duration>) {
        self.prepared.fetch_add(1, Relaxed);
        self.preparing.add(time);
        self.cpu_time.add(cpu_time.unwrap_or_default());
    }

    /// Returns the counters and resets them; `None` without an instrumented loader.
    pub(super) fn take(&self) -> Option<LoaderSample> {
        self.is_used.load(Relaxed).then(|| LoaderSample {
            waited: self.waited.take(),
            queued: self.queued.load(Relaxed),
            prepared: self.prepared.swap(0, Relaxed),
            preparing: self.preparing.take(),
            cpu_time: self.cpu_time.take(),
        })
    }
}
