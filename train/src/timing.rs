//! Times and counters of a rank's loader and trainer, passed on to the recording and the trace.
//!
//! Without a recording and a trace, each call costs one branch.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use gpu_tuned_observe::recording::{Record, Recorder, StepRecord, now};
use gpu_tuned_observe::trace::Tracer;

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
        let (prepared, cpu_time) = with_cpu_time(prepare);
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

/// Work of a loader since the last step.
#[derive(Default)]
struct LoaderCounters {
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
    fn add_wait(&self, time: Duration, queued: u64) {
        self.is_used.store(true, Relaxed);
        self.queued.store(queued, Relaxed);
        self.waited.add(time);
    }

    fn add_preparation(&self, time: Duration, cpu_time: Option<Duration>) {
        self.prepared.fetch_add(1, Relaxed);
        self.preparing.add(time);
        self.cpu_time.add(cpu_time.unwrap_or_default());
    }

    /// Adds the counters to a record and resets them. Returns the time that the trainer waited; zero without an instrumented
    /// loader.
    fn fill(&self, record: &mut StepRecord) -> Duration {
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

/// Shortest interval between two queries of Burn's memory pools, each of which blocks the threads that launch kernels.
const POOL_INTERVAL: Duration = Duration::from_millis(50);

/// Phase of an optimizer step on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Upload of a micro-batch to the device.
    Upload,
    /// Call of the program's loss function.
    Loss,
    /// Call of a Burn training step, which includes the backward pass.
    LossAndBackward,
    /// Backward pass.
    Backward,
    /// Addition of gradients to those of earlier micro-batches, recorded as part of the backward pass.
    Accumulation,
    /// Update of the parameters.
    Update,
    /// Exchange of gradients with other ranks.
    Exchange,
    /// Wait for the device.
    Drain,
}

impl Phase {
    const COUNT: usize = 8;

    /// Name in a trace.
    const fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Loss => "forward",
            Self::LossAndBackward => "forward and backward",
            Self::Backward => "backward",
            Self::Accumulation => "accumulation",
            Self::Update => "optimizer",
            Self::Exchange => "exchange",
            Self::Drain => "drain",
        }
    }
}

/// Timer of one trainer's steps. Clones share their state; the default times nothing.
#[derive(Clone, Default)]
pub struct StepTimer(Option<Arc<StepTimes>>);

/// Times of the step under way.
struct StepTimes {
    rank: Arc<RankState>,
    phases: [AtomicDuration; Phase::COUNT],
    /// CPU time of the loss function.
    loss_cpu_time: AtomicDuration,
    marks: Mutex<Marks>,
}

#[derive(Clone, Copy)]
struct Marks {
    created: Instant,
    /// Begin of this step.
    begin: Instant,
    /// Last query of the memory pools.
    pools: Option<Instant>,
}

impl StepTimer {
    /// A timer that reports to `instrumentation`.
    pub(crate) fn new(instrumentation: &StepInstrumentation) -> Self {
        let created = Instant::now();
        Self(instrumentation.0.as_ref().map(|rank| {
            let marks = Mutex::new(Marks { created, begin: created, pools: None });
            let phases = std::array::from_fn(|_| AtomicDuration::default());
            Arc::new(StepTimes { rank: Arc::clone(rank), phases, loss_cpu_time: AtomicDuration::default(), marks })
        }))
    }

    /// Returns true if steps are recorded or traced.
    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Begins a step.
    pub(crate) fn begin(&self) {
        if let Some(times) = &self.0 {
            for time in times.phases.iter().chain([&times.loss_cpu_time]) {
                time.take();
            }
            times.marks().begin = Instant::now();
        }
    }

    /// Times a phase of the step.
    pub(crate) fn time<T>(&self, phase: Phase, work: impl FnOnce() -> T) -> T {
        let Some(times) = &self.0 else { return work() };
        let begin = Instant::now();
        let done = if matches!(phase, Phase::Loss | Phase::LossAndBackward) {
            let (done, cpu_time) = with_cpu_time(work);
            times.loss_cpu_time.add(cpu_time.unwrap_or_default());
            done
        } else {
            work()
        };
        let end = Instant::now();
        times.phases[phase as usize].add(end - begin);
        times.rank.trace(phase.name(), begin, end, &[]);
        done
    }

    /// Adds the work on a micro-batch to the trace, around its phases.
    pub(crate) fn micro_batch<T>(&self, samples: usize, work: impl FnOnce() -> T) -> T {
        let Some(times) = &self.0 else { return work() };
        let begin = Instant::now();
        let done = work();
        times.rank.trace("micro-batch", begin, Instant::now(), &[("samples", samples as f64)]);
        done
    }

