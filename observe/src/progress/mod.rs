//! Progress of long work, for users.

mod heartbeat;

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

pub use heartbeat::Heartbeat;

use crate::log::inform_user;

/// Time after which work counts as long.
const LONG: Duration = Duration::from_secs(2);
/// Interval of reports during silence.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// True while a [`Progress`] reports.
static IS_REPORTING: AtomicBool = AtomicBool::new(false);

/// Source of details.
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

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{Details, Progress, set_details};

    static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn print(line: &str) {
        LINES.lock().expect("no panic").push(line.to_owned());
    }

    fn lines() -> Vec<String> {
        LINES.lock().expect("no panic").clone()
    }

    /// One test, as a process reports one piece of work at a time.
    #[test]
    fn long_work_is_reported_at_intervals_and_at_its_end() {
        let short = Duration::from_millis(10);
        let quick = Progress::begin_with("quick".to_owned(), Duration::from_secs(600), short, print);
        drop(Progress::begin_with("within".to_owned(), Duration::ZERO, short, print));
        drop(quick);
        assert_eq!(lines(), [""; 0]);

        let long = Progress::begin_with("first step".to_owned(), short, short, print);
        let begin = Instant::now();
        while lines().len() < 2 && begin.elapsed() < Duration::from_secs(60) {
            thread::sleep(short);
        }
        set_details(|| Some(Details { counts: "7 kernels".to_owned(), outcome: "kept".to_owned() }));
        drop(long);
        let lines = lines();
        assert!(
            lines.len() > 2 && lines[0].starts_with("first step: ") && lines[0].ends_with(" s so far"),
            "{lines:?}"
        );
        assert!(lines.last().is_some_and(|line| line.ends_with(" s, 7 kernels; kept")), "{lines:?}");
    }
}
