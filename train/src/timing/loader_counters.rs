//! Counters of a loader between two steps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use gpu_tuned_observe::recording::StepRecord;

use super::AtomicDuration;

/// Work of a loader since the last step.
#[derive(Default)]
pub(super) struct LoaderCounters {
    is_used: AtomicBool,
    /// Time that the trainer waited.
    waited: AtomicDuration,
    /// Batches that were ready at the last wait.
    queued: AtomicU64,
    /// Batches that workers prepared.
    prepared: AtomicU64,
    /// Time and CPU time of preparation, summed over workers.
    preparing: AtomicDuration,
    cpu_time: AtomicDuration,
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

    /// Adds the counters to a record and resets them. Returns the time that the trainer waited; zero without an instrumented
    /// loader.
    pub(super) fn fill(&self, record: &mut StepRecord) -> Duration {
        if !self.is_used.load(Relaxed) {
            return Duration::ZERO;
        }
        let waited = self.waited.take();
        record.waited_s = Some(waited.as_secs_f64());
        record.queued = Some(self.queued.load(Relaxed));
        record.prepared = Some(self.prepared.swap(0, Relaxed));
        record.prepared_s = Some(self.preparing.take().as_secs_f64());
        record.prepared_cpu_s = Some(self.cpu_time.take().as_secs_f64()).filter(|_| cfg!(unix));
        waited
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use gpu_tuned_observe::recording::StepRecord;

    use super::LoaderCounters;

    #[test]
    fn a_step_has_the_work_since_the_one_before() {
        let counters = LoaderCounters::default();
        let seconds = Duration::from_secs;
        let filled = || {
            let mut record = StepRecord::default();
            let waited = counters.fill(&mut record);
            (waited, record.waited_s, record.queued, record.prepared, record.prepared_s)
        };
        counters.add_preparation(seconds(3), Some(seconds(2)));
        assert_eq!(filled(), (Duration::ZERO, None, None, None, None));
        counters.add_preparation(seconds(4), None);
        counters.add_wait(seconds(1), 5);
        counters.add_wait(seconds(1), 6);
        assert_eq!(filled(), (seconds(2), Some(2.0), Some(6), Some(2), Some(7.0)));
        assert_eq!(filled(), (Duration::ZERO, Some(0.0), Some(6), Some(0), Some(0.0)));
    }
}
