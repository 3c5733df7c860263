//! What a rank's loader and its trainer see of a run, and pass on to the recording and the trace.
//!
//! Where nobody looks, all of it is a look at an `Option`.

mod clock;
mod processor;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use clock::{Clock, Phase};

use gpu_tuned_observe::recording::Recorder;
use gpu_tuned_observe::trace::Tracer;

/// The course of a rank's steps; its clones are the same, and the default is one that nobody looks at.
#[derive(Clone, Default)]
pub(crate) struct Course(Option<Arc<Seen>>);

/// What those who look at a rank share.
struct Seen {
    rank: u64,
    recorder: Option<Recorder>,
    tracer: Option<Tracer>,
    /// Steps so far.
    steps: AtomicU64,
    loader: Loader,
    /// The end of the step before, whoever of the rank's trainers took it.
    ended: Mutex<Option<Instant>>,
    /// The other ranks, which go on counting when there are threads for them anew.
    others: Mutex<BTreeMap<u64, Arc<Seen>>>,
}

/// What the loader did since the last step.
#[derive(Default)]
struct Loader {
    is_there: AtomicBool,
    waited: Time,
    queued: AtomicU64,
    prepared: AtomicU64,
    preparing: Time,
    processor: Time,
}

/// What a loader did for a step.
struct Loaded {
    waited: Duration,
    queued: u64,
    prepared: u64,
    preparing: Duration,
    processor: Duration,
}

/// Time that adds up, from any thread.
#[derive(Default)]
struct Time(AtomicU64);

impl Time {
    fn add(&self, time: Duration) {
        self.0.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// All of it; it begins anew.
    fn take(&self) -> Duration {
        Duration::from_nanos(self.0.swap(0, Relaxed))
    }
}

impl Course {
    /// That of the first rank, or of the only one.
    pub(crate) fn new(recorder: Option<Recorder>, tracer: Option<Tracer>) -> Self {
        if recorder.is_none() && tracer.is_none() {
            return Self::default();
        }
        Self(Some(Arc::new(Seen::new(0, recorder, tracer))))
    }

    /// That of another rank of the same run; of the first it is this one.
    pub(crate) fn of_rank(&self, rank: usize) -> Self {
        match &self.0 {
            Some(first) if rank > 0 => {
                let mut others = first.others.lock().unwrap_or_else(PoisonError::into_inner);
                let made = || Arc::new(Seen::new(rank as u64, first.recorder.clone(), first.tracer.clone()));
                Self(Some(Arc::clone(others.entry(rank as u64).or_insert_with(made))))
            }
            _ => self.clone(),
        }
    }

    /// Steps so far; `None` where nobody looks.
    #[cfg(feature = "train")]
    pub(crate) fn steps(&self) -> Option<u64> {
        self.0.as_ref().map(|seen| seen.steps.load(Relaxed))
    }

    /// Times the consumer's wait for a batch, of which so many are `ready`.
    pub(crate) fn waiting<T>(&self, ready: impl FnOnce() -> usize, wait: impl FnOnce() -> T) -> T {
        let Some(seen) = &self.0 else { return wait() };
        seen.loader.is_there.store(true, Relaxed);
        seen.loader.queued.store(ready() as u64, Relaxed);
        let begin = Instant::now();
        let waited = wait();
        let end = Instant::now();
        seen.loader.waited.add(end - begin);
        seen.trace(Track::Rank(seen.rank), "wait for loader", begin, end);
        waited
    }

    /// Times a worker's preparation of a batch, which is another's work.
    pub(crate) fn preparing<T>(&self, prepare: impl FnOnce() -> T) -> T {
        let Some(seen) = &self.0 else { return prepare() };
        let begin = Instant::now();
        let before = processor::of_this_thread();
        let prepared = prepare();
        if let Some((before, after)) = before.zip(processor::of_this_thread()) {
            seen.loader.processor.add(after.saturating_sub(before));
        }
        let end = Instant::now();
        seen.loader.prepared.fetch_add(1, Relaxed);
        seen.loader.preparing.add(end - begin);
        seen.trace(Track::Thread, "prepare batch", begin, end);
        prepared
    }

    /// Shows work of the loader's own in the trace.
    pub(crate) fn tracing<T>(&self, name: &'static str, work: impl FnOnce() -> T) -> T {
        let Some(seen) = &self.0 else { return work() };
        let begin = Instant::now();
        let done = work();
        seen.trace(Track::Thread, name, begin, Instant::now());
        done
    }
}

/// Where a span of time is shown.
#[derive(Clone, Copy)]
enum Track {
    /// With the steps of a rank.
    Rank(u64),
    /// With the thread that it passed in.
    Thread,
}

impl Seen {
    fn new(rank: u64, recorder: Option<Recorder>, tracer: Option<Tracer>) -> Self {
        let (ended, others) = (Mutex::new(None), Mutex::default());
        Self { rank, recorder, tracer, steps: AtomicU64::new(0), loader: Loader::default(), ended, others }
    }

    /// When the step before ended, or its trainer was made; this one ends now.
    fn ends(&self, made: Instant, end: Instant) -> Instant {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner).replace(end).unwrap_or(made)
    }

    fn trace(&self, track: Track, name: &'static str, begin: Instant, end: Instant) {
        let Some(tracer) = self.tracer.as_ref().filter(|tracer| tracer.is_on()) else { return };
        match track {
            Track::Rank(rank) => tracer.span(&trainer(rank), name, begin, end, &[]),
            Track::Thread => {
                let thread = std::thread::current();
                tracer.span(thread.name().unwrap_or("a thread"), name, begin, end, &[]);
            }
        }
    }
}

impl Loader {
    /// Since the step before; `None` where there is no loader that tells.
    fn take(&self) -> Option<Loaded> {
        self.is_there.load(Relaxed).then(|| Loaded {
            waited: self.waited.take(),
            queued: self.queued.load(Relaxed),
            prepared: self.prepared.swap(0, Relaxed),
            preparing: self.preparing.take(),
            processor: self.processor.take(),
        })
    }
}

/// What a rank's steps are shown as.
fn trainer(rank: u64) -> String {
    format!("steps of rank {rank}")
}

impl fmt::Debug for Course {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Course(looked at)" } else { "Course(not looked at)" })
    }
}