    /// Ends a step and records it. `fill` adds the step's results to the record.
    pub(crate) fn end(&self, samples: usize, device: &Device, fill: impl FnOnce(&mut StepRecord)) {
        let Some(times) = &self.0 else { return };
        let end = Instant::now();
        let rank = &times.rank;
        let number = rank.steps.fetch_add(1, Relaxed) + 1;
        let (marks, queries_pools) = times.pass_marks(end);
        let previous_end = rank.replace_end(marks.created, end);
        rank.trace(&format!("step {number}"), marks.begin, end, &[("samples", samples as f64)]);
        if let Some(tracer) = &rank.tracer {
            tracer.end_step(rank.rank, number);
        }
        let Some(recorder) = &rank.recorder else { return };
        let mut record = times.timed_record(number, previous_end, marks.begin, end);
        record.samples = samples as u64;
        fill(&mut record);
        if queries_pools {
            (record.in_use_bytes, record.reserved_bytes) = pool_usage(device);
        }
        recorder.record(Record::Step(Box::new(record)));
    }
}

impl StepTimes {
    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the marks of this step, and true if it queries the memory pools.
    fn pass_marks(&self, end: Instant) -> (Marks, bool) {
        let mut marks = self.marks();
        let is_due = marks.pools.is_none_or(|queried| end - queried >= POOL_INTERVAL);
        if is_due {
            marks.pools = Some(end);
        }
        (*marks, is_due)
    }

    /// A record with the times of the step's phases.
    fn timed_record(&self, number: u64, previous_end: Instant, begin: Instant, end: Instant) -> StepRecord {
        let phase = |phase: Phase| self.phases[phase as usize].take();
        let seconds = |time: Duration| Some(time.as_secs_f64());
        let (loss, both_passes) = (phase(Phase::Loss), phase(Phase::LossAndBackward));
        let exchange = phase(Phase::Exchange);
        let loss_cpu_time = self.loss_cpu_time.take();
        let mut record = StepRecord::new(now(), number);
        record.rank = self.rank.rank;
        record.seconds = (end - previous_end).as_secs_f64();
        record.upload_s = seconds(phase(Phase::Upload));
        record.loss_s = seconds(loss + both_passes);
        record.loss_cpu_s = seconds(loss_cpu_time).filter(|_| cfg!(unix));
        let backward = phase(Phase::Backward) + phase(Phase::Accumulation);
        record.backward_s = seconds(backward).filter(|_| both_passes.is_zero());
        record.update_s = seconds(phase(Phase::Update));
        record.exchange_s = seconds(exchange).filter(|_| !exchange.is_zero());
        record.drain_s = seconds(phase(Phase::Drain));
        let waited = self.rank.loader.fill(&mut record);
        record.outside_s = seconds(begin.saturating_duration_since(previous_end).saturating_sub(waited));
        record
    }
}

/// Bytes in use and bytes reserved: of Burn's pools, or of the counting allocator on the CPU.
fn pool_usage(device: &Device) -> (Option<u64>, Option<u64>) {
    match device.memory_pool_usage() {
        Some(pools) => (Some(pools.bytes_in_use), Some(pools.bytes_reserved)),
        None => (counted_bytes(), None),
    }
}

#[cfg(feature = "counting-allocator")]
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of the version that counts nothing")]
fn counted_bytes() -> Option<u64> {
    Some(crate::allocation::live_bytes() as u64)
}

#[cfg(not(feature = "counting-allocator"))]
const fn counted_bytes() -> Option<u64> {
    None
}

/// CPU time of the current thread; `None` where the system does not report it.
#[cfg(unix)]
fn thread_cpu_time() -> Option<Duration> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Some(Duration::new(u64::try_from(time.tv_sec).ok()?, u32::try_from(time.tv_nsec).ok()?))
}

/// CPU time of the current thread; `None` where the system does not report it.
#[cfg(not(unix))]
fn thread_cpu_time() -> Option<Duration> {
    None
}

/// Runs `work` and returns its result with the CPU time it took on this thread.
fn with_cpu_time<T>(work: impl FnOnce() -> T) -> (T, Option<Duration>) {
    let before = thread_cpu_time();
    let done = work();
    (done, before.zip(thread_cpu_time()).map(|(before, after)| after.saturating_sub(before)))
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use gpu_tuned_observe::recording::StepRecord;

    use super::{LoaderCounters, thread_cpu_time, with_cpu_time};

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

    #[cfg(unix)]
    #[test]
    fn sleeping_takes_none_and_working_does() {
        let ((), slept) = with_cpu_time(|| thread::sleep(Duration::from_millis(50)));
        assert!(slept.unwrap() < Duration::from_millis(40), "{slept:?}");
        let (before, clock, mut sum) = (thread_cpu_time().unwrap(), Instant::now(), 0_u64);
        while thread_cpu_time().unwrap().saturating_sub(before) < Duration::from_millis(50) {
            sum = sum.wrapping_mul(31).wrapping_add(clock.elapsed().as_nanos() as u64);
        }
        assert!(clock.elapsed() >= Duration::from_millis(40), "{sum}");
    }
}
