//! Times and counters of a rank's loader and trainer, passed on to the recording and the trace.
//!
//! Without a recording and a trace, each call costs one branch.

mod cpu_time;
mod loader_counters;
mod step_timer;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gpu_tuned_observe::recording::Recorder;
use gpu_tuned_observe::trace::Tracer;

use loader_counters::LoaderCounters;
pub use step_timer::{Phase, StepTimer};

/// Instrumentation of a rank's steps. Clones share their state; the default records nothing.
#[derive(Clone, Default)]
pub struct StepInstrumentation(Option<Arc<RankState>>);

/// State shared by the clones of a rank's instrumentation.
struct RankState {
    rank: u64,
    recorder: Option<Recorder>,
    tracer: Option<Tracer>,
    /// Number of steps so far.
    steps: AtomicU64,
    loader: LoaderCounters,
    /// End of the previous step of any trainer of the rank.
    previous_end: Mutex<Option<Instant>>,
}

/// Sum of durations, added to from any thread.
#[derive(Default)]
struct AtomicDuration(AtomicU64);

impl AtomicDuration {
    fn add(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Returns the sum and resets it to zero.
    fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Relaxed))
    }
}

impl StepInstrumentation {
    /// Instrumentation of a rank: 0 for the only one.
    pub fn new(rank: usize, recorder: Option<Recorder>, tracer: Option<Tracer>) -> Self {
        if recorder.is_none() && tracer.is_none() {
            return Self::default();
        }
        Self(Some(Arc::new(RankState {
            rank: rank as u64,
            recorder,
            tracer,
            steps: AtomicU64::new(0),
            loader: LoaderCounters::default(),
            previous_end: Mutex::new(None),
        })))
    }

    /// Number of steps so far; `None` if nothing is recorded.
    #[cfg(feature = "train")]
    pub(crate) fn steps(&self) -> Option<u64> {
        self.0.as_ref().map(|state| state.steps.load(Relaxed))
    }

    /// Times the trainer's wait for a batch; `ready` counts the batches that are ready.
    pub(crate) fn time_wait<T>(&self, ready: impl FnOnce() -> usize, wait: impl FnOnce() -> T) -> T {
        let Some(state) = &self.0 else { return wait() };
        let queued = ready() as u64;
        let begin = Instant::now();
        let waited = wait();
        let end = Instant::now();
        state.loader.add_wait(end - begin, queued);
        state.trace("wait for loader", begin, end, &[]);
        waited
    }

    /// Times a worker's preparation of a batch.
    pub(crate) fn time_preparation<T>(&self, prepare: impl FnOnce() -> T) -> T {
        let Some(state) = &self.0 else { return prepare() };
        let begin = Instant::now();
        let (prepared, cpu_time) = cpu_time::measured(prepare);
        let end = Instant::now();
        state.loader.add_preparation(end - begin, cpu_time);
        state.trace_thread("prepare batch", begin, end);
        prepared
    }

    /// Adds other work of the loader to the trace.
    pub(crate) fn trace_work<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let Some(state) = &self.0 else { return work() };
        let begin = Instant::now();
        let done = work();
        state.trace_thread(name, begin, Instant::now());
        done
    }
}

impl RankState {
    /// Records the end of a step, and returns the end of the previous one, or `created` for the first.
    fn replace_end(&self, created: Instant, end: Instant) -> Instant {
        self.previous_end.lock().unwrap_or_else(PoisonError::into_inner).replace(end).unwrap_or(created)
    }

    /// Adds a span to the trace, among the steps of the rank.
    fn trace(&self, name: &str, begin: Instant, end: Instant, figures: &[(&'static str, f64)]) {
        if let Some(tracer) = self.tracer.as_ref().filter(|tracer| tracer.is_on()) {
            tracer.span(&format!("steps of rank {}", self.rank), name, begin, end, figures);
        }
    }

    /// Adds a span of the current thread to the trace.
    fn trace_thread(&self, name: &str, begin: Instant, end: Instant) {
        if let Some(tracer) = self.tracer.as_ref().filter(|tracer| tracer.is_on()) {
            tracer.span(std::thread::current().name().unwrap_or("a thread"), name, begin, end, &[]);
        }
    }
}

impl fmt::Debug for StepInstrumentation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "StepInstrumentation(on)" } else { "StepInstrumentation(off)" })
    }
}
