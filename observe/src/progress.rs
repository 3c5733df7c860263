//! Progress of long work, for users.

#[cfg(test)]
mod tests;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::log::inform_user;

/// Time after which work counts as long.
const LONG: Duration = Duration::from_secs(2);
/// Interval of reports during silence.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// True while a [`Progress`] reports.
static IS_REPORTING: AtomicBool = AtomicBool::new(false);

static DETAILS: OnceLock<fn() -> Option<Details>> = OnceLock::new();

/// Details of long work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Details {
    /// Counts so far, such as of compiled kernels.
    pub counts: String,
    /// Use of the results after the work.
    pub outcome: String,
}

/// Sets the source of details for all reports. The first source stays.
pub fn set_details(source: fn() -> Option<Details>) {
    // Later sources are the same function.
    let _ = DETAILS.set(source);
}

fn details() -> Option<Details> {
    DETAILS.get().and_then(|source| source())
}

/// Counts of the work so far, such as of compiled kernels; `None` without any.
pub fn counts() -> Option<String> {
    details().map(|details| details.counts)
}

/// Reports work that takes longer than 2 s: then, every 10 s, and when dropped.
///
/// A process reports one piece of work at a time. Work within other work, and of other threads meanwhile, is not reported.
#[must_use = "work ends when the value is dropped"]
pub struct Progress {
    /// `None` while other work is reported. Reports end when it is dropped.
    _work: Option<Work>,
}

struct Work {
    name: String,
    begin: Instant,
    long: Duration,
    print: fn(&str),
    /// Dropped before the last report.
    heartbeat: Option<Heartbeat<()>>,
}

impl Progress {
    /// Begins a piece of work. `name` starts a line.
    pub fn begin(name: impl Into<String>) -> Self {
        Self::begin_with(name.into(), LONG, INTERVAL, inform_user)
    }

    fn begin_with(name: String, long: Duration, interval: Duration, print: fn(&str)) -> Self {
        if IS_REPORTING.swap(true, Ordering::AcqRel) {
            return Self { _work: None };
        }
        let begin = Instant::now();
        let line = name.clone();
        let report = move |_: Duration, _: Option<()>| {
            let counts = counts().map(|counts| format!(", {counts}")).unwrap_or_default();
            print(&format!("{line}: {:.0} s so far{counts}", begin.elapsed().as_secs_f64()));
        };
        let heartbeat = Some(Heartbeat::begin(long, interval, report));
        Self { _work: Some(Work { name, begin, long, print, heartbeat }) }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        let took = self.begin.elapsed();
        drop(self.heartbeat.take());
        if took >= self.long {
            let details = details().map(|Details { counts, outcome }| format!(", {counts}; {outcome}"));
            (self.print)(&format!("{}: {:.0} s{}", self.name, took.as_secs_f64(), details.unwrap_or_default()));
        }
        IS_REPORTING.store(false, Ordering::Release);
    }
}

/// Reports progress during silence, until dropped. `T` is the current step.
pub struct Heartbeat<T> {
    /// Sends the step that begins, or `None` after other output.
    events: Option<Sender<Option<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Copy + Send + 'static> Heartbeat<T> {
    /// Calls `report` after a first silence, and after each `interval` of silence from then on, with the time since the last
    /// output and the current step.
    pub fn begin(
        first: Duration,
        interval: Duration,
        report: impl FnMut(Duration, Option<T>) + Send + 'static,
    ) -> Self {
        let (events, received) = channel();
        let report = move || run(first, interval, &received, report);
        let thread = thread::Builder::new().name("heartbeat".to_owned()).spawn(report);
        Self { events: Some(events), thread: thread.ok() }
    }

    /// Restarts the silence after other output.
    pub fn output(&self) {
        self.send(None);
    }

    /// Sets the current step.
    pub fn at(&self, step: T) {
        self.send(Some(step));
    }

    fn send(&self, event: Option<T>) {
        if let Some(events) = &self.events {
            // Without a thread there are no reports.
            events.send(event).ok();
        }
    }
}

fn run<T: Copy>(
    first: Duration,
    interval: Duration,
    received: &Receiver<Option<T>>,
    mut report: impl FnMut(Duration, Option<T>),
) {
    let (mut since, mut step) = (Instant::now(), None);
    let mut due = since + first;
    loop {
        // Events that wait in the channel do not delay a report.
        let now = Instant::now();
        if now >= due {
            report(now - since, step);
            due = now + interval;
        }
        match received.recv_timeout(due.saturating_duration_since(now)) {
            Ok(next @ Some(_)) => step = next,
            Ok(None) => {
                since = Instant::now();
                due = since + first;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl<T> Drop for Heartbeat<T> {
    fn drop(&mut self) {
        drop(self.events.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}
